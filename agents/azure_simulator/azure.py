"""Simulated state of Azure: the events of each set, their changes, and the incarnation of each machine. This module
does no input or output.

The time is an argument. `settle` applies everything that became due since the last call (an event reaches NotBefore, or
a started event ends) with the time when it was due. The result therefore does not depend on when it is called.
"""

from __future__ import annotations

import heapq
import itertools
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from azure_simulator.fleet import Fleet, Machine, MachineSet

# Not shown to machines: the event will be announced later.
PLANNED = "Planned"
SCHEDULED = "Scheduled"
STARTED = "Started"
# Not shown to machines: ended events are no longer listed.
ENDED = "Ended"

EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation")
# An approval has no effect and the event never starts. It is no longer listed after its time.
ADVICE = "SpotRebalanceRecommendation"
SOURCES = ("Platform", "User")

# "Scheduled Events is disabled for your service if it doesn't make a request to the endpoint for 24 hours."
SWITCHED_OFF_AFTER = timedelta(hours=24)
# Machines that these events name are deleted when they end.
DELETING = ("Preempt", "Terminate")
# Maximum number of ended events for `GET /control/events`.
KEPT_ENDED = 10_000


class NotPossibleError(Exception):
    """The current state of the event does not permit this change."""


@dataclass(frozen=True, slots=True)
class Approval:
    """One `StartRequests` call for an event: the machine that sent it, and the time."""

    vm: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Impact:
    """One interruption of the machines that a Started event names."""

    at: datetime
    seconds: float


@dataclass(slots=True, kw_only=True)
class Event:
    """One scheduled event. `due` is the time of the next automatic change of status. `not_before` has whole seconds, as
    at Azure.

    `ended_as` is `completed` or `cancelled`. `started_by` is `approval`, `not_before` or `control`, or `azure` for an
    event that was created as Started.
    """

    event_id: str
    set: MachineSet
    event_type: str
    resources: tuple[str, ...]
    source: str
    description: str
    duration_seconds: int
    started_seconds: float
    not_before: datetime
    due: datetime
    created_at: datetime
    begins_started: bool = False
    status: str = PLANNED
    scheduled_at: datetime | None = None
    started_at: datetime | None = None
    started_by: str = ""
    ended_at: datetime | None = None
    ended_as: str = ""
    approvals: list[Approval] = field(default_factory=list)
    impacts: list[Impact] = field(default_factory=list)
    # Seconds after which machines that this event deleted exist again; None: never.
    back_after_seconds: float | None = None


@dataclass(slots=True)
class _MachineState:
    """State of one machine: when its incarnation started. The incarnation is 1 at the first call of a machine, so
    machines of the same set may have different ones.
    """

    first_change: int
    shift: int
    last_call: datetime
    enabled_at: datetime


