"""The fold: an event's state, computed from what the machines of its set say of it.

Pure: the same witnesses and the same `now` give the same result, whatever the order in which reports arrived.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.events import DELETING_TYPES
from fleet.domain.states import Certainty, EndedAs, EventStatus, Presence

# What the database's integers hold: 68 years. A NotBefore in the year 9999 is odd, but no reason to keep nothing.
MOST_SECONDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Word:
    """One machine's merged word about one event; the columns of a sighting. Times are corrected, in UTC."""

    first_at: datetime
    listed_at: datetime
    started_at: datetime | None = None
    listed_incarnation: int | None = None
    spelled: str = ""
    status: str = ""
    event_type: str = ""
    resource_type: str = ""
    source: str = ""
    description: str = ""
    duration_seconds: int | None = None
    not_before: datetime | None = None
    resources: tuple[str, ...] = ()
    gone_at: datetime | None = None
    gone_incarnation: int | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Witness:
    """One machine of the event's set: how present it is, its last good poll, and its word, if it has one."""

    machine_id: int
    name: str
    presence: Presence
    last_poll_at: datetime | None = None
    word: Word | None = None
    update_domain: int | None = None

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE

    @property
    def lists_it(self) -> bool:
        return self.word is not None and not self.word.foreign and self.word.gone_at is None

    @property
    def last_listing(self) -> datetime | None:
        """The last time at which this machine is known to have listed it: each poll says so until it is gone."""
        if self.word is None or self.word.foreign:
            return None
        if self.lists_it and self.last_poll_at is not None:
            return max(self.word.listed_at, self.last_poll_at)
        return self.word.listed_at


@dataclass(frozen=True, slots=True)
class Folded:
    """The event as its witnesses have it."""

    status: EventStatus
    ended_as: EndedAs | None
    certainty: Certainty | None
    # A live machine lists it, or, once ended, could tell that it is gone.
    watched: bool
    first_seen_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    event_type: str
    resource_type: str
    source: str
    description: str
    duration_seconds: int | None
    not_before: datetime | None
    resources: tuple[str, ...]

    @property
    def versioned(self) -> tuple[object, ...]:
        """What `version` counts the changes of."""
        return (self.status, self.not_before, self.resources, self.event_type, self.source, self.duration_seconds)

    @property
    def notice_seconds(self) -> int | None:
        """Seconds from the first sighting to NotBefore; None when it was never announced ahead."""
        if self.not_before is None:
            return None
        seconds = round((self.not_before - self.first_seen_at).total_seconds())
        return min(max(0, seconds), MOST_SECONDS)


def _newest(words: list[tuple[int, Word]], field: str) -> object:
    # Stated beats not stated, Started beats Scheduled, else the last by corrected time; the machine settles a tie.
    best: tuple[bool, datetime, int] | None = None
    value: object = None
    for machine_id, word in words:
        stated = getattr(word, field)
        if stated is None or stated == "" or stated == ():
            continue
        rank = (word.status == "Started", word.listed_at, machine_id)
        if best is None or rank > best:
            best, value = rank, stated
    return value


def fold(witnesses: Iterable[Witness], *, now: datetime, was_ended: bool = False) -> Folded | None:
    """Compute the event's state; None when nobody of its set has a word about it.

    Ended needs: no live machine lists it, one that had listed it no longer does, and somebody as well as every live
    machine of the set had a good poll since the last listing that does not list it. Silence alone ends nothing, save
    for the machine that a Preempt or Terminate deleted: that is inferred once all who list it are silent and NotBefore
    is past. What has ended (`was_ended`) stays so until a live machine lists it: that a machine is back whose last poll
    is old, or that a witness has died since, is no news of the event.
    """
    everyone = list(witnesses)
    words = [(w.machine_id, w.word) for w in everyone if w.word is not None and not w.word.foreign]
    if not words:
        return None
    started_times = [word.started_at for _, word in words if word.started_at is not None]
    started_at = min(started_times) if started_times else None
    not_before = _newest(words, "not_before")
    event_type = _newest(words, "event_type") or ""
    live = [w for w in everyone if w.live]
    listing = [w for w in everyone if w.lists_it]
    gone_times = [word.gone_at for _, word in words if word.gone_at is not None]
    last_listing = max(w.last_listing for w in everyone if w.last_listing is not None)

    status = EventStatus.STARTED if started_at is not None else EventStatus.SCHEDULED
    ended_as: EndedAs | None = None
    certainty: Certainty | None = None
    ended_at: datetime | None = None
    watched = any(w.live for w in listing)

    unheard = [w for w in live if w.last_poll_at is None or w.last_poll_at < last_listing]
    # Whoever looked after the last listing and did not see it bears witness, also when it has died since.
    saw_it_gone = any(
        not w.lists_it and w.last_poll_at is not None and w.last_poll_at >= last_listing for w in everyone
    )
    if gone_times and not watched and (was_ended or (not unheard and saw_it_gone)):
        status, watched = EventStatus.ENDED, True
        ended_at = max(gone_times)
        ended_as, certainty = _ending(words, started_at)
    elif (
        listing
        and event_type in DELETING_TYPES
        and not watched
        and (was_ended or all(w.presence in (Presence.SILENT, Presence.GONE) for w in listing))
        and (not_before is None or (isinstance(not_before, datetime) and not_before <= now))
    ):
        status = EventStatus.ENDED
        ended_as, certainty = EndedAs.MACHINE_DELETED, Certainty.INFERRED
        ended_at = not_before if isinstance(not_before, datetime) else last_listing

    return Folded(
        status=status,
        ended_as=ended_as,
        certainty=certainty,
        watched=watched,
        first_seen_at=min(word.first_at for _, word in words),
        started_at=started_at,
        ended_at=ended_at,
        event_type=str(event_type),
        resource_type=str(_newest(words, "resource_type") or ""),
        source=str(_newest(words, "source") or ""),
        description=str(_newest(words, "description") or ""),
        duration_seconds=_as_int(_newest(words, "duration_seconds")),
        not_before=not_before if isinstance(not_before, datetime) else None,
        resources=_as_names(_newest(words, "resources")),
    )


def _as_int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _as_names(value: object) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, tuple) else ()


def _ending(words: list[tuple[int, Word]], started_at: datetime | None) -> tuple[EndedAs, Certainty]:
    if started_at is not None:
        return EndedAs.COMPLETED, Certainty.SEEN
    # Gone from Scheduled. Incarnations count changes: without a number left out, no Started can have been missed.
    for _, word in words:
        if word.gone_at is None or word.listed_incarnation is None or word.gone_incarnation is None:
            continue
        if word.gone_incarnation == word.listed_incarnation + 1:
            before = word.not_before is not None and word.gone_at < word.not_before
            return EndedAs.CANCELLED, Certainty.SEEN if before else Certainty.INFERRED
    return EndedAs.CANCELLED_OR_MISSED, Certainty.INFERRED
