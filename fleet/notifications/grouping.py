"""Grouping of notifications into deliveries, digests of storms, and health of channels."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from fleet.domain.clock import seconds_since
from fleet.domain.event_types import Severity

# The router looks every two seconds, the web process after five.
ROUTED_WITHIN = timedelta(seconds=60)
# What reached nobody is an alarm for so long.
LATELY = timedelta(hours=1)


class NotificationHealth(StrEnum):
    """From worst to best. `NOBODY`: there is no channel, as in an installation that is new."""

    STANDS_STILL = "stands_still"
    ALL_FAIL = "all_fail"
    UNDELIVERED = "undelivered"
    NOBODY = "nobody"
    SOME_FAIL = "some_fail"
    WORKS = "works"


@dataclass(frozen=True, slots=True)
class NotificationFacts:
    """`channels` that are switched on, and how many of them fail; `undelivered` messages that reached nobody lately."""

    channels: int
    failing: int
    undelivered: int
    routed_at: datetime | None


def notification_health(telling: NotificationFacts, *, now: datetime) -> NotificationHealth:
    """The worst that is so."""
    if not telling.channels:
        return NotificationHealth.NOBODY
    if seconds_since(telling.routed_at, now=now) > ROUTED_WITHIN.total_seconds():
        return NotificationHealth.STANDS_STILL
    if telling.failing == telling.channels:
        return NotificationHealth.ALL_FAIL
    if telling.undelivered:
        return NotificationHealth.UNDELIVERED
    return NotificationHealth.SOME_FAIL if telling.failing else NotificationHealth.WORKS


# A digest: one message that stands for a storm of events, and is edited while they go on.

# It takes in what else comes for so long, and so many; then there is another one.
OPEN_FOR = timedelta(hours=1)
MOST = 1500
NEAREST = 5


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """One event of a digest, while it is open. `deadline`: by when something has to be decided about it."""

    event_type: str
    what: str
    severity: str
    started: bool
    waits: bool
    on_it: bool
    deadline: datetime | None = None


@dataclass(slots=True)
class Digest:
    """One message for a storm of events. `of` is their service, empty where there are several; `place` identifies the
    channel's message.
    """

    of: str
    at: datetime
    events: dict[str, DigestEvent] = field(default_factory=dict)
    over: int = 0
    drill: bool = False
    place: Mapping[str, str] = field(default_factory=dict)

    def takes_in(self, *, now: datetime) -> bool:
        return bool(self.events) and now - self.at < OPEN_FOR and len(self.events) < MOST

    def end(self, subject: str) -> None:
        if self.events.pop(subject, None) is not None:
            self.over += 1

    @property
    def total(self) -> int:
        return len(self.events) + self.over

    @property
    def types(self) -> list[tuple[str, int]]:
        """How many of each type are open, most first."""
        return Counter(event.event_type for event in self.events.values()).most_common()

    @property
    def nearest(self) -> list[tuple[datetime, DigestEvent]]:
        """Those about which somebody has to decide next, each with by when."""
        due = [(event.deadline, event) for event in self.events.values() if event.waits and event.deadline]
        return sorted(due, key=lambda one: (one[0], one[1].what))[:NEAREST]

    @property
    def urgency(self) -> tuple[int, float]:
        """Greater is worse: severity first, then how near the next deadline is."""
        ranks = [list(reversed(Severity)).index(Severity(event.severity)) for event in self.events.values()]
        nearest = self.nearest[0][0] if self.nearest else None
        return max(ranks, default=0), -nearest.timestamp() if nearest else float("-inf")

    def count(self, which: str) -> int:
        """How many open ones have started, wait for a decision (`waits`), or have somebody on them (`on_it`)."""
        return sum(bool(getattr(event, which)) for event in self.events.values())


def one_service(services: Iterable[str]) -> str:
    """The service that they all are of; empty where there are several."""
    names = set(services)
    return names.pop() if len(names) == 1 else ""


# Grouping: few subjects are sent one by one, many together.

# What a post carries that tells of everything at once.
EVERYTHING = "*"
# So many posts of a channel within an interval tell of one thing each, or of one service.
ALONE = 5
# The next one after a digest waits so long for each message that it carried, up to the interval.
EACH = timedelta(seconds=5)
# A digest leaves early, so that whoever reads it can still decide.
MARGIN = timedelta(seconds=20)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message whose time has come. `deadline`: by when something has to be decided about its subject."""

    id: int
    subject: str
    service: str
    deadline: datetime | None = None
    # The set of its event (row id); None where it is about no event.
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages (row ids, in order) of one post. `group` is the service, `EVERYTHING`, or empty for one subject."""

    group: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """What goes out now, and when the rest is looked at again (by row id)."""

    batches: tuple[Batch, ...] = ()
    later: Mapping[int, datetime] = field(default_factory=dict, hash=False)


def plan(
    waiting: Sequence[Waiting],
    lately: Sequence[tuple[str, datetime, int]],
    *,
    now: datetime,
    wait: timedelta,
    interval: timedelta,
    sent: Mapping[int, int] | None = None,
) -> DeliveryPlan:
    """`lately` are the posts of the channel within the last interval: each one's group, when it was made, and how many
    messages it carried. `sent` counts these messages by set (row id).

    Few subjects have a delivery each, else services have, else all is one. A group is sent once an interval; sooner
    where the last was small or a deadline is nearer, but never within `wait` of it.
    """
    room = ALONE - len(lately)
    subjects = _by(waiting, lambda one: one.subject)
    if len(subjects) <= room:
        return DeliveryPlan(tuple(_batch(group) for group in subjects))
    first = _first_of_others(waiting, sent or {}, posts=len(lately))
    if first:
        alone = {one.id for one in first}
        rest = [one for one in waiting if one.id not in alone]
        planned = plan(rest, lately, now=now, wait=wait, interval=interval)
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
        last = max(((at, count) for name, at, count in lately if name and name == batch.group), default=None)
        leaves = now if last is None else _leaves(group, *last, now=now, wait=wait, interval=interval)
        if leaves <= now:
            batches.append(batch)
        else:
            later |= dict.fromkeys(batch.ids, leaves)
    return DeliveryPlan(tuple(batches), later)


def _first_of_others(waiting: Sequence[Waiting], sent: Mapping[int, int], *, posts: int) -> list[Waiting]:
    """Return the first messages of other sets where one set has most of them: they do not wait for its digest. None
    where there are many: then it is a storm of the fleet.
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
    groups: dict[Key, list[Waiting]] = defaultdict(list)
    for one in waiting:
        groups[key(one)].append(one)
    return list(groups.values())


def _batch(group: Sequence[Waiting]) -> Batch:
    several = len({one.subject for one in group}) > 1
    # Those of no service belong together only as the rest does.
    return Batch(group[0].service or EVERYTHING if several else "", tuple(one.id for one in group))


# How a channel does, as one word.


class ChannelHealth(StrEnum):
    """`new`: nothing was sent yet. `held`: nothing is sent until a time, since it asked for that."""

    NEW = "new"
    WORKS = "works"
    HELD = "held"
    FAILS = "fails"
    OFF = "off"
