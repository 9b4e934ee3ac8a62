"""Delivery queue: one sender for each channel, attempts recorded before sending, channel health.

The lease on the channel is the queue's order: what one channel is told, it is told in the order in which it happened. A
sender that dies leaves its delivery SENDING; once the lease is over it is tried again under the same id.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Q

from fleet.domain.actor import DRYDOCK
from fleet.domain.clock import AHEAD
from fleet.domain.timeline import EntryKind
from fleet.models import LastRun
from fleet.models.reconcile import seconds_since_run
from fleet.notifications.channel_services import in_use
from fleet.notifications.grouping import DeliveryPlan, Waiting, plan
from fleet.notifications.kinds import MIRRORS
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery, Reference
from fleet.notifications.routing import (
    FAILING_AFTER,
    GIVE_UP_AFTER,
    GROUP,
    LONGEST_ASKED_SECONDS,
    OF_DELIVERY,
    DeliveryState,
    MessageState,
    delivery_sources,
    pause_seconds,
)
from fleet.operations.locks import Lock, try_take
from fleet.operations.timeline.entries import tell

# Whoever sends renews it (`RENEW_SECONDS`); once it is over, somebody else goes on.
LEASE = timedelta(seconds=15)
RENEW_SECONDS = 5.0
# Of one round of a channel; the rest is taken by the next.
MOST = 2000
# Of what a receiver says, so much is kept.
MOST_ANSWER = 500
# A channel that mirrors what is open is renewed so often.
MIRROR_EVERY = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Open:
    """A delivery that is to be sent now, with its messages (row ids, in order)."""

    id: UUID
    moment: str
    attempts: int
    message_ids: tuple[int, ...]
    subjects: tuple[str, ...]


def due_channels(*, now: datetime) -> list[int]:
    """The channels (row ids) that have something to send now, or to mirror, and that nobody is sending to."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id FROM fleet_channel AS channel
            WHERE enabled AND deleted_at IS NULL
                  AND (held_until IS NULL OR held_until <= %(now)s)
                  AND (leased_until IS NULL OR leased_until <= %(now)s)
                  AND (EXISTS (SELECT FROM fleet_message WHERE channel_id = channel.id AND state = 'WAITING'
                               AND due_at <= %(now)s)
                       OR EXISTS (SELECT FROM fleet_messagedelivery WHERE channel_id = channel.id
                                  AND state IN ('QUEUED', 'SENDING'))
                       OR kind = ANY(%(mirrors)s) AND (mirrored_at IS NULL OR mirrored_at <= %(old)s))
            ORDER BY id
            """,
            {"now": now, "mirrors": sorted(MIRRORS), "old": now - MIRROR_EVERY},
        )
        return [row[0] for row in cursor.fetchall()]


def next_due(*, now: datetime) -> datetime | None:
    """When there is something to do next; None where nothing waits."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT min(greatest(waiting.due_at, channel.held_until, channel.leased_until))
            FROM fleet_channel AS channel CROSS JOIN LATERAL (
                SELECT min(due_at) AS due_at FROM (
                    (SELECT due_at FROM fleet_message WHERE channel_id = channel.id AND state = 'WAITING'
                     ORDER BY due_at LIMIT 1)
                    UNION ALL
                    (SELECT due_at FROM fleet_messagedelivery WHERE channel_id = channel.id
                     AND state IN ('QUEUED', 'SENDING') ORDER BY created_at LIMIT 1)
                ) AS all_of_it
            ) AS waiting
            WHERE enabled AND deleted_at IS NULL AND waiting.due_at IS NOT NULL
            """
        )
        ((found,),) = cursor.fetchall()
    return None if found is None else max(found, now)


def lease(channel_id: int, *, now: datetime) -> bool:
    """Whether this channel (row id) is ours to send to, for so long."""
    free = Q(leased_until=None) | Q(leased_until__lte=now)
    mine = Channel.objects.filter(free, pk=channel_id, enabled=True, deleted_at=None)
    return mine.update(leased_until=now + LEASE) == 1


def renew(channel_ids: Collection[int], *, now: datetime) -> None:
    """They are still being sent to."""
    mine = Channel.objects.filter(pk__in=list(channel_ids), leased_until__isnull=False)
    mine.update(leased_until=now + LEASE)


def release(channel_id: int) -> None:
    """Somebody else may send to it."""
    Channel.objects.filter(pk=channel_id).update(leased_until=None)


def usable(channel_id: int, *, now: datetime) -> tuple[str, str, Mapping[str, Any]]:
    """The kind and the name of a channel (row id), and all that it needs to be sent to, its secrets included. Raises
    UnreadableSecretsError.
    """
    row = Channel.objects.get(pk=channel_id)
    return row.kind, row.name, in_use(row, now=now)


def waiting(channel_id: int, *, now: datetime) -> list[int]:
    """The messages (row ids) of a channel whose time has come, oldest first."""
    rows = Message.objects.filter(channel=channel_id, state=MessageState.WAITING.value, due_at__lte=now)
    return list(rows.order_by("id").values_list("id", flat=True)[:MOST])


def drop(why: Mapping[int, str], *, now: datetime) -> None:
    """Nobody needs to be told of these messages (row ids) any more, for the reason of this code."""
    by_reason: dict[str, list[int]] = {}
    for message_id, code in why.items():
        by_reason.setdefault(code, []).append(message_id)
    for code, ids in by_reason.items():
        rows = Message.objects.filter(pk__in=ids, state=MessageState.WAITING.value)
        rows.update(state=MessageState.DROPPED.value, why=code)


@transaction.atomic
def pack(channel_id: int, *, now: datetime) -> int:
    """Make deliveries of what waits and is due, as `fleet.notifications.grouping` plans it; how many."""
    rows = list(
        Message.objects.filter(channel=channel_id, state=MessageState.WAITING.value, due_at__lte=now)
        .annotate(place=F("event__availability_set_id"))
        .order_by("id")
        .select_for_update(of=("self",), no_key=True)[:MOST]
    )
    interval = timedelta(seconds=settings.NOTIFICATION_GROUP_INTERVAL_SECONDS)
    made = MessageDelivery.objects.filter(channel=channel_id, created_at__gt=now - interval).order_by()
    planned: DeliveryPlan = plan(
        [Waiting(row.pk, row.subject, row.service, row.deadline, row.place) for row in rows],
        list(made.annotate(carried=Count("messages")).values_list("group", "created_at", "carried")),
        now=now,
        wait=timedelta(seconds=settings.NOTIFICATION_GROUP_WAIT_SECONDS),
        interval=interval,
        told=_told_of(channel_id, since=now - interval),
    )
    known = {row.pk: row for row in rows}
    for batch in planned.batches:
        alone = known[batch.ids[0]].moment if len(batch.ids) == 1 else GROUP
        delivery = MessageDelivery.objects.create(
            channel_id=channel_id, moment=alone, group=batch.group, created_at=now, due_at=now
        )
        Message.objects.filter(pk__in=batch.ids).update(state=MessageState.BATCHED.value, delivery=delivery)
    later: dict[datetime, list[int]] = {}
    for message_id, at in planned.later.items():
        later.setdefault(at, []).append(message_id)
    for at, ids in later.items():
        Message.objects.filter(pk__in=ids).update(due_at=at)
    return len(planned.batches)


def _told_of(channel_id: int, *, since: datetime) -> dict[int, int]:
    """Of which sets (row ids) a channel has been told since then, with how many messages of each."""
    rows = Message.objects.filter(delivery__channel=channel_id, delivery__created_at__gt=since, event__isnull=False)
    return dict(rows.order_by().values_list("event__availability_set_id").annotate(Count("pk")))


def next_delivery(channel_id: int) -> Open | None:
    """The oldest delivery of a channel that is not settled. Whoever asks holds the lease: nobody else is sending it."""
    open_ones = MessageDelivery.objects.filter(
        channel=channel_id, state__in=[DeliveryState.QUEUED.value, DeliveryState.SENDING.value]
    )
    row = open_ones.order_by("created_at", "id").first()
    if row is None:
        return None
    told = list(Message.objects.filter(delivery=row).order_by("id").values_list("id", "subject"))
    subjects = tuple(dict.fromkeys(subject for _, subject in told))
    return Open(row.pk, row.moment, row.attempts, tuple(pk for pk, _ in told), subjects)


@transaction.atomic
def begin(delivery_id: UUID, *, channel_id: int, now: datetime) -> int:
    """Write down that it is being sent, before it is; the number of the attempt. The lease begins anew."""
    MessageDelivery.objects.filter(pk=delivery_id, state__in=delivery_sources(DeliveryState.SENDING)).update(
        state=DeliveryState.SENDING.value, attempts=F("attempts") + 1
    )
    number = MessageDelivery.objects.values_list("attempts", flat=True).get(pk=delivery_id)
    # What the one before came to, nobody knows: whoever made it has died.
    DeliveryAttempt.objects.filter(delivery=delivery_id, ended_at=None).update(ended_at=now, error="unknown")
    DeliveryAttempt.objects.create(delivery_id=delivery_id, number=number, at=now)
    Channel.objects.filter(pk=channel_id).update(leased_until=now + LEASE)
    return int(number)


def end_attempt(
    delivery_id: UUID, number: int, *, now: datetime, ok: bool, status: int | None, error: str, answer: str
) -> None:
    """What one attempt came to."""
    DeliveryAttempt.objects.filter(delivery=delivery_id, number=number).update(
        ended_at=now, ok=ok, status=status, error=error, answer=answer[:MOST_ANSWER]
    )


def too_old(delivery_id: UUID, *, now: datetime) -> bool:
    """Whether it has been tried for long enough."""
    return MessageDelivery.objects.filter(pk=delivery_id, created_at__lte=now - GIVE_UP_AFTER).exists()


def mirrored(channel_id: int, *, now: datetime) -> None:
    """A channel that mirrors what is open has just done so."""
    Channel.objects.filter(pk=channel_id).update(mirrored_at=now)


def mirror_soon() -> None:
    """There is news: channels that mirror what is open do so at once."""
    Channel.objects.filter(kind__in=MIRRORS, enabled=True, deleted_at=None).update(mirrored_at=None)


def references(channel_id: int, subjects: Collection[str]) -> dict[str, Mapping[str, object]]:
    """What a channel keeps for these subjects."""
    rows = Reference.objects.filter(channel=channel_id, subject__in=list(subjects))
    return dict(rows.values_list("subject", "value"))


def keep_references(channel_id: int, kept: Mapping[str, Mapping[str, object] | None], *, now: datetime) -> None:
    """Keep what a channel calls these subjects from now on; None forgets it."""
    gone = [subject for subject, value in kept.items() if value is None]
    if gone:
        Reference.objects.filter(channel=channel_id, subject__in=gone).delete()
    # A mirror has thousands of them in a storm.
    Reference.objects.bulk_create(
        [
            Reference(channel_id=channel_id, subject=subject, value=dict(value), changed_at=now)
            for subject, value in kept.items()
            if value is not None
        ],
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["channel", "subject"],
        update_fields=["value", "changed_at"],
    )


@transaction.atomic
def settle_delivery(delivery_id: UUID, state: DeliveryState, *, now: datetime, why: str = "") -> None:
    """What became of a delivery, and with it of its messages. QUEUED: it is tried again."""
    settled = None if state is DeliveryState.QUEUED else now
    moved = MessageDelivery.objects.filter(pk=delivery_id, state__in=delivery_sources(state))
    if moved.update(state=state.value, settled_at=settled, why=why):
        Message.objects.filter(delivery=delivery_id).update(state=OF_DELIVERY[state].value, why=why)


def leave_out(why: Mapping[int, str]) -> None:
    """Messages (row ids) of a delivery that is tried again, and of which nobody needs to hear any more."""
    for code in set(why.values()):
        rows = Message.objects.filter(pk__in=[pk for pk, reason in why.items() if reason == code])
        rows.update(state=MessageState.DROPPED.value, why=code, delivery=None)


def repair(*, now: datetime) -> None:
    """Messages and deliveries that a wrong clock made in the future wait no longer, nor do others for them; leases and
    pauses that are longer than any can be end.
    """
    ahead = Q(created_at__gt=now + AHEAD)
    wrong = Message.objects.filter(ahead, state=MessageState.WAITING.value)
    # Steps of escalation have a time of their own.
    wrong.filter(only_if="").update(due_at=now, created_at=now)
    wrong.update(created_at=now)
    MessageDelivery.objects.filter(ahead).update(created_at=now, due_at=now)
    leased, held = now + LEASE + AHEAD, now + timedelta(seconds=LONGEST_ASKED_SECONDS) + AHEAD
    Channel.objects.filter(leased_until__gt=leased).update(leased_until=None)
    Channel.objects.filter(held_until__gt=held).update(held_until=None)
    Channel.objects.filter(mirrored_at__gt=now + AHEAD).update(mirrored_at=None)


def chance() -> float:
    """What spreads the pauses."""
    return random.random()  # noqa: S311 - no secret


# How a channel does: what it answered last, since when it fails, and until when it is left alone.


@transaction.atomic
def took(channel_id: int, *, now: datetime, answer: str, wait_seconds: float | None) -> None:
    """It took a post. `wait_seconds`: it asked to be left alone for so long before the next."""
    row = Channel.objects.select_for_update(no_key=True).get(pk=channel_id)
    if row.failures >= FAILING_AFTER:
        tell(EntryKind.CHANNEL_WORKS, DRYDOCK, at=now, channel_id=row.pk, name=row.name, channel_kind=row.kind)
    row.last_ok_at, row.failing_since, row.failures = now, None, 0
    row.last_error, row.last_answer = "", answer
    row.held_until = None if wait_seconds is None else now + timedelta(seconds=wait_seconds)
    row.save(update_fields=["last_ok_at", "failing_since", "failures", "last_error", "last_answer", "held_until"])


@transaction.atomic
def failed(
    channel_id: int, *, now: datetime, error: str, answer: str, hold: bool, wait_seconds: float | None, gone: bool
) -> None:
    """It did not take a post: it is left alone for a while where `hold`, and switched off where it is `gone`."""
    row = Channel.objects.select_for_update(no_key=True).get(pk=channel_id)
    row.failures += 1
    row.failing_since = row.failing_since or now
    row.last_error, row.last_answer = error, answer
    row.enabled = row.enabled and not gone
    if hold:
        row.held_until = now + timedelta(seconds=pause_seconds(row.failures, chance=chance(), asked=wait_seconds))
    if row.failures == FAILING_AFTER or gone:
        tell(
            EntryKind.CHANNEL_FAILING,
            DRYDOCK,
            at=now,
            channel_id=row.pk,
            name=row.name,
            channel_kind=row.kind,
            error=error,
            gone=gone,
        )
    row.save(update_fields=["failures", "failing_since", "last_error", "last_answer", "held_until", "enabled"])


# What receivers tell us of the things that a channel keeps with them: apart from what we told them, since both are
# written at any time.


def of_key(name: str) -> str:
    """Under which subject stands what a pager told of the key of this name."""
    return f"there:{name}"


def told(channel_id: int, names: Collection[str]) -> dict[str, str]:
    """How these keys stand at the pager, as far as it said anything, by name. One query."""
    subjects = {of_key(name): name for name in names}
    rows = Reference.objects.filter(channel=channel_id, subject__in=list(subjects))
    return {subjects[subject]: value["state"] for subject, value in rows.values_list("subject", "value")}


def note_told(channel_id: int, name: str, *, state: str, at: datetime, now: datetime) -> None:
    """The pager says that a key stands so since then; what it says later than something newer is history."""
    known = Reference.objects.filter(channel=channel_id, subject=of_key(name)).values_list("value", flat=True).first()
    if known is None or datetime.fromisoformat(known["at"]) <= at:
        Reference.objects.update_or_create(
            channel_id=channel_id,
            subject=of_key(name),
            defaults={"value": {"state": state, "at": at.isoformat()}, "changed_at": now},
        )


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key that a channel holds: what it is about, as far as that is not over; `storm` where it was made for many."""

    left: tuple[str, ...]
    storm: bool


def held_key(channel_id: int, name: str) -> HeldKey | None:
    """The key of this name; None where the channel holds none such. One query over what it holds."""
    rows = Reference.objects.filter(channel=channel_id, value__contains={"keys": [{"name": name}]})
    for subject, value in rows.values_list("subject", "value"):
        for key in value["keys"]:
            if key["name"] == name:
                return HeldKey(tuple(key["left"]), storm=subject == GROUP)
    return None


# Whose turn it is to tell the watchdog: one process at a time, once a minute.

NAME = "watchdog"
# A little less than a minute, so that whoever comes each minute is not a moment early.
EVERY = timedelta(seconds=55)


@transaction.atomic
def mine(*, now: datetime, via: str) -> bool:
    """Whether it is ours to tell now; nobody else does within the minute."""
    if not try_take(Lock.WATCHDOG):
        return False
    if seconds_since_run(NAME, now=now) < EVERY.total_seconds():
        return False
    LastRun.objects.update_or_create(name=NAME, defaults={"ran_at": now, "via": via})
    return True
