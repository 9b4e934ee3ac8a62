"""Delivery to one channel: drops stale messages, groups the rest, renders the current state, sends it, and records the
result.
"""

import importlib
import random
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, F, Q

from fleet.domain.actor import DRYDOCK
from fleet.domain.clock import AHEAD
from fleet.domain.timeline import EntryKind
from fleet.notifications import models, routing
from fleet.notifications.channel_services import in_use
from fleet.notifications.channels import KINDS, kinds_where
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome, reader_of
from fleet.notifications.grouping import Waiting, plan
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery, Reference
from fleet.notifications.news import MessageNews, news_of
from fleet.notifications.routing import GROUP, OPEN_DELIVERIES, TEST, DeliveryState, MessageState
from fleet.notifications.text import group_words, test_words
from fleet.operations.clock import may_clock_decide
from fleet.operations.timeline.entries import tell

# Drydock's own errors are retried this often; then the delivery is given up.
MOST_OWN_FAILURES = 5
OWN_FAILURE = "own-failure"

Clock = Callable[[], datetime]

log = structlog.get_logger(__name__)

# The queue: channels with something to send, their leases, and grouping into deliveries. The lease keeps the order: a
# channel gets its notifications in the order in which things happened. A sender that dies leaves its delivery SENDING;
# after the lease it is tried again under the same id.

# The sender renews its lease every `RENEW_SECONDS`; after the lease expires, another sender continues.
LEASE = timedelta(seconds=15)
RENEW_SECONDS = 5.0
# Messages that one round of a channel handles; the next round handles the rest.
MOST = 2000


def schedule() -> list[tuple[int, datetime]]:
    """Return the channels (row ids) that have something to send or to mirror, and the time when each is due. A channel
    that is leased or paused is due afterwards.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id, greatest(first.due_at, held_until, leased_until)
            FROM fleet_channel AS channel CROSS JOIN LATERAL (
                SELECT least(
                    (SELECT min(due_at) FROM fleet_message WHERE channel_id = channel.id AND state = 'WAITING'),
                    (SELECT due_at FROM fleet_messagedelivery WHERE channel_id = channel.id
                     AND state IN ('QUEUED', 'SENDING') ORDER BY created_at LIMIT 1),
                    CASE WHEN kind = ANY(%s) THEN coalesce(mirrored_at + make_interval(secs => %s), 'epoch') END
                ) AS due_at
            ) AS first
            WHERE enabled AND deleted_at IS NULL AND first.due_at IS NOT NULL
            ORDER BY id
            """,
            # A channel that mirrors open events is renewed every 30 seconds.
            [kinds_where(messages=False), 30.0],
        )
        rows: list[tuple[int, datetime]] = cursor.fetchall()
    return rows


def lease(channel_id: int, *, now: datetime) -> bool:
    """Lease a channel (row id), so that no other process sends to it. Return whether it was free."""
    free = Q(leased_until=None) | Q(leased_until__lte=now)
    rows = Channel.objects.filter(free, pk=channel_id, enabled=True, deleted_at=None)
    return rows.update(leased_until=now + LEASE) == 1


def renew(channel_ids: Collection[int], *, now: datetime) -> None:
    """Extend the leases of the channels (row ids) to which this process is sending."""
    rows = Channel.objects.filter(pk__in=list(channel_ids), leased_until__isnull=False)
    rows.update(leased_until=now + LEASE)


def release(channel_id: int) -> None:
    Channel.objects.filter(pk=channel_id).update(leased_until=None)


def mirror_soon() -> None:
    """Make all channels that mirror open events due now."""
    Channel.objects.filter(kind__in=kinds_where(messages=False), enabled=True, deleted_at=None).update(mirrored_at=None)


def waiting(channel_id: int, *, now: datetime) -> list[int]:
    """Return the row ids of the messages of a channel that are due, oldest first."""
    rows = Message.objects.filter(channel=channel_id, state=MessageState.WAITING.value, due_at__lte=now)
    return list(rows.order_by("id").values_list("id", flat=True)[:MOST])


def drop(reasons: Mapping[int, str]) -> None:
    """Mark messages as dropped. `reasons` has the code of the reason by row id."""
    for code in set(reasons.values()):
        rows = Message.objects.filter(pk__in=[pk for pk, reason in reasons.items() if reason == code])
        rows.update(state=MessageState.DROPPED.value, why=code, delivery=None)


