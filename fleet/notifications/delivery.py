"""Sending what waits for one channel: read again what is so now, drop what is stale, pack the rest, and send it."""

import importlib
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, tzinfo
from functools import partial
from types import ModuleType
from zoneinfo import ZoneInfo

import structlog
from django.conf import settings
from django.db import DatabaseError

from fleet.notifications import queue
from fleet.notifications.channel_services import UnreadableSecretsError
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome
from fleet.notifications.kinds import KINDS, MIRRORS
from fleet.notifications.news import MessageNews, news_of
from fleet.notifications.payloads import MessageWords
from fleet.notifications.routing import GROUP, TEST, DeliveryState
from fleet.notifications.text import group_words, test_words
from fleet.operations.clock import may_clock_decide
from fleet.wording.times import Form, Reader

# What goes wrong on our own side is tried so often; then it is this post that is odd.
MOST_OWN_FAILURES = 5
OWN_FAILURE = "own-failure"

Clock = Callable[[], datetime]

log = structlog.get_logger(__name__)


def kind_of(name: str) -> ModuleType:
    """The module of a kind of channel."""
    if name not in KINDS:
        raise LookupError(name)
    return importlib.import_module(f"fleet.notifications.channels.{name}")


def work_off(channel_id: int, *, clock: Clock, may_send: Callable[[], bool] = may_clock_decide) -> None:
    """Send everything that waits for this channel (row id) and is due, unless somebody else is at it."""
    if not queue.lease(channel_id, now=clock()):
        return
    try:
        try:
            kind, name, values = queue.usable(channel_id, now=clock())
        except UnreadableSecretsError:
            _leave_alone(channel_id, Outcome(ok=False, again=True, error="secrets-unreadable"), now=clock())
            return
        used = ChannelInUse(id=channel_id, kind=kind, name=name, values=values)
        if used.kind in MIRRORS:
            _mirror(used, clock=clock)
            return
        while may_send() and _next(used, clock=clock):
            pass
    finally:
        queue.release(channel_id)


def _next(channel: ChannelInUse, *, clock: Clock) -> bool:
    """Send one delivery; False where nothing is left, or the channel is to be left alone."""
    now = clock()
    found = queue.next_delivery(channel.id)
    if found is None:
        ids = queue.waiting(channel.id, now=now)
        if not ids:
            return False
        known = _known(ids, now=now)
        queue.drop({pk: why for pk in ids if (why := _stale(pk, known))}, now=now)
        queue.pack(channel.id, now=now)
        found = queue.next_delivery(channel.id)
    return found is not None and _deliver(channel, found, clock=clock)


def _deliver(channel: ChannelInUse, delivery: queue.Open, *, clock: Clock) -> bool:
    now = clock()
    known = _known(delivery.message_ids, now=now)
    stale = {pk: why for pk in delivery.message_ids if (why := _stale(pk, known))}
    told = [known[pk] for pk in delivery.message_ids if pk not in stale]
    if not told and delivery.moment != TEST:
        queue.settle_delivery(delivery.id, DeliveryState.DROPPED, now=now, why=next(iter(stale.values()), OWN_FAILURE))
        return True
    queue.leave_out(stale)
    number = queue.begin(delivery.id, channel_id=channel.id, now=now)
    send = partial(_send, channel, delivery, told, attempt=number, now=now)
    outcome = _whatever_happens(send, channel, again=number < MOST_OWN_FAILURES)
    return _settle(channel, delivery, number, outcome, now=clock())


def _send(
    channel: ChannelInUse, delivery: queue.Open, told: Collection[MessageNews], *, attempt: int, now: datetime
) -> Outcome:
    post = _post(channel, delivery, told, attempt=attempt, now=now)
    outcome: Outcome = kind_of(channel.kind).send(post, channel, now=now)
    return outcome


