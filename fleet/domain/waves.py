"""Waves: several events of a service approved in turn. Pure: whose turn it is, why not, and when a wave is over.

Strictly one after the other, over all sets of the wave: what one event breaks is seen before the next one begins, also
where the next lies in another set that leans on the first. So two fault domains of a set are never in flight at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.domain.states import ApprovalState, EventStatus, Look


class WaveState(StrEnum):
    """`STOPPED`: something did not come back, or somebody stopped it; the rest of its approvals is withdrawn."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    STOPPED = "STOPPED"


class Phase(StrEnum):
    """How far one event of a wave is. `left_out`: the wave goes on without it."""

    WAITS = "waits"
    IN_FLIGHT = "in_flight"
    RETURNING = "returning"
    BACK = "back"
    LEFT_OUT = "left_out"


WAVE_LOOKS: dict[WaveState, Look] = {
    WaveState.RUNNING: Look("Under way", "busy", "waves-horizontal"),
    WaveState.DONE: Look("Done", "good", "circle-check"),
    WaveState.STOPPED: Look("Stopped", "bad", "octagon-x"),
}
PHASE_LOOKS: dict[Phase, Look] = {
    Phase.WAITS: Look("Waits for its turn", "due", "hourglass"),
    Phase.IN_FLIGHT: Look("Under way", "busy", "play"),
    Phase.RETURNING: Look("Not back yet", "due", "rotate-ccw"),
    Phase.BACK: Look("Back", "good", "circle-check"),
    Phase.LEFT_OUT: Look("Left out", "quiet", "circle-slash"),
}


class Do(StrEnum):
    GO = "go"
    STAY = "stay"
    STOP = "stop"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Returner:
    """A machine with an agent that the event hits. `back`: it is live, and was heard after the event had ended."""

    name: str
    back: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One event of a wave. `machines` are those that have to come back; empty where the event deletes them.

    `started`: Started was seen. `last_word_at` is when any machine of its set was last heard. `reason` is how its
    approval ended.
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
    machines: tuple[Returner, ...] = ()
    # The event's row, and the codes of the guards that were overcome when the wave began.
    event_pk: int = 0
    overcome: frozenset[str] = frozenset()
    last_word_at: datetime | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.event_type or 'event'} of {', '.join(self.resources) or 'nobody named'}"

    @property
    def phase(self) -> Phase:
        state = self.approval_state
        if state is ApprovalState.WITHDRAWN:
            # Taken out by a person. Should its event be started otherwise, the guards of the others know.
            return Phase.LEFT_OUT
        relayed = state in (ApprovalState.GRANTED, ApprovalState.RELAYING, ApprovalState.ACCEPTED)
        # Lapsed: nobody asked Azure, and Azure may start it at any moment by itself.
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
        """The machines that are not back."""
        return tuple(machine.name for machine in self.machines if not machine.back)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a running wave does now, and why, in one sentence. `approval_id` with GO: whose turn it is."""

    do: Do
    reason: str
    approval_id: int | None = None


def judge(members: Sequence[Member], *, now: datetime, patience: timedelta) -> Judgement:
    """Whose turn it is, what the wave waits for, or why it is over. `patience`: how long a machine may take to return,
    after its event has ended.
    """
    in_turn = sorted(members, key=lambda member: member.turn)
    for member in in_turn:
        wrong = _lost(member, now, patience)
        if wrong:
            return Judgement(Do.STOP, wrong)
    waiting = [member for member in in_turn if member.phase is Phase.WAITS]
    busy = [member for member in in_turn if member.phase in (Phase.IN_FLIGHT, Phase.RETURNING)]
    if busy and (waiting or any(not _left_to_azure(member) for member in busy)):
        return Judgement(Do.STAY, _waits_for(busy[0], patience))
    if waiting:
        return Judgement(Do.GO, f"It is the turn of the {waiting[0].name}.", waiting[0].approval_id)
    return Judgement(Do.FINISH, summary(in_turn))


def _left_to_azure(member: Member) -> bool:
    return member.approval_state is ApprovalState.LAPSED and member.event_status is EventStatus.SCHEDULED


def _lost(member: Member, now: datetime, patience: timedelta) -> str:
    minutes = _span(patience)
    if member.phase is Phase.RETURNING and member.ended_at is not None and now - member.ended_at >= patience:
        names = ", ".join(member.missing)
        have = "has" if len(member.missing) == 1 else "have"
        return f"{names} {have} not come back within {minutes} after the {member.name} had ended."
    if member.phase is Phase.IN_FLIGHT and member.event_status is EventStatus.STARTED:
        heard = member.last_word_at
        if heard is None or now - heard >= patience:
            return f"No machine of {member.set_name} has been heard for {minutes} while the {member.name} is under way."
    return ""


def _waits_for(member: Member, patience: timedelta) -> str:
    if member.phase is Phase.RETURNING:
        names = ", ".join(member.missing)
        be = "is" if len(member.missing) == 1 else "are"
        return f"It waits until {names} {be} live again after the {member.name}; it stops after {_span(patience)}."
    if member.event_status is EventStatus.STARTED:
        return f"It waits until the {member.name} has ended."
    if _left_to_azure(member):
        return f"It waits for the {member.name}: NotBefore is past, and Azure may start it at any moment."
    return f"It waits for the {member.name}, which is on its way to Azure."


def _span(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    return f"{seconds // 60} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds} s"


def summary(members: Sequence[Member]) -> str:
    """How a wave went, in one sentence or two."""
    back = sum(member.phase is Phase.BACK for member in members)
    out = [member for member in members if member.phase is not Phase.BACK]
    text = f"{back} of {len(members)} events {'was' if back == 1 else 'were'} started in turn and came back."
    if out:
        told = "; ".join(f"{member.name} ({_why_out(member)})" for member in out)
        text += f" Left out: {told}."
    return text


def _why_out(member: Member) -> str:
    return (member.reason or member.approval_state.value.lower()).rstrip(".")


def sentence_of(
    member: Member, members: Sequence[Member], judgement: Judgement, *, running: bool, against: str = ""
) -> str:
    """What one event of a wave waits for or how it went, for its row on the page. `against`: what a guard says against
    the one whose turn it is.
    """
    match member.phase:
        case Phase.WAITS if not running:
            return "It waits."
        case Phase.WAITS if judgement.approval_id == member.approval_id:
            return f"It is its turn. But: {against}" if against else "It is its turn."
        case Phase.WAITS:
            ahead = sum(other.phase is Phase.WAITS and other.turn < member.turn for other in members)
            if ahead or judgement.do is not Do.STAY:
                if not ahead:
                    return judgement.reason
                return "One event goes before it." if ahead == 1 else f"{ahead} events go before it."
            return judgement.reason
        case Phase.IN_FLIGHT:
            if member.event_status is EventStatus.STARTED:
                return "Started."
            return "Left to Azure: NotBefore is past." if _left_to_azure(member) else "On its way to Azure."
        case Phase.RETURNING:
            be = "is" if len(member.missing) == 1 else "are"
            return f"Ended. {', '.join(member.missing)} {be} not back yet."
        case Phase.BACK:
            return "Ended, and its machines are live." if member.machines else "Ended."
        case _:
            return f"Left out: {_why_out(member)}."