@transaction.atomic
def pack(channel_id: int, *, now: datetime) -> None:
    """Create deliveries from the due messages of a channel, as planned by `fleet.notifications.grouping`."""
    rows = list(
        Message.objects.filter(channel=channel_id, state=MessageState.WAITING.value, due_at__lte=now)
        .annotate(place=F("event__availability_set_id"))
        .order_by("id")
        .select_for_update(of=("self",), no_key=True)[:MOST]
    )
    interval = timedelta(seconds=settings.NOTIFICATION_GROUP_INTERVAL_SECONDS)
    recent = MessageDelivery.objects.filter(channel=channel_id, created_at__gt=now - interval).order_by()
    sent = Message.objects.filter(
        delivery__channel=channel_id, delivery__created_at__gt=now - interval, event__isnull=False
    ).order_by()
    planned = plan(
        [Waiting(row.pk, row.subject, row.service, row.deadline, row.place) for row in rows],
        list(recent.annotate(carried=Count("messages")).values_list("group", "created_at", "carried")),
        now=now,
        wait=timedelta(seconds=settings.NOTIFICATION_GROUP_WAIT_SECONDS),
        interval=interval,
        sent=dict(sent.values_list("event__availability_set_id").annotate(Count("pk"))),
    )
    types = {row.pk: row.moment for row in rows}
    for batch in planned.batches:
        delivery = MessageDelivery.objects.create(
            channel_id=channel_id,
            moment=types[batch.ids[0]] if len(batch.ids) == 1 else GROUP,
            group=batch.group,
            created_at=now,
            due_at=now,
        )
        Message.objects.filter(pk__in=batch.ids).update(state=MessageState.BATCHED.value, delivery=delivery)
    for at in set(planned.later.values()):
        ids = [message_id for message_id, due_at in planned.later.items() if due_at == at]
        Message.objects.filter(pk__in=ids).update(due_at=at)


def repair(*, now: datetime) -> None:
    """Correct times in the future that were written while the clock was wrong: of messages, deliveries, leases and
    pauses.
    """
    ahead = Q(created_at__gt=now + AHEAD)
    wrong = Message.objects.filter(ahead, state=MessageState.WAITING.value)
    # Messages of escalation steps keep their own due time.
    wrong.filter(only_if="").update(due_at=now, created_at=now)
    wrong.update(created_at=now)
    MessageDelivery.objects.filter(ahead).update(created_at=now, due_at=now)
    leased, held = now + LEASE + AHEAD, now + timedelta(seconds=routing.LONGEST_ASKED_SECONDS) + AHEAD
    Channel.objects.filter(leased_until__gt=leased).update(leased_until=None)
    Channel.objects.filter(held_until__gt=held).update(held_until=None)
    Channel.objects.filter(mirrored_at__gt=now + AHEAD).update(mirrored_at=None)


# Sending.


def kind_of(name: str) -> ModuleType:
    """Return the module of the channel kind `name`. Raises LookupError if there is none."""
    if name not in KINDS:
        raise LookupError(name)
    return importlib.import_module(f"fleet.notifications.channels.{name}")


def work_off(channel_id: int, *, clock: Clock) -> None:
    """Send everything that is due for this channel (row id). Returns at once if another process has the lease."""
    if not lease(channel_id, now=clock()):
        return
    try:
        row = Channel.objects.get(pk=channel_id)
        try:
            values = in_use(row, now=clock())
        except models.UnreadableSecretsError:
            record_health(channel_id, Outcome(ok=False, again=True, error="secrets-unreadable"), now=clock())
            return
        channel = ChannelInUse(id=channel_id, kind=row.kind, name=row.name, values=values)
        if not KINDS[channel.kind].messages:
            mirror = partial(kind_of(channel.kind).mirror, channel, now=clock())
            outcome = _without_raising(mirror, channel, again=True)
            keep_references(channel.id, outcome.references, now=clock())
            Channel.objects.filter(pk=channel.id).update(mirrored_at=clock())
            record_health(channel.id, outcome, now=clock())
            return
        while may_clock_decide() and _send_next(channel, clock=clock):
            pass
    finally:
        release(channel_id)