def _whatever_happens(call: Callable[[], Outcome], channel: ChannelInUse, *, again: bool) -> Outcome:
    """What became of a call; a mistake of our own is an outcome as well: the next post and other channels go on."""
    try:
        return call()
    except Exception as error:
        log.exception("channel.broken", channel=channel.name)
        return Outcome(ok=False, again=again, error=OWN_FAILURE, answer=type(error).__name__)


def _known(message_ids: Collection[int], *, now: datetime) -> dict[int, MessageNews]:
    """What these messages tell; without those that cannot be read, whatever is wrong with them."""
    try:
        return news_of(message_ids, now=now)
    except DatabaseError:
        raise
    except Exception:
        if len(message_ids) == 1:
            log.exception("message.broken", messages=list(message_ids))
            return {}
    return {pk: news for one in message_ids for pk, news in _known([one], now=now).items()}


def _stale(message_id: int, known: Mapping[int, MessageNews]) -> str:
    return known[message_id].stale if message_id in known else OWN_FAILURE


def _settle(channel: ChannelInUse, delivery: queue.Open, number: int, outcome: Outcome, *, now: datetime) -> bool:
    """Write down what became of it; whether the channel may be sent to at once."""
    queue.end_attempt(
        delivery.id, number, now=now, ok=outcome.ok, status=outcome.status, error=outcome.error, answer=outcome.answer
    )
    queue.keep_references(channel.id, outcome.references, now=now)
    if outcome.ok:
        queue.settle_delivery(delivery.id, DeliveryState.DELIVERED, now=now)
        queue.took(channel.id, now=now, answer=outcome.answer, wait_seconds=outcome.wait_seconds)
        return outcome.wait_seconds is None
    again = outcome.again and not outcome.gone and delivery.moment != TEST and not queue.too_old(delivery.id, now=now)
    state = DeliveryState.QUEUED if again else DeliveryState.GIVEN_UP
    queue.settle_delivery(delivery.id, state, now=now, why="" if again else outcome.error or "refused")
    _leave_alone(channel.id, outcome, now=now)
    return not outcome.again and not outcome.gone


def _leave_alone(channel_id: int, outcome: Outcome, *, now: datetime) -> None:
    queue.failed(
        channel_id,
        now=now,
        error=outcome.error or "refused",
        answer=outcome.answer,
        hold=outcome.again,
        wait_seconds=outcome.wait_seconds,
        gone=outcome.gone,
    )


def _post(
    channel: ChannelInUse, delivery: queue.Open, told: Collection[MessageNews], *, attempt: int, now: datetime
) -> Delivery:
    reader = Reader(_zone(channel), Form.MESSAGE, now)
    items = tuple(Item(news, reader) for news in told)
    words = _words(items, reader)
    subjects = list(dict.fromkeys(item.news.subject for item in items))
    return Delivery(
        id=str(delivery.id),
        attempt=attempt,
        moment=TEST if not items else items[0].news.moment if len(items) == 1 else GROUP,
        at=now,
        items=items,
        words=words,
        url=settings.BASE_URL.rstrip("/") + words.path,
        references=queue.references(channel.id, [*subjects, GROUP]),
    )


def _words(items: Collection[Item], reader: Reader) -> MessageWords:
    if not items:
        return test_words(reader)
    if len(items) == 1:
        return next(iter(items)).words
    return group_words([item.news for item in items], reader)


def _zone(channel: ChannelInUse) -> tzinfo:
    try:
        return ZoneInfo(str(channel.values.get("time_zone") or "UTC"))
    except (KeyError, ValueError, OSError):
        return UTC


def _mirror(channel: ChannelInUse, *, clock: Clock) -> None:
    now = clock()
    outcome = _whatever_happens(lambda: kind_of(channel.kind).mirror(channel, now=now), channel, again=True)
    now = clock()
    queue.keep_references(channel.id, outcome.references, now=now)
    queue.mirrored(channel.id, now=now)
    if outcome.ok:
        queue.took(channel.id, now=now, answer=outcome.answer, wait_seconds=outcome.wait_seconds)
    else:
        _leave_alone(channel.id, outcome, now=now)
