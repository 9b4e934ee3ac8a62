"""Sending to one channel: drop what is stale, group the rest, render the current state, send, record the result."""

import importlib
import random
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F

from fleet.domain.actor import DRYDOCK
from fleet.domain.timeline import EntryKind
from fleet.notifications import queue
from fleet.notifications.channel_services import in_use
from fleet.notifications.channels import KINDS
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome, reader_of
from fleet.notifications.models import (
    Channel,
    DeliveryAttempt,
    Message,
    MessageDelivery,
    Reference,
    UnreadableSecretsError,
)
from fleet.notifications.news import MessageNews, news_of
from fleet.notifications.routing import (
    FAILING_AFTER,
    GIVE_UP_AFTER,
    GROUP,
    OF_DELIVERY,
    TEST,
    DeliveryState,
    delivery_sources,
    pause_seconds,
)
from fleet.notifications.text import group_words, test_words
from fleet.operations.clock import may_clock_decide
from fleet.operations.timeline.entries import tell

# Drydock's own errors are retried this often; then the delivery is given up.
MOST_OWN_FAILURES = 5
OWN_FAILURE = "own-failure"
# Characters kept of a receiver's answer.
MOST_ANSWER = 500
OPEN = [DeliveryState.QUEUED.value, DeliveryState.SENDING.value]

Clock = Callable[[], datetime]

log = structlog.get_logger(__name__)


def kind_of(name: str) -> ModuleType:
    """Return the module of a kind of channel."""
    if name not in KINDS:
        raise LookupError(name)
    return importlib.import_module(f"fleet.notifications.channels.{name}")


def work_off(channel_id: int, *, clock: Clock, may_send: Callable[[], bool] = may_clock_decide) -> None:
    """Send everything that is due for this channel (row id), unless another sender has the lease."""
    if not queue.lease(channel_id, now=clock()):
        return
    try:
        row = Channel.objects.get(pk=channel_id)
        try:
            values = in_use(row, now=clock())
        except UnreadableSecretsError:
            record_health(channel_id, Outcome(ok=False, again=True, error="secrets-unreadable"), now=clock())
            return
        channel = ChannelInUse(id=channel_id, kind=row.kind, name=row.name, values=values)
        if not KINDS[channel.kind].messages:
            _mirror(channel, clock=clock)
            return
        while may_send() and _send_next(channel, clock=clock):
            pass
    finally:
        queue.release(channel_id)


def _mirror(channel: ChannelInUse, *, clock: Clock) -> None:
    mirror = partial(kind_of(channel.kind).mirror, channel, now=clock())
    outcome = _without_raising(mirror, channel, again=True)
    keep_references(channel.id, outcome.references, now=clock())
    Channel.objects.filter(pk=channel.id).update(mirrored_at=clock())
    record_health(channel.id, outcome, now=clock())


def _send_next(channel: ChannelInUse, *, clock: Clock) -> bool:
    """Send one delivery; return whether the next may follow at once."""
    now = clock()
    # This sender has the lease, so no other one sends it.
    unsettled = MessageDelivery.objects.filter(channel=channel.id, state__in=OPEN).order_by("created_at", "id")
    delivery = unsettled.first()
    if delivery is None:
        ids = queue.waiting(channel.id, now=now)
        if not ids:
            return False
        queue.drop(_stale(ids, _news(ids, now=now)))
        queue.pack(channel.id, now=now)
        delivery = unsettled.first()
        if delivery is None:
            return False
    ids = list(Message.objects.filter(delivery=delivery).order_by("id").values_list("id", flat=True))
    news = _news(ids, now=now)
    stale = _stale(ids, news)
    if len(stale) == len(ids) and delivery.moment != TEST:
        settle(delivery.pk, DeliveryState.DROPPED, now=now, why=next(iter(stale.values()), OWN_FAILURE))
        return True
    queue.drop(stale)
    number = _begin(delivery, now=now)

    def send() -> Outcome:
        items = [news[pk] for pk in ids if pk not in stale]
        outcome: Outcome = kind_of(channel.kind).send(
            _rendered(channel, delivery, items, attempt=number, now=now), channel, now=now
        )
        return outcome

    outcome = _without_raising(send, channel, again=number < MOST_OWN_FAILURES)
    return _record(channel, delivery, number, outcome, now=clock())


def _news(message_ids: Collection[int], *, now: datetime) -> dict[int, MessageNews]:
    """Return the content of these messages from the current state; without those that cannot be read."""
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
    """Return the messages that are no longer worth sending, each with the reason."""
    reasons = {pk: news[pk].stale if pk in news else OWN_FAILURE for pk in message_ids}
    return {pk: reason for pk, reason in reasons.items() if reason}


