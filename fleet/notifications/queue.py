"""Delivery queue: channels with something to send, their leases, and grouping into deliveries.

The lease on a channel keeps the order: a channel gets its notifications in the order in which things happened. A sender
that dies leaves its delivery SENDING; after the lease it is tried again under the same id.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Q

from fleet.domain.clock import AHEAD
from fleet.notifications.channels import kinds_where
from fleet.notifications.grouping import Waiting, plan
from fleet.notifications.models import Channel, Message, MessageDelivery
from fleet.notifications.routing import GROUP, LONGEST_ASKED_SECONDS, MessageState

# The sender renews its lease every `RENEW_SECONDS`; after the lease expires, another sender continues.
LEASE = timedelta(seconds=15)
RENEW_SECONDS = 5.0
# Messages that one round of a channel handles; the next round handles the rest.
MOST = 2000
# Interval at which a channel that mirrors open events is renewed.
MIRROR_EVERY = timedelta(seconds=30)


def schedule() -> list[tuple[int, datetime]]:
    """Return the channels (row ids) with something to send or to mirror, and when they are due, after their lease and
    pause.
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
            [kinds_where(messages=False), MIRROR_EVERY.total_seconds()],
        )
        rows: list[tuple[int, datetime]] = cursor.fetchall()
    return rows


def due_channels(*, now: datetime) -> list[int]:
    """Return the channels (row ids) without a sender that are due."""
    return [channel_id for channel_id, due_at in schedule() if due_at <= now]


def lease(channel_id: int, *, now: datetime) -> bool:
    """Take the lease of a channel (row id); return whether it was free."""
    free = Q(leased_until=None) | Q(leased_until__lte=now)
    rows = Channel.objects.filter(free, pk=channel_id, enabled=True, deleted_at=None)
    return rows.update(leased_until=now + LEASE) == 1


def renew(channel_ids: Collection[int], *, now: datetime) -> None:
    """Extend the leases of channels that this process sends to."""
    rows = Channel.objects.filter(pk__in=list(channel_ids), leased_until__isnull=False)
    rows.update(leased_until=now + LEASE)


def release(channel_id: int) -> None:
    Channel.objects.filter(pk=channel_id).update(leased_until=None)


def mirror_soon() -> None:
    """Make channels that mirror open events due at once."""
    Channel.objects.filter(kind__in=kinds_where(messages=False), enabled=True, deleted_at=None).update(mirrored_at=None)


def waiting(channel_id: int, *, now: datetime) -> list[int]:
    """Return the due messages (row ids) of a channel, oldest first."""
    rows = Message.objects.filter(channel=channel_id, state=MessageState.WAITING.value, due_at__lte=now)
    return list(rows.order_by("id").values_list("id", flat=True)[:MOST])


def drop(reasons: Mapping[int, str]) -> None:
    """Drop stale messages (row ids), each with the code of its reason."""
    for code in set(reasons.values()):
        rows = Message.objects.filter(pk__in=[pk for pk, reason in reasons.items() if reason == code])
        rows.update(state=MessageState.DROPPED.value, why=code, delivery=None)


@transaction.atomic
def pack(channel_id: int, *, now: datetime) -> None:
    """Create deliveries of due messages, as `fleet.notifications.grouping` plans them."""
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
    later: dict[datetime, list[int]] = defaultdict(list)
    for message_id, at in planned.later.items():
        later[at].append(message_id)
    for at, ids in later.items():
        Message.objects.filter(pk__in=ids).update(due_at=at)


def repair(*, now: datetime) -> None:
    """Reset times in the future that a wrong clock wrote: of messages, deliveries, leases and pauses."""
    ahead = Q(created_at__gt=now + AHEAD)
    wrong = Message.objects.filter(ahead, state=MessageState.WAITING.value)
    # Messages of escalation steps keep their own due time.
    wrong.filter(only_if="").update(due_at=now, created_at=now)
    wrong.update(created_at=now)
    MessageDelivery.objects.filter(ahead).update(created_at=now, due_at=now)
    leased, held = now + LEASE + AHEAD, now + timedelta(seconds=LONGEST_ASKED_SECONDS) + AHEAD
    Channel.objects.filter(leased_until__gt=leased).update(leased_until=None)
    Channel.objects.filter(held_until__gt=held).update(held_until=None)
    Channel.objects.filter(mirrored_at__gt=now + AHEAD).update(mirrored_at=None)
