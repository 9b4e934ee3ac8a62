"""Grouping of notifications into deliveries, digests of storms, and health of channels."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from fleet.domain.event_types import Severity
from fleet.domain.shapes import grouped

# The router runs every two seconds, the web process after five.
ROUTED_WITHIN = timedelta(seconds=60)
# Undelivered messages raise an alarm for this long.
RECENT = timedelta(hours=1)


class NotificationHealth(StrEnum):
    """Health of notifications of the installation, from worst to best."""

    STANDS_STILL = "stands_still"
    ALL_FAIL = "all_fail"
    UNDELIVERED = "undelivered"
    # No notification channel is configured, as in a new installation.
    NO_CHANNEL = "nobody"
    SOME_FAIL = "some_fail"
    WORKS = "works"


# A digest: one message about a storm of events, which is edited while they continue.

# A digest takes further events for an hour and up to this number; after that, another one starts.
MOST = 1500


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """An open event in a digest. `deadline` is the time by which it must be decided."""

    event_type: str
    what: str
    severity: str
    started: bool
    waits: bool
    on_it: bool
    deadline: datetime | None = None


@dataclass(slots=True)
class Digest:
    """One message about a storm of events. `of` is their service, or empty for several services. `place` identifies the
    message in the channel.
    """

    of: str
    at: datetime
    events: dict[str, DigestEvent] = field(default_factory=dict)
    over: int = 0
    drill: bool = False
    place: Mapping[str, str] = field(default_factory=dict)

    def takes_in(self, *, now: datetime) -> bool:
        return bool(self.events) and now - self.at < timedelta(hours=1) and len(self.events) < MOST

    @property
    def total(self) -> int:
        return len(self.events) + self.over

    @property
    def types(self) -> list[tuple[str, int]]:
        """The number of open events by type, most frequent first."""
        return Counter(event.event_type for event in self.events.values()).most_common()

    @property
    def nearest(self) -> list[tuple[datetime, DigestEvent]]:
        """The events whose decisions are due next, with their deadlines."""
        due = [(event.deadline, event) for event in self.events.values() if event.waits and event.deadline]
        return sorted(due, key=lambda one: (one[0], one[1].what))[:5]

    @property
    def urgency(self) -> tuple[int, float]:
        """Sort key; a greater key is more urgent: severity first, then the next deadline."""
        ranks = [list(reversed(Severity)).index(Severity(event.severity)) for event in self.events.values()]
        nearest = self.nearest[0][0] if self.nearest else None
        return max(ranks, default=0), -nearest.timestamp() if nearest else float("-inf")

    def count(self, which: str) -> int:
        """Return the number of open events that have started (`started`), wait for a decision (`waits`), or are claimed
        (`on_it`).
        """
        return sum(bool(getattr(event, which)) for event in self.events.values())


def only(names: Iterable[str]) -> str:
    """Return the name if all are the same, else an empty string."""
    distinct = set(names)
    return distinct.pop() if len(distinct) == 1 else ""


# Grouping: few subjects are sent one by one, many together.

# Group of a delivery about all services.
EVERYTHING = "*"
# Up to this many deliveries of a channel within an interval are about one subject or one service each.
ALONE = 5
# The delivery after a digest waits this long for each of its messages, up to the interval.
EACH = timedelta(seconds=5)
# A digest is sent this long before the deadline, so that its readers can still decide.
MARGIN = timedelta(seconds=20)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is due. `deadline` is the time by which its subject must be decided."""

    id: int
    subject: str
    service: str
    deadline: datetime | None = None
    # The set of its event (row id); None without an event.
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one delivery (row ids in order). `group` is the service, `EVERYTHING` for several services, or empty
    for a single subject.
    """

    group: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """The batches to send now, and for all other messages (row ids) the time at which they are planned again."""

    batches: tuple[Batch, ...] = ()
    later: Mapping[int, datetime] = field(default_factory=dict, hash=False)


def plan(
    waiting: Sequence[Waiting],
    recent: Sequence[tuple[str, datetime, int]],
    *,
    now: datetime,
    wait: timedelta,
    interval: timedelta,
    sent: Mapping[int, int] | None = None,
) -> DeliveryPlan:
    """Plan the deliveries of a channel. `recent` describes the deliveries of the last `interval`: group, creation time
    and number of messages of each. `sent` counts their messages by set (row id).

    Each of a few subjects gets its own delivery. If there are more, each service gets one; if there are still more, one
    contains all. A group is sent once in an interval, or sooner after a small delivery or before a deadline, but never
    within `wait` after the last.
    """
    room = ALONE - len(recent)
    subjects = _by(waiting, lambda one: one.subject)
    if len(subjects) <= room:
        return DeliveryPlan(tuple(_batch(group) for group in subjects))
    first = _first_of_others(waiting, sent or {}, posts=len(recent))
    if first:
        alone = {one.id for one in first}
        rest = [one for one in waiting if one.id not in alone]
        planned = plan(rest, recent, now=now, wait=wait, interval=interval)
        of_places = tuple(_batch(group) for group in _by(first, lambda one: one.place))
        return DeliveryPlan((*of_places, *planned.batches), planned.later)
    services = _by(waiting, lambda one: one.service)
    if len(services) <= room:
        grouped = [_batch(group) for group in services]
    else:
        services, grouped = [list(waiting)], [Batch(EVERYTHING, tuple(one.id for one in waiting))]
    batches: list[Batch] = []
    later: dict[int, datetime] = {}
    for group, batch in zip(services, grouped, strict=True):
        last = max(((at, count) for name, at, count in recent if name and name == batch.group), default=None)
        leaves = now if last is None else _leaves(group, *last, now=now, wait=wait, interval=interval)
        if leaves <= now:
            batches.append(batch)
        else:
            later |= dict.fromkeys(batch.ids, leaves)
    return DeliveryPlan(tuple(batches), later)


def _first_of_others(waiting: Sequence[Waiting], sent: Mapping[int, int], *, posts: int) -> list[Waiting]:
    """Return the first messages of other sets if one set causes most messages, so that they need not wait for the
    digest. Return none if there are too many, because the storm then concerns the whole fleet.
    """
    noise: Counter[int] = Counter(sent)
    noise.update(one.place for one in waiting if one.place is not None)
    loudest, count = noise.most_common(1)[0] if noise else (None, 0)
    if 2 * count <= noise.total():
        return []
    first = [one for one in waiting if one.place not in (None, loudest) and one.place not in sent]
    return first if len({one.place for one in first}) <= 2 * ALONE - posts else []


def _leaves(
    group: Sequence[Waiting], last: datetime, carried: int, *, now: datetime, wait: timedelta, interval: timedelta
) -> datetime:
    ahead = [one.deadline - MARGIN for one in group if one.deadline is not None and one.deadline > now]
    return max(min([last + min(interval, carried * EACH), *ahead]), last + wait)


def _by(waiting: Sequence[Waiting], key: Callable[[Waiting], Key]) -> list[list[Waiting]]:
    return list(grouped((key(one), one) for one in waiting).values())


def _batch(group: Sequence[Waiting]) -> Batch:
    several = len({one.subject for one in group}) > 1
    # Messages without a service are grouped as `EVERYTHING`.
    return Batch(group[0].service or EVERYTHING if several else "", tuple(one.id for one in group))


# Health of a channel.


class ChannelHealth(StrEnum):
    """Health of a channel. `new`: nothing has been sent yet. `held`: the receiver requested a pause."""

    NEW = "new"
    WORKS = "works"
    HELD = "held"
    FAILS = "fails"
    OFF = "off"
