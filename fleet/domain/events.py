"""State of a scheduled event, computed from the reports of the machines of its set; and advice about the event."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.event_types import DELETING_TYPES, is_advice
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import NEVER, SOON, first_after
from fleet.domain.states import Certainty, EndedAs, EventStatus, Presence

# The consequence of not acting, and Microsoft's advice for an event.

# Ordinary maintenance is announced minutes ahead.
FAR_AHEAD = timedelta(hours=24)


def advice(event: Any, *, now: datetime) -> Reason | str:
    """Return Microsoft's advice about an event (its row or read model); an empty text if there is none.

    Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023.
    """
    if event.status != EventStatus.SCHEDULED:
        return ""
    if is_advice(event.event_type):
        return Reason("advice-spot-rebalance")
    if event.source == "User":
        return Reason("advice-own-event")
    is_far_ahead = event.not_before is not None and event.not_before - now > FAR_AHEAD
    return Reason("advice-hardware-fails") if is_far_ahead else ""


def default_outcome(event: Any, *, now: datetime) -> Reason:
    """Return what happens to an event (its row) without a decision. Azure may start a real event from NotBefore on; a
    drill starts automatically at NotBefore.
    """
    if event.status == EventStatus.ENDED:
        return Reason("event-over")
    if is_advice(event.event_type):
        return Reason("advice-starts-nothing")
    if event.status == EventStatus.STARTED:
        return Reason("event-runs")
    if event.not_before is None:
        return Reason("starts-any-moment")
    if event.drill:
        return Reason("drill-starts", at=event.not_before)
    if event.not_before <= now:
        return Reason("starts-overdue", at=event.not_before)
    return Reason("starts-after", at=event.not_before, watched=event.watched)


# What Azure states about an event: each field once, for documents, sightings and the event's state alike.


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStatement:
    """What Azure states about an event. A field that Azure omitted is `""`, `None` or `()`.

    `not_before` is in UTC; `duration_seconds` -1 means unknown.
    """

    event_type: str = ""
    resource_type: str = ""
    source: str = ""
    description: str = ""
    duration_seconds: int | None = None
    not_before: datetime | None = None
    resources: tuple[str, ...] = ()


# The value of each field while it is not stated.
NOT_STATED: dict[str, Any] = asdict(EventStatement())


# An event's state, computed from the reports of its set's machines.

# What the database's integers hold: 68 years. A NotBefore in the year 9999 is odd, but no reason to keep nothing.
MOST_SECONDS = 2**31 - 1
# Our own clocks differ by less.
AHEAD = timedelta(seconds=60)
VERSIONED = ("not_before", "resources", "event_type", "source", "duration_seconds")


@dataclass(frozen=True, slots=True)
class MergedListing(EventStatement):
    """One event as one machine listed it, merged from all documents of that machine: the columns of a sighting.

    Times are in UTC, corrected by the machine's clock offset.
    """

    first_at: datetime
    listed_at: datetime
    started_at: datetime | None = None
    listed_incarnation: int | None = None
    spelled: str = ""
    status: str = ""
    gone_at: datetime | None = None
    gone_incarnation: int | None = None
    foreign: bool = False

    @property
    def is_gone_in_doubt(self) -> bool:
        """Whether the document without the event may be an old one, because its incarnation is not higher than that of
        the last document with the event.
        """
        listed, gone = self.listed_incarnation, self.gone_incarnation
        return self.gone_at is not None and listed is not None and gone is not None and gone <= listed


@dataclass(frozen=True)
class MachineBasics:
    """Facts about a machine that do not depend on an event. `last_poll_at` also counts the newest document as a poll.

    `revoked_at` is since when its reports do not count.
    """

    machine_id: int
    name: str
    presence: Presence
    fault_domain: int | None = None
    update_domain: int | None = None
    revoked_at: datetime | None = None
    last_heard_at: datetime | None = None
    last_poll_at: datetime | None = None

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE


@dataclass(frozen=True)
class Witness(MachineBasics):
    """One machine of the event's set with its listing of the event, if it ever listed it.

    The listing of a revoked machine (`revoked_at`) does not count.
    """

    listing: MergedListing | None = None

    @property
    def lists_it(self) -> bool:
        return self.listing is not None and not self.listing.foreign and self.listing.gone_at is None

    def last_listing(self, now: datetime) -> datetime | None:
        """Return the last time at which this machine is known to have listed the event; None if it never did.

        While the machine lists the event, each poll confirms it. A time in the future, from a wrong clock, is ignored.
        """
        if self.listing is None or self.listing.foreign:
            return None
        if self.listing.gone_at is not None:
            return min(self.listing.listed_at, self.listing.gone_at)
        times = [time for time in (self.listing.listed_at, self.last_poll_at) if time is not None]
        return max((time for time in times if time <= now + AHEAD), default=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedState(EventStatement):
    """State of an event, computed from the reports of the machines of its set."""

    status: EventStatus
    ended_as: EndedAs | None = None
    certainty: Certainty | None = None
    # A live machine lists it, or, once ended, can show that it is gone.
    watched: bool
    first_seen_at: datetime
    started_at: datetime | None
    ended_at: datetime | None = None

    @property
    def notice_seconds(self) -> int | None:
        """Seconds from the first sighting to NotBefore, at least 0; None if Azure stated no NotBefore."""
        if self.not_before is None:
            return None
        seconds = round((self.not_before - self.first_seen_at).total_seconds())
        return min(max(0, seconds), MOST_SECONDS)


def versioned(event: Any) -> dict[str, Any]:
    """Return the values of an event whose changes increase its `version`. `event` is a computed state or the event's
    row.
    """
    return {name: getattr(event, name) for name in VERSIONED} | {"resources": list(event.resources)}


Listings = list[tuple[int, MergedListing]]


def _newest(listings: Listings, field: str, not_stated: Any) -> Any:
    # Stated beats not stated, Started beats Scheduled, else the last by corrected time; the machine settles a tie.
    best: tuple[bool, datetime, int] | None = None
    value = not_stated
    for machine_id, listing in listings:
        stated = getattr(listing, field)
        if stated == not_stated:
            continue
        rank = (listing.status == "Started", listing.listed_at, machine_id)
        if best is None or rank > best:
            best, value = rank, stated
    return value


def compute_state(
    witnesses: Iterable[Witness], *, now: datetime, was_ended: bool = False, known: Mapping[str, Any] | None = None
) -> ComputedState | None:
    """Compute the state of an event; None if no machine of its set ever listed it.

    An event ends when no live machine lists it any more. At least one machine, and every live one, must have polled
    without it since the last listing. Silent machines do not end an event, with two exceptions: after NotBefore of a
    Preempt or Terminate, if all machines that list it are silent (they were deleted); or if these have been gone for a
    day. An event that had ended (`was_ended`) is reopened only by a live machine that lists it. `known`: earlier values
    of the event, for fields that no listing states.
    """
    every = without_unconfirmed(witnesses)
    everyone = [w for w in every if w.revoked_at is None]
    listings = _votes(everyone)
    if not listings:
        return _only_revoked(every, known)
    state = _open_state(listings, known, watched=any(w.live and w.lists_it for w in everyone))
    if state.watched:
        return state
    seen_gone = _seen_gone(state, everyone, listings, was_ended=was_ended, now=now)
    return seen_gone or _listers_gone(state, everyone, was_ended=was_ended, now=now) or state


def _open_state(listings: Listings, known: Mapping[str, Any] | None, *, watched: bool) -> ComputedState:
    """Return the state of an event that these machines list or listed, as long as nothing shows that it has ended. It
    has the `known` value of each field that no listing states.
    """
    stated = {field: _newest(listings, field, not_stated) for field, not_stated in NOT_STATED.items()}
    if known is not None:
        stated = {field: known[field] if value == NOT_STATED[field] else value for field, value in stated.items()}
    started_at = min((one.started_at for _, one in listings if one.started_at is not None), default=None)
    return ComputedState(
        status=EventStatus.SCHEDULED if started_at is None else EventStatus.STARTED,
        watched=watched,
        first_seen_at=min(one.first_at for _, one in listings),
        started_at=started_at,
        **stated,
    )


def _ended(
    state: ComputedState, ended_as: EndedAs, certainty: Certainty, at: datetime, *, watched: bool
) -> ComputedState:
    """Return the state of an event that has ended. `watched`: a live machine can show that the event is no longer
    listed.
    """
    # Times of machines with different clocks: what follows is never earlier.
    at = max(at, state.started_at or state.first_seen_at)
    return replace(
        state, status=EventStatus.ENDED, ended_as=ended_as, certainty=certainty, ended_at=at, watched=watched
    )


def without_unconfirmed(witnesses: Iterable[Witness]) -> list[Witness]:
    """Return the witnesses, but treat a machine as still listing the event if its document without the event may be an
    old one.

    A later poll of that machine, or another live machine that saw the event disappear, confirms that the event is gone.
    """
    every = list(witnesses)
    certain = {
        w.machine_id
        for w in every
        if w.live and w.revoked_at is None and w.listing is not None and not w.listing.foreign
        if w.listing.gone_at is not None and not w.listing.is_gone_in_doubt
    }
    return [
        replace(w, listing=replace(w.listing, gone_at=None, gone_incarnation=None))
        if w.listing is not None and is_unconfirmed(w) and not certain - {w.machine_id}
        else w
        for w in every
    ]


def is_unconfirmed(witness: Witness) -> bool:
    """Return whether this machine's newest document lacks the event, may be an old one, and no later poll
    confirmed it.
    """
    listing = witness.listing
    if listing is None or listing.gone_at is None or not listing.is_gone_in_doubt:
        return False
    return witness.last_poll_at is None or witness.last_poll_at <= listing.gone_at


def last_listing(everyone: Iterable[Witness], now: datetime) -> datetime:
    """Return the last time at which one of these machines is known to have listed the event; `now` if none ever did."""
    return max((time for time in (w.last_listing(now) for w in everyone) if time is not None), default=now)


def _votes(witnesses: Iterable[Witness]) -> Listings:
    return [(w.machine_id, w.listing) for w in witnesses if w.listing is not None and not w.listing.foreign]


def _only_revoked(witnesses: list[Witness], known: Mapping[str, Any] | None) -> ComputedState | None:
    """Return the ended state of an event that only revoked machines have listed; None if no machine listed it."""
    listings = _votes(witnesses)
    if not listings:
        return None
    named = {machine_id for machine_id, _ in listings}
    return replace(
        _open_state(listings, known, watched=False),
        status=EventStatus.ENDED,
        ended_as=EndedAs.UNKNOWN,
        certainty=Certainty.INFERRED,
        ended_at=max((w.revoked_at for w in witnesses if w.machine_id in named and w.revoked_at), default=None),
    )


def _seen_gone(
    state: ComputedState, everyone: list[Witness], listings: Listings, *, was_ended: bool, now: datetime
) -> ComputedState | None:
    """Return the ended state if a document no longer lists the event and no live machine may still do so; else None."""
    gone_times = [listing.gone_at for _, listing in listings if listing.gone_at is not None]
    if not gone_times:
        return None
    last = last_listing(everyone, now)
    since = [(w, w.last_poll_at is not None and w.last_poll_at >= last) for w in everyone]
    unheard = any(w.live and not polled for w, polled in since)
    # A machine that polled after the last listing without it is a witness, even if it has died since.
    saw_it_gone = any(polled and not w.lists_it for w, polled in since)
    if not was_ended and (unheard or not saw_it_gone):
        return None
    if state.started_at is None and _was_evicted(everyone, listings, max(gone_times)):
        return _ended(state, EndedAs.MACHINE_DELETED, Certainty.INFERRED, max(gone_times), watched=True)
    return _ended(state, *_how_it_ended(listings, state.started_at), max(gone_times), watched=True)


def _was_evicted(everyone: list[Witness], listings: Listings, gone_at: datetime) -> bool:
    """Return whether the event deleted a machine, and was not cancelled: a named machine has not polled since the event
    is gone.
    """
    if _newest(listings, "event_type", "") not in DELETING_TYPES:
        return False
    resources = {name.lower() for name in _newest(listings, "resources", ())}
    return any(
        not w.live
        and (w.listing is None or w.listing.gone_at is None)
        and (w.last_poll_at is None or w.last_poll_at < gone_at)
        for w in everyone
        if w.name.lower() in resources
    )


def _listers_gone(
    state: ComputedState, everyone: list[Witness], *, was_ended: bool, now: datetime
) -> ComputedState | None:
    """Return the ended state if all machines that list the event have been gone for a day, or, after NotBefore of an
    event that deletes machines, are silent; else None.
    """
    listers = [w for w in everyone if w.lists_it]
    if not listers:
        return None
    last = last_listing(everyone, now)
    not_before = state.not_before
    deletes = state.event_type in DELETING_TYPES and (not_before is None or not_before <= now)
    if deletes and (was_ended or all(w.presence in (Presence.SILENT, Presence.GONE) for w in listers)):
        return _ended(state, EndedAs.MACHINE_DELETED, Certainty.INFERRED, not_before or last, watched=False)
    if was_ended or all(w.presence is Presence.GONE for w in listers):
        return _ended(state, EndedAs.UNKNOWN, Certainty.INFERRED, last, watched=False)
    return None


def _how_it_ended(listings: Listings, started_at: datetime | None) -> tuple[EndedAs, Certainty]:
    if started_at is not None:
        return EndedAs.COMPLETED, Certainty.SEEN
    # Gone from Scheduled. Incarnations count changes: without a number left out, no Started can have been missed.
    for _, listing in listings:
        if listing.gone_at is None or listing.listed_incarnation is None or listing.gone_incarnation is None:
            continue
        if listing.gone_incarnation == listing.listed_incarnation + 1:
            before = listing.not_before is not None and listing.gone_at < listing.not_before
            if not before and listing.event_type in DELETING_TYPES:
                # The machine may have been deallocated and started again, which restarts its incarnation.
                continue
            return EndedAs.CANCELLED, Certainty.SEEN if before else Certainty.INFERRED
    return EndedAs.CANCELLED_OR_MISSED, Certainty.INFERRED


# When time alone may change the state of an event.


def due_at(state: ComputedState | None, witnesses: Collection[Witness], *, now: datetime) -> datetime:
    """Return when to compute the state of an event again if no machine reports a change until then."""
    if state is None or state.status is EventStatus.ENDED:
        return NEVER
    gone = any(w.listing is not None and not w.listing.foreign and w.listing.gone_at is not None for w in witnesses)
    if gone and (not state.watched or any(is_unconfirmed(w) for w in witnesses)):
        # It ends with the poll of a machine that has not polled since, or that confirms an answer in doubt.
        return now + SOON
    return first_after(now, [state.not_before]) if state.event_type in DELETING_TYPES else NEVER
