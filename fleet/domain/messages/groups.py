"""Which messages go out as one post, and when: a channel is told of a few things one by one, and of many together."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

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
class PostPlan:
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
    told: Mapping[int, int] | None = None,
) -> PostPlan:
    """`lately` are the posts of the channel within the last interval: each one's group, when it was made, and how many
    messages it carried. `told` says how many of these were of which set (row id).

    While they are few, each subject has a post of its own, else each service, else all is one. What is told as a group
    is told so once an interval, sooner where the last was small or a deadline is nearer, but never within `wait` of it.
    """
    room = ALONE - len(lately)
    subjects = _by(waiting, lambda one: one.subject)
    if len(subjects) <= room:
        return PostPlan(tuple(_batch(group) for group in subjects))
    first = _first_of_others(waiting, told or {}, posts=len(lately))
    if first:
        alone = {one.id for one in first}
        rest = [one for one in waiting if one.id not in alone]
        planned = plan(rest, lately, now=now, wait=wait, interval=interval)
        of_places = tuple(_batch(group) for group in _by(first, lambda one: one.place))
        return PostPlan((*of_places, *planned.batches), planned.later)
    services = _by(waiting, lambda one: one.service)
    if len(services) <= room:
        found = [_batch(group) for group in services]
    else:
        services, found = [list(waiting)], [Batch(EVERYTHING, tuple(one.id for one in waiting))]
    batches: list[Batch] = []
    later: dict[int, datetime] = {}
    for group, batch in zip(services, found, strict=True):
        last = max(((at, count) for name, at, count in lately if name and name == batch.group), default=None)
        leaves = now if last is None else _leaves(group, *last, now=now, wait=wait, interval=interval)
        if leaves <= now:
            batches.append(batch)
        else:
            later |= dict.fromkeys(batch.ids, leaves)
    return PostPlan(tuple(batches), later)


def _first_of_others(waiting: Sequence[Waiting], told: Mapping[int, int], *, posts: int) -> list[Waiting]:
    """Where one set makes most of the noise: what is first said of others, which does not wait for its digest. None of
    them where there are many: then it is a storm of the fleet.
    """
    noise: Counter[int] = Counter(told)
    noise.update(one.place for one in waiting if one.place is not None)
    loudest, count = noise.most_common(1)[0] if noise else (None, 0)
    if 2 * count <= noise.total():
        return []
    first = [one for one in waiting if one.place not in (None, loudest) and one.place not in told]
    return first if len({one.place for one in first}) <= 2 * ALONE - posts else []


def _leaves(
    group: Sequence[Waiting], last: datetime, carried: int, *, now: datetime, wait: timedelta, interval: timedelta
) -> datetime:
    ahead = [one.deadline - MARGIN for one in group if one.deadline is not None and one.deadline > now]
    return max(min([last + min(interval, carried * EACH), *ahead]), last + wait)


def _by(waiting: Sequence[Waiting], key: Callable[[Waiting], Key]) -> list[list[Waiting]]:
    found: dict[Key, list[Waiting]] = defaultdict(list)
    for one in waiting:
        found[key(one)].append(one)
    return list(found.values())


def _batch(group: Sequence[Waiting]) -> Batch:
    several = len({one.subject for one in group}) > 1
    # Those of no service belong together only as the rest does.
    return Batch(group[0].service or EVERYTHING if several else "", tuple(one.id for one in group))
