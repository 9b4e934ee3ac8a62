"""Waves: several events of a service that are approved one after the other. This module does no I/O.

The order applies across all sets of the wave. So damage by one event is seen before the next event starts, also in
another set that depends on the first. Two fault domains of a set are never in flight at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.approvals.conditions import Decision
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import SOON, first_after
from fleet.domain.states import ApprovalState, EventStatus

MAX_EVENTS = 100


class WaveState(StrEnum):
    """State of a wave. `STOPPED`: a machine did not return after an event, or a user stopped the wave.

    When a wave stops, the remaining approvals are withdrawn.
    """

    RUNNING = "RUNNING"
    DONE = "DONE"
    STOPPED = "STOPPED"


class Phase(StrEnum):
    """Progress of one event of a wave. `left_out`: the wave continues without this event."""

    WAITS = "waits"
    IN_FLIGHT = "in_flight"
    RETURNING = "returning"
    BACK = "back"
    LEFT_OUT = "left_out"


class Signal(StrEnum):
    GO = "go"
    STAY = "stay"
    STOP = "stop"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class ReturnFacts:
    """A machine with an agent that the event affects. `back`: it is live and has reported since the event ended."""

    name: str
    back: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One event of a wave, with the facts for judging it.

    `machines` are those that must return after the event; empty if the event deletes them. `started`: the event was
    seen as Started. `last_heard_at`: when any machine of the set last reported. `reason`: why the approval ended.
    """

    approval_id: int
    turn: int
    event_id: str
    event_type: str
    resources: tuple[str, ...]
    set_id: int
    set_kind: str
    set_name: str
    approval_state: ApprovalState
    event_status: EventStatus
    not_before: datetime | None = None
    started: bool = False
    ended_at: datetime | None = None
    machines: tuple[ReturnFacts, ...] = ()
    # The event's row, and the decision when the wave began.
    event_pk: int = 0
    decision: Decision | None = None
    last_heard_at: datetime | None = None
    reason: Reason | str = ""
    # The suffix that distinguishes its set from another of its name.
    set_suffix: str = ""
    set_subscription: str = ""
    set_resource_group: str = ""

    @property
    def named(self) -> dict[str, Any]:
        """The event as values for a reason: type and machines."""
        return {"type": self.event_type, "resources": list(self.resources)}

    @property
    def phase(self) -> Phase:
        state = self.approval_state
        if state is ApprovalState.WITHDRAWN:
            # Taken out by a person. Should its event be started otherwise, the guards of the others know.
            return Phase.LEFT_OUT
        relayed = state in (ApprovalState.GRANTED, ApprovalState.RELAYING, ApprovalState.ACCEPTED)
        # Lapsed: no machine asked Azure, and Azure may start it at any moment.
        coming = state in (ApprovalState.CONFIRMED, ApprovalState.LAPSED) and self.event_status is not EventStatus.ENDED
        if relayed or coming or self.event_status is EventStatus.STARTED:
            return Phase.IN_FLIGHT
        if state in (ApprovalState.PROPOSED, ApprovalState.WAITING):
            return Phase.WAITS
        happened = self.started or state in (ApprovalState.CONFIRMED, ApprovalState.LAPSED)
        if self.event_status is EventStatus.ENDED and happened:
            if self.missing:
                return Phase.RETURNING
            return Phase.BACK if state is ApprovalState.CONFIRMED else Phase.LEFT_OUT
        return Phase.LEFT_OUT

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the machines that have not returned yet."""
        return tuple(machine.name for machine in self.machines if not machine.back)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The next action of a running wave and the reason for it. `approval_id`: with GO, the approval to send."""

    do: Signal
    reason: Reason
    approval_id: int | None = None


def judge(members: Sequence[Member], *, now: datetime, return_timeout: timedelta) -> Judgement:
    """Return the next action of a running wave: send the next approval, wait, stop, or finish.

    `return_timeout` is how long a machine may take to return after its event has ended.
    """
    in_turn = sorted(members, key=lambda member: member.turn)
    for member in in_turn:
        lost = _lost(member, now, return_timeout)
        if lost is not None:
            return Judgement(Signal.STOP, lost)
    waiting = [member for member in in_turn if member.phase is Phase.WAITS]
    busy = [member for member in in_turn if member.phase in (Phase.IN_FLIGHT, Phase.RETURNING)]
    if busy and (waiting or any(not _left_to_azure(member) for member in busy)):
        return Judgement(Signal.STAY, _waits_for(busy[0], return_timeout))
    if waiting:
        return Judgement(Signal.GO, Reason("wave-turn", event=waiting[0].named), waiting[0].approval_id)
    return Judgement(Signal.FINISH, summary(in_turn))