def _send_next(channel: ChannelInUse, *, clock: Clock) -> bool:
    """Send the next delivery of a channel. Return whether another one may follow immediately."""
    now = clock()
    # This sender has the lease, so no other one sends it.
    unsettled = MessageDelivery.objects.filter(channel=channel.id, state__in=OPEN_DELIVERIES)
    unsettled = unsettled.order_by("created_at", "id")
    delivery = unsettled.first()
    if delivery is None and (ids := waiting(channel.id, now=now)):
        drop(_stale(ids, _news(ids, now=now)))
        pack(channel.id, now=now)
        delivery = unsettled.first()
    if delivery is None:
        return False
    ids = list(Message.objects.filter(delivery=delivery).order_by("id").values_list("id", flat=True))
    news = _news(ids, now=now)
    stale = _stale(ids, news)
    if len(stale) == len(ids) and delivery.moment != TEST:
        settle(delivery.pk, DeliveryState.DROPPED, now=now, why=next(iter(stale.values()), OWN_FAILURE))
        return True
    drop(stale)
    number = _begin(delivery, now=now)

    def send() -> Any:
        rendered = _rendered(channel, delivery, [news[pk] for pk in ids if pk not in stale], now=now)
        return kind_of(channel.kind).send(rendered, channel, now=now)

    outcome = _without_raising(send, channel, again=number < MOST_OWN_FAILURES)
    return _record(channel, delivery, number, outcome, now=clock())


def _news(message_ids: Collection[int], *, now: datetime) -> dict[int, MessageNews]:
    """Return the content of these messages by row id, from the current state. Messages whose content cannot be loaded
    are omitted.
    """
    try:
        return news_of(message_ids, now=now)
    except DatabaseError:
        raise
    except Exception:
        if len(message_ids) == 1:
            log.exception("message.broken", messages=list(message_ids))
            return {}
    return {pk: news for message_id in message_ids for pk, news in _news([message_id], now=now).items()}


def _stale(message_ids: Collection[int], news: Mapping[int, MessageNews]) -> dict[int, str]:
    """Return the code of the reason for each message that need not be sent any more, by row id."""
    reasons = {pk: news[pk].stale if pk in news else OWN_FAILURE for pk in message_ids}
    return {pk: reason for pk, reason in reasons.items() if reason}


@transaction.atomic
def _begin(delivery: MessageDelivery, *, now: datetime) -> int:
    """Record an attempt before it is made, and renew the lease. Return the number of the attempt."""
    MessageDelivery.objects.filter(pk=delivery.pk, state__in=routing.delivery_sources(DeliveryState.SENDING)).update(
        state=DeliveryState.SENDING.value, attempts=F("attempts") + 1
    )
    number: int = MessageDelivery.objects.values_list("attempts", flat=True).get(pk=delivery.pk)
    # The sender of an earlier attempt has died, so its result is unknown.
    DeliveryAttempt.objects.filter(delivery=delivery, ended_at=None).update(ended_at=now, error="unknown")
    DeliveryAttempt.objects.create(delivery=delivery, number=number, at=now)
    renew([delivery.channel_id], now=now)
    return number


def _rendered(
    channel: ChannelInUse, delivery: MessageDelivery, news: Collection[MessageNews], *, now: datetime
) -> Delivery:
    reader = reader_of(channel, now)
    items = tuple(Item(each, reader) for each in news)
    if len(items) == 1:
        words = items[0].words
    else:
        words = group_words([item.news for item in items], reader) if items else test_words(reader)
    subjects = {item.news.subject for item in items}
    references = Reference.objects.filter(channel=channel.id, subject__in=[*subjects, GROUP])
    return Delivery(
        id=str(delivery.pk),
        moment=TEST if not items else items[0].news.moment if len(items) == 1 else GROUP,
        at=now,
        items=items,
        words=words,
        url=settings.BASE_URL.rstrip("/") + words.path,
        references=dict(references.values_list("subject", "value")),
    )


def _without_raising(call: Callable[[], Outcome], channel: ChannelInUse, *, again: bool) -> Outcome:
    """Call `call` and return the outcome. An exception becomes a failed outcome, so that other deliveries and channels
    continue.
    """
    try:
        return call()
    except Exception as error:
        log.exception("channel.broken", channel=channel.name)
        return Outcome(ok=False, again=again, error=OWN_FAILURE, answer=type(error).__name__)