@transaction.atomic
def _begin(delivery: MessageDelivery, *, now: datetime) -> int:
    """Record an attempt before it is made, and renew the lease; return its number."""
    MessageDelivery.objects.filter(pk=delivery.pk, state__in=delivery_sources(DeliveryState.SENDING)).update(
        state=DeliveryState.SENDING.value, attempts=F("attempts") + 1
    )
    number: int = MessageDelivery.objects.values_list("attempts", flat=True).get(pk=delivery.pk)
    # The sender of an earlier attempt has died, so its result is unknown.
    DeliveryAttempt.objects.filter(delivery=delivery, ended_at=None).update(ended_at=now, error="unknown")
    DeliveryAttempt.objects.create(delivery=delivery, number=number, at=now)
    queue.renew([delivery.channel_id], now=now)
    return number


def _rendered(
    channel: ChannelInUse, delivery: MessageDelivery, news: Collection[MessageNews], *, attempt: int, now: datetime
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
        attempt=attempt,
        moment=TEST if not items else items[0].news.moment if len(items) == 1 else GROUP,
        at=now,
        items=items,
        words=words,
        url=settings.BASE_URL.rstrip("/") + words.path,
        references=dict(references.values_list("subject", "value")),
    )


def _without_raising(call: Callable[[], Outcome], channel: ChannelInUse, *, again: bool) -> Outcome:
    """Return the result of a call, also of one that raises, so that other deliveries and channels continue."""
    try:
        return call()
    except Exception as error:
        log.exception("channel.broken", channel=channel.name)
        return Outcome(ok=False, again=again, error=OWN_FAILURE, answer=type(error).__name__)


def _record(channel: ChannelInUse, delivery: MessageDelivery, number: int, outcome: Outcome, *, now: datetime) -> bool:
    """Record the result of an attempt; return whether the channel may be sent to at once."""
    DeliveryAttempt.objects.filter(delivery=delivery, number=number).update(
        ended_at=now, ok=outcome.ok, status=outcome.status, error=outcome.error, answer=outcome.answer[:MOST_ANSWER]
    )
    keep_references(channel.id, outcome.references, now=now)
    if outcome.ok:
        settle(delivery.pk, DeliveryState.DELIVERED, now=now)
    elif (
        outcome.again
        and not outcome.gone
        and delivery.moment != TEST
        and MessageDelivery.objects.filter(pk=delivery.pk, created_at__gt=now - GIVE_UP_AFTER).exists()
    ):
        settle(delivery.pk, DeliveryState.QUEUED, now=now)
    else:
        settle(delivery.pk, DeliveryState.GIVEN_UP, now=now, why=outcome.error or "refused")
    record_health(channel.id, outcome, now=now)
    return outcome.wait_seconds is None if outcome.ok else not (outcome.again or outcome.gone)


@transaction.atomic
def settle(delivery_id: UUID, state: DeliveryState, *, now: datetime, why: str = "") -> None:
    """Move a delivery, and its messages with it. QUEUED: it is tried again."""
    settled_at = None if state is DeliveryState.QUEUED else now
    rows = MessageDelivery.objects.filter(pk=delivery_id, state__in=delivery_sources(state))
    if rows.update(state=state.value, settled_at=settled_at, why=why):
        Message.objects.filter(delivery=delivery_id).update(state=OF_DELIVERY[state].value, why=why)


def keep_references(channel_id: int, references: Mapping[str, Mapping[str, object] | None], *, now: datetime) -> None:
    """Keep the identifiers that a channel uses for these subjects; None deletes them."""
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
    """Record a channel's answer: its health, how long nothing is sent to it, and that it fails or works again."""
    row = Channel.objects.select_for_update(no_key=True).get(pk=channel_id)
    subject = {"channel_id": row.pk, "name": row.name, "channel_kind": row.kind}
    row.last_answer = outcome.answer
    if outcome.ok:
        if row.failures >= FAILING_AFTER:
            tell(EntryKind.CHANNEL_WORKS, DRYDOCK, at=now, **subject)
        row.last_ok_at, row.failing_since, row.failures, row.last_error = now, None, 0, ""
        row.held_until = None if outcome.wait_seconds is None else now + timedelta(seconds=outcome.wait_seconds)
    else:
        row.failures += 1
        row.failing_since, row.last_error = row.failing_since or now, outcome.error or "refused"
        row.enabled = row.enabled and not outcome.gone
        if outcome.again:
            seconds = pause_seconds(row.failures, chance=random.random(), asked=outcome.wait_seconds)  # noqa: S311
            row.held_until = now + timedelta(seconds=seconds)
        if row.failures == FAILING_AFTER or outcome.gone:
            tell(EntryKind.CHANNEL_FAILING, DRYDOCK, at=now, **subject, error=row.last_error, gone=outcome.gone)
    row.save(
        update_fields=[
            "last_ok_at", "failing_since", "failures", "last_error", "last_answer", "held_until", "enabled",
        ]
    )  # fmt: skip
