"""How often Azure is asked for one approval, and when again while it is busy."""

from datetime import UTC, datetime, timedelta
from zlib import crc32

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.orders.facts import OrderFacts, answered_at

EVER = datetime.min.replace(tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)
# Of one approval. Azure counts what it is asked, and so many are enough; the last ones are kept for the last minute
# before NotBefore.
MOST_POSTS = 20
KEPT_POSTS = 3
LAST_MINUTE = timedelta(seconds=60)
# While Azure is busy: after 1, 2, 4 ... seconds, up to this.
MOST_PAUSE = timedelta(seconds=30)
LAST_PAUSE = timedelta(seconds=15)


def is_spent(facts: EventFacts, orders: list[OrderFacts], now: datetime) -> bool:
    """Whether Azure has been asked as often as it may be by now."""
    kept = 0 if last_minute(facts) <= now else KEPT_POSTS
    return sum(order.asked for order in orders) >= MOST_POSTS - kept


def last_minute(facts: EventFacts) -> datetime:
    """When the last minute before NotBefore begins; never where none is stated."""
    if facts.not_before is None:
        return NEVER
    # Whatever somebody may have stated: the first day of the calendar has no day before it.
    return facts.not_before - LAST_MINUTE if facts.not_before.year > 1 else facts.not_before


def asked_again_at(facts: EventFacts, orders: list[OrderFacts]) -> datetime:
    """When Azure, if it was busy the last times, is asked again: later each time, with jitter, and not before it says
    itself; save that the last minute is for trying.
    """
    answered = sorted((order for order in orders if order.outcome), key=answered_at)
    times = next((number for number, order in enumerate(reversed(answered)) if not order.busy), len(answered))
    if not times:
        return EVER
    last = answered[-1]
    since, at_last = answered_at(last), last_minute(facts)
    jitter = 0.75 + crc32(str(last.order_id).encode()) % 512 / 1024
    pause = min(timedelta(seconds=2 ** min(times - 1, 10)), MOST_PAUSE) * jitter
    if since >= at_last:
        return since + min(pause, LAST_PAUSE)
    asked_for = max(pause, timedelta(seconds=last.retry_after_seconds or 0))
    return min(since + asked_for, max(since + min(pause, LAST_PAUSE), at_last))