def due_at(members: Sequence[Member], *, now: datetime, return_timeout: timedelta) -> datetime:
    """Return when to judge a running wave again if nothing is reported about its events until then."""
    times = []
    for member in members:
        if member.phase is Phase.RETURNING:
            # Who returns is heard by a poll, which is no news.
            times.append(now + SOON)
        if member.event_status is EventStatus.STARTED and member.last_heard_at is not None:
            times.append(member.last_heard_at + return_timeout)
    return first_after(now, times)


def _left_to_azure(member: Member) -> bool:
    return member.approval_state is ApprovalState.LAPSED and member.event_status is EventStatus.SCHEDULED


def _lost(member: Member, now: datetime, return_timeout: timedelta) -> Reason | None:
    seconds = return_timeout.total_seconds()
    if member.phase is Phase.RETURNING and member.ended_at is not None and now - member.ended_at >= return_timeout:
        return Reason("wave-not-back", machines=list(member.missing), seconds=seconds, event=member.named)
    if member.phase is Phase.IN_FLIGHT and member.event_status is EventStatus.STARTED:
        heard = member.last_heard_at
        if heard is None or now - heard >= return_timeout:
            return Reason("wave-unheard", set=member.set_name, seconds=seconds, event=member.named)
    return None


def _waits_for(member: Member, return_timeout: timedelta) -> Reason:
    if member.phase is Phase.RETURNING:
        seconds = return_timeout.total_seconds()
        return Reason("wave-waits-for-return", machines=list(member.missing), seconds=seconds, event=member.named)
    if member.event_status is EventStatus.STARTED:
        return Reason("wave-waits-for-end", event=member.named)
    return Reason("wave-waits-for-azure" if _left_to_azure(member) else "wave-waits-for-order", event=member.named)


def summary(members: Sequence[Member]) -> Reason:
    """Return the summary of a wave: how many events have returned, and which were left out and why."""
    out = [member for member in members if member.phase is not Phase.BACK]
    return Reason(
        "wave-summary",
        back=len(members) - len(out),
        count=len(members),
        left_out=[{"event": member.named, **_why_out(member)} for member in out],
    )


def _why_out(member: Member) -> dict[str, Any]:
    return {"state": member.approval_state.value, "why": member.reason}


def member_progress(
    member: Member, members: Sequence[Member], judgement: Judgement, *, running: bool, against: Reason | str = ""
) -> Reason:
    """Return what one event of a wave waits for, or how it ended, for its row in the table.

    `against` is the guard that blocks the next event, if any.
    """
    match member.phase:
        case Phase.WAITS if not running:
            return Reason("wave-member-waits")
        case Phase.WAITS if judgement.approval_id == member.approval_id:
            return unless(Reason("wave-member-turn"), against)
        case Phase.WAITS:
            ahead = sum(other.phase is Phase.WAITS and other.turn < member.turn for other in members)
            return Reason("wave-member-ahead", count=ahead) if ahead else judgement.reason
        case Phase.IN_FLIGHT if member.event_status is EventStatus.STARTED:
            return Reason("wave-member-started")
        case Phase.IN_FLIGHT:
            return Reason("wave-member-left-to-azure" if _left_to_azure(member) else "wave-member-on-its-way")
        case Phase.RETURNING:
            return Reason("wave-member-not-back", machines=list(member.missing))
        case Phase.BACK:
            return Reason("wave-member-back", machines=bool(member.machines))
        case _:
            return Reason("wave-member-left-out", **_why_out(member))


def unless(reason: Reason, against: Reason | str) -> Reason:
    """Return the reason, extended by the guard (`against`) that blocks the event; unchanged if there is none."""
    return Reason("wave-kept", reason=reason, against=against) if against else reason