def _record(channel: ChannelInUse, delivery: MessageDelivery, number: int, outcome: Outcome, *, now: datetime) -> bool:
    """Record the outcome of an attempt. Return whether the channel may be used again immediately."""
    DeliveryAttempt.objects.filter(delivery=delivery, number=number).update(
        ended_at=now, ok=outcome.ok, status=outcome.status, error=outcome.error, answer=outcome.answer[:500]
    )
    keep_references(channel.id, outcome.references, now=now)
    if outcome.ok:
        settle(delivery.pk, DeliveryState.DELIVERED, now=now)
    else:
        # It may have been sent again meanwhile.
        recent = MessageDelivery.objects.filter(pk=delivery.pk, created_at__gt=now - routing.GIVE_UP_AFTER)
        if outcome.again and not outcome.gone and delivery.moment != TEST and recent.exists():
            settle(delivery.pk, DeliveryState.QUEUED, now=now)
        else:
            settle(delivery.pk, DeliveryState.GIVEN_UP, now=now, why=outcome.error or "refused")
    record_health(channel.id, outcome, now=now)
    return outcome.wait_seconds is None if outcome.ok else not (outcome.again or outcome.gone)


@transaction.atomic
def settle(delivery_id: UUID, state: DeliveryState, *, now: datetime, why: str = "") -> None:
    """Change the state of a delivery and of its messages. QUEUED means that it will be retried. `why` is the code of a
    reason.
    """
    settled_at = None if state is DeliveryState.QUEUED else now
    rows = MessageDelivery.objects.filter(pk=delivery_id, state__in=routing.delivery_sources(state))
    if rows.update(state=state.value, settled_at=settled_at, why=why):
        Message.objects.filter(delivery=delivery_id).update(state=routing.OF_DELIVERY[state].value, why=why)


def keep_references(channel_id: int, references: Mapping[str, Mapping[str, object] | None], *, now: datetime) -> None:
    """Store the identifiers that a channel uses for these subjects. None deletes them."""
    gone = [subject for subject, value in references.items() if value is None]
    if gone:
        Reference.objects.filter(channel=channel_id, subject__in=gone).delete()
    # A mirror has thousands of them in a storm.
    Reference.objects.bulk_create(
        [
            Reference(channel_id=channel_id, subject=subject, value=dict(value), changed_at=now)
            for subject, value in references.items()
            if value is not None
        ],
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["channel", "subject"],
        update_fields=["value", "changed_at"],
    )


@transaction.atomic
def record_health(channel_id: int, outcome: Outcome, *, now: datetime) -> None:
    """Update a channel's health after an attempt: last response, pause, and consecutive failures. Write a timeline
    entry when the channel starts to fail or works again.
    """
    row = Channel.objects.select_for_update(no_key=True).get(pk=channel_id)
    subject = {"channel_id": row.pk, "name": row.name, "channel_kind": row.kind}
    row.last_answer = outcome.answer
    if outcome.ok:
        if row.failures >= routing.FAILING_AFTER:
            tell(EntryKind.CHANNEL_WORKS, DRYDOCK, at=now, **subject)
        row.last_ok_at, row.failing_since, row.failures, row.last_error = now, None, 0, ""
        row.held_until = None if outcome.wait_seconds is None else now + timedelta(seconds=outcome.wait_seconds)
    else:
        row.failures += 1
        row.failing_since, row.last_error = row.failing_since or now, outcome.error or "refused"
        row.enabled = row.enabled and not outcome.gone
        if outcome.again:
            seconds = routing.pause_seconds(row.failures, chance=random.random(), requested=outcome.wait_seconds)  # noqa: S311
            row.held_until = now + timedelta(seconds=seconds)
        if row.failures == routing.FAILING_AFTER or outcome.gone:
            tell(EntryKind.CHANNEL_FAILING, DRYDOCK, at=now, **subject, error=row.last_error, gone=outcome.gone)
    row.save(
        update_fields=[
            "last_ok_at", "failing_since", "failures", "last_error", "last_answer", "held_until", "enabled",
        ]
    )  # fmt: skip
