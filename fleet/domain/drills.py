"""Drills: what may be rehearsed, how one ends, and how its timeline is worded."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.domain.events import TYPES
from fleet.domain.states import EventStatus, Look

# Seconds. From the longest ones an agent would turn away, so they stand in the wire, too; a test compares them.
NOTICE_SECONDS = (15, 3600)
DURATION_SECONDS = (1, 600)
DEFAULT_TYPE = "Freeze"
DEFAULT_NOTICE_SECONDS = 300
DEFAULT_DURATION_SECONDS = 10
KINDS = tuple(TYPES)

# After the event has to be over by itself: time for hooks that recover, and for reports that come late.
GRACE = timedelta(seconds=120)
# A machine without hooks to recover says nothing of them.
SETTLED = timedelta(seconds=3)
# A machine that never said a word about its hooks.
SPEECHLESS = timedelta(seconds=15)


class Outcome(StrEnum):
    COMPLETED = "completed"
    NOT_APPROVED = "not_approved"
    STOPPED = "stopped"
    OVERTAKEN = "overtaken"
    NOBODY = "nobody"
    UNFINISHED = "unfinished"


OUTCOME_LOOKS: dict[Outcome, Look] = {
    Outcome.COMPLETED: Look("completed", "good", "circle-check"),
    Outcome.NOT_APPROVED: Look("nobody approved it in time", "bad", "timer-off"),
    Outcome.STOPPED: Look("stopped by a person", "quiet", "ban"),
    Outcome.OVERTAKEN: Look("made way for a real event", "due", "triangle-alert"),
    Outcome.NOBODY: Look("no machine took part", "bad", "circle-off"),
    Outcome.UNFINISHED: Look("did not come to its end", "bad", "octagon-x"),
}
RUNNING_LOOK = Look("under way", "busy", "loader-circle")

# Why an agent turned a drill's order away, as its receipt words it.
REFUSALS = {
    "not-listed": "its agent is too old for drills",
    "real-event": "Azure has announced something real there",
    "another-drill": "it is still in another drill",
    "expired": "the drill reached it too late",
    "not-running": "its agent does not stay running",
    "unsigned": "its agent wants a signature, and there was none",
    "bad-signature": "its agent does not trust the signature",
}


def refused_because(reason: str) -> str:
    """A refusal's reason in words, fit to stand after "vm1 takes no part:"."""
    return REFUSALS.get(reason, f"its agent could not make sense of the order ({reason or 'no reason given'})")


@dataclass(frozen=True, slots=True)
class MachineInDrill:
    """One machine as far as closing a drill goes. `listed`: it was announced there; `gone`: and is over.

    `hooks_over`: its hooks are known to have ended, or to be none; `hooks_heard`: it said something of them.
    """

    name: str
    hit: bool
    left_out: bool
    listed: bool
    gone: bool
    gone_reason: str = ""
    hooks_heard: bool = False
    hooks_over: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a drill ends, in one word and in one sentence."""

    outcome: Outcome
    reason: str


def ending_of(
    *,
    status: EventStatus,
    started: bool,
    ended_at: datetime | None,
    approved: bool,
    real_event: str,
    machines: tuple[MachineInDrill, ...],
    ends_by: datetime,
    now: datetime,
) -> Ending | None:
    """Whether a drill is over, and how; None while it goes on. `real_event` names one that is open in its set."""
    if real_event:
        return Ending(Outcome.OVERTAKEN, f"A real event came ({real_event}): it goes first.")
    taking_part = [machine for machine in machines if not machine.left_out]
    if not taking_part:
        return Ending(Outcome.NOBODY, "No machine of the set could take part.")
    if status is EventStatus.ENDED and started:
        waiting = [m.name for m in taking_part if m.hit and m.listed and not _settled(m, ended_at, now)]
        if waiting and now < ends_by:
            return None
        missing = f" Of the recover hooks on {', '.join(waiting)} no end was heard." if waiting else ""
        if approved:
            return Ending(Outcome.COMPLETED, f"It was approved, started and ended.{missing}")
        return Ending(Outcome.NOT_APPROVED, f"Nobody approved it in time: it started by itself at NotBefore.{missing}")
    if status is EventStatus.ENDED:
        if any(machine.gone_reason == "real-event" for machine in taking_part):
            return Ending(Outcome.OVERTAKEN, "A machine saw that Azure announced something real.")
        return Ending(Outcome.UNFINISHED, "It was gone on every machine before it had started.")
    if now >= ends_by:
        if not any(machine.listed for machine in taking_part):
            return Ending(Outcome.NOBODY, "No machine began to rehearse.")
        lost = ", ".join(m.name for m in taking_part if m.listed and not m.gone)
        return Ending(Outcome.UNFINISHED, f"Nothing more was heard of {lost or 'any machine'}.")
    return None


def _settled(machine: MachineInDrill, ended_at: datetime | None, now: datetime) -> bool:
    since = now - ended_at if ended_at is not None else SPEECHLESS
    if machine.hooks_over:
        return since >= SETTLED
    return not machine.hooks_heard and since >= SPEECHLESS


def in_drill(text: str) -> str:
    """A timeline's sentence as it stands on a drill's: marked, and silent of Azure, save in people's comments."""
    return f"Drill: {without_azure(text)}"


def without_azure(text: str) -> str:
    """The same words about a rehearsal: it answers for Azure. What people wrote, in quotes at the end, stays."""
    said, quote, comment = text.partition("“")
    said = said.replace("at Azure", "in the rehearsal")
    if said.startswith("Azure"):
        said = f"The rehearsal{said.removeprefix('Azure')}"
    return f"{said.replace('Azure', 'the rehearsal')}{quote}{comment}"