class Azure:
    """The state of the whole fleet. All times are aware datetimes in UTC."""

    def __init__(self, fleet: Fleet, *, first_call_seconds: float = 0.0) -> None:
        self.fleet = fleet
        self._first_call = timedelta(seconds=first_call_seconds)
        # Whether the first call of a machine takes time.
        self.slow_to_begin = first_call_seconds > 0
        # Machine ids: until when a machine is interrupted, and until when it does not exist (None: for ever).
        self._paused: dict[str, datetime] = {}
        self._deleted: dict[str, datetime | None] = {}
        self.machines: dict[str, tuple[MachineSet, Machine]] = {m.id: (s, m) for s in fleet.sets for m in s.machines}
        self._events: dict[str, Event] = {}
        self._open: dict[str, list[Event]] = {s.key: [] for s in fleet.sets}
        self._changes: dict[str, int] = {s.key: 0 for s in fleet.sets}
        # Number of changes of all sets, and for each changed set the number of the last change, newest last.
        self._change = 0
        self._newest: dict[str, tuple[int, MachineSet]] = {}
        self._machine_states: dict[str, _MachineState] = {}
        self._ended_ids: list[str] = []
        # (due, order of insertion, EventId). Entries that are out of date because the event changed are skipped.
        self._due: list[tuple[datetime, int, str]] = []
        self._order = itertools.count()

    def settle(self, now: datetime) -> None:
        """Apply all changes that are due by `now`, in order of time."""
        while self._due and self._due[0][0] <= now:
            due, _, event_id = heapq.heappop(self._due)
            event = self._events.get(event_id)
            if event is None or event.due != due:
                continue
            if event.status == PLANNED:
                self._announce(event, due)
            elif event.status == SCHEDULED and event.event_type == ADVICE:
                self._end(event, due, "over")
            elif event.status == SCHEDULED:
                self._begin(event, due, "approval" if event.approvals else "not_before")
            elif event.status == STARTED:
                self._end(event, due, "completed")

    def create(
        self,
        *,
        now: datetime,
        in_set: MachineSet,
        event_type: str,
        resources: tuple[str, ...],
        notice_seconds: float,
        duration_seconds: int,
        started_seconds: float,
        source: str,
        description: str,
        starts_as: str = SCHEDULED,
        event_id: str = "",
        back_after_seconds: float | None = None,
        after_seconds: float = 0,
    ) -> Event:
        """Announce an event to every machine of `in_set`, `after_seconds` from now. With `starts_as` Started, it is
        Started immediately.
        """
        self.settle(now)
        announced_at = now + timedelta(seconds=after_seconds)
        # Never before NotBefore, which has no fractions of a second: round up.
        end_of_notice = (announced_at + timedelta(seconds=notice_seconds)).timestamp()
        not_before = datetime.fromtimestamp(math.ceil(end_of_notice), UTC)
        event = Event(
            event_id=(event_id or str(uuid.uuid4())).upper(),
            set=in_set,
            event_type=event_type,
            resources=resources,
            source=source,
            description=description,
            duration_seconds=duration_seconds,
            started_seconds=started_seconds,
            not_before=not_before,
            due=announced_at,
            created_at=announced_at,
            begins_started=starts_as == STARTED,
            back_after_seconds=back_after_seconds,
        )
        self._events[event.event_id] = event
        if announced_at > now:
            self._wait_until(event, announced_at)
        else:
            self._announce(event, now)
        return event

    def approve(self, event: Event, *, vm: str, now: datetime, delay_seconds: float = 0) -> None:
        """Record a machine's `StartRequests` call and start the event. A repeated approval is recorded without effect.

        With `delay_seconds`, the start is delayed, even beyond NotBefore, as if other tenants of the host had to be
        waited for.
        """
        first = not event.approvals
        event.approvals.append(Approval(vm=vm, at=now))
        if event.status != SCHEDULED or not first or event.event_type == ADVICE:
            return
        if delay_seconds > 0:
            self._wait_until(event, now + timedelta(seconds=delay_seconds))
        else:
            self._begin(event, now, "approval")

    def start(self, event: Event, now: datetime) -> None:
        """Start an event as if Azure did so now. Raises NotPossibleError if it has ended."""
        if event.status == ENDED:
            raise NotPossibleError("the event is over")
        if event.status == PLANNED:
            raise NotPossibleError("the event is not announced yet")
        if event.status == SCHEDULED:
            self._begin(event, now, "control")

    def complete(self, event: Event, now: datetime) -> None:
        """Complete an event. If it is still Scheduled, agents never see it as Started. Raises NotPossibleError if it
        has ended.
        """
        self.start(event, now)
        self._end(event, now, "completed")

    def cancel(self, event: Event, now: datetime) -> None:
        """Cancel an event as if Azure withdrew it. Raises NotPossibleError unless it is Scheduled."""
        if event.status != SCHEDULED:
            raise NotPossibleError("only an event that is still Scheduled can be cancelled")
        self._end(event, now, "cancelled")

    def interrupt(self, event: Event, seconds: float, now: datetime) -> None:
        """Pause the machines of a Started event for `seconds`. An event may have several of these interruptions,
        shorter than announced; documents do not show them. Raises NotPossibleError.
        """
        if event.status != STARTED:
            raise NotPossibleError("only an event that is Started has impacts")
        announced = event.duration_seconds
        if announced >= 0 and (seconds > announced or (event.impacts and seconds == announced)):
            raise NotPossibleError(f"an impact lasts no longer than the announced {announced} s, a further one less")
        event.impacts.append(Impact(at=now, seconds=seconds))
        for machine_id in self._named(event):
            self._paused[machine_id] = now + timedelta(seconds=seconds)

    def pause_left(self, machine: Machine, now: datetime) -> float:
        """Return the seconds until a paused machine continues."""
        until = self._paused.get(machine.id)
        return max(0.0, (until - now).total_seconds()) if until is not None else 0.0

    def exists(self, machine: Machine, now: datetime) -> bool:
        """Return False if a Preempt or Terminate event has deleted the machine."""
        if machine.id in self._deleted:
            back_at = self._deleted[machine.id]
            if back_at is None or now < back_at:
                return False
            del self._deleted[machine.id]
            self.forget_machine(machine)
        return True

    def find(self, event_id: str) -> Event | None:
        """Return the event with this id (in any case), open or ended, or None."""
        return self._events.get(event_id.upper())

    def events(self) -> list[Event]:
        """Return all events including ended ones, oldest first."""
        return list(self._events.values())

    def open_events(self, in_set: MachineSet) -> list[Event]:
        """Return the open events of the set, oldest first."""
        return self._open[in_set.key]

    def changes(self, in_set: MachineSet) -> int:
        """Return a number that increases with every change of the set's events."""
        return self._changes[in_set.key]

    def changed_since(self, number: int) -> tuple[int, list[MachineSet]]:
        """Return the sets that changed after the change with this number, oldest change first. The first value is the
        number for the next call.
        """
        found = itertools.takewhile(lambda change: change[0] > number, reversed(self._newest.values()))
        return self._change, [in_set for _, in_set in found][::-1]

    def called(self, in_set: MachineSet, machine: Machine, now: datetime) -> float:
        """Record a valid request of a machine. Return the seconds until it can be answered. The first request, and the
        first one after a day without requests, enable the service, which takes time.
        """
        state = self._machine_states.get(machine.id)
        if state is None or now - state.last_call > SWITCHED_OFF_AFTER:
            first = self._changes[in_set.key]
            state = _MachineState(first_change=first, shift=1, last_call=now, enabled_at=now + self._first_call)
            self._machine_states[machine.id] = state
        state.last_call = now
        return max(0.0, (state.enabled_at - now).total_seconds())

    def incarnation(self, in_set: MachineSet, machine: Machine, now: datetime) -> int:
        """Return the incarnation that this machine sees at `now`. It restarts at 1 after a day without requests."""
        self.called(in_set, machine, now)
        state = self._machine_states[machine.id]
        return self._changes[in_set.key] - state.first_change + state.shift

    def jump_incarnation(self, machine: Machine, by: int) -> None:
        """Increase the incarnation of a machine by `by`, as if there had been changes between two polls."""
        if machine.id in self._machine_states:
            self._machine_states[machine.id].shift += by

    def forget_machine(self, machine: Machine) -> None:
        """Reset a machine as after a day without requests: the next request sees incarnation 1."""
        self._machine_states.pop(machine.id, None)

    def _wait_until(self, event: Event, due: datetime) -> None:
        event.due = due
        heapq.heappush(self._due, (due, next(self._order), event.event_id))

    def _announce(self, event: Event, at: datetime) -> None:
        self._open[event.set.key].append(event)
        if event.begins_started:
            self._begin(event, at, "azure")
            return
        event.status, event.scheduled_at = SCHEDULED, at
        self._changed(event.set)
        self._wait_until(event, event.not_before)

    def _changed(self, in_set: MachineSet) -> None:
        self._changes[in_set.key] += 1
        self._change += 1
        # Removed first, so that it is inserted last.
        self._newest.pop(in_set.key, None)
        self._newest[in_set.key] = (self._change, in_set)

    def _begin(self, event: Event, at: datetime, started_by: str) -> None:
        event.status = STARTED
        event.started_at = at
        event.started_by = started_by
        self._changed(event.set)
        self._wait_until(event, at + timedelta(seconds=event.started_seconds))

    def _end(self, event: Event, at: datetime, ended_as: str) -> None:
        event.status = ENDED
        event.ended_at = at
        event.ended_as = ended_as
        self._open[event.set.key].remove(event)
        self._changed(event.set)
        if ended_as == "completed" and event.event_type in DELETING:
            back = event.back_after_seconds
            until = None if back is None else at + timedelta(seconds=back)
            self._deleted.update(dict.fromkeys(self._named(event), until))
        self._ended_ids.append(event.event_id)
        if len(self._ended_ids) > KEPT_ENDED:
            del self._events[self._ended_ids.pop(0)]

    def _named(self, event: Event) -> list[str]:
        return [machine.id for machine in event.set.machines if machine.name in event.resources]
