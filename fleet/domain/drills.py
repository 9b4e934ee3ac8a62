"""Drills: the permitted parameters, and when and how a drill ends."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.event_types import TYPES
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import first_after
from fleet.domain.states import EventStatus

# Seconds. Agents reject longer ones, so the wire repeats these limits; a test compares them.
NOTICE_SECONDS = (15, 3600)
DURATION_SECONDS = (1, 600)
DEFAULT_TYPE = "Freeze"
DEFAULT_NOTICE_SECONDS = 300
DEFAULT_DURATION_SECONDS = 10
KINDS = tuple(TYPES)

# After the event's automatic end: time for hooks that recover, and for late reports.
GRACE = timedelta(seconds=120)
# A machine without hooks to recover sends no report on them.
SETTLED = timedelta(seconds=3)
# A machine without any report on its hooks.
SPEECHLESS = timedelta(seconds=15)


class Outcome(StrEnum):
    COMPLETED = "completed"
    NOT_APPROVED = "not_approved"
    STOPPED = "stopped"
    OVERTAKEN = "overtaken"
    NO_MACHINE = "nobody"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class MachineInDrill:
    """State of one machine in a drill, for deciding whether the drill has ended.

    `hit`: the drill's event affects the machine. `left_out`: the machine does not take part. `listed`: its agent
    announced the event; `gone`: its agent ended the event, for `gone_reason`. `hooks_heard`: it reported about hooks;
    `hooks_over`: its hooks are known to have ended, or it has none.
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
    """How a drill ended, and the reason."""

    outcome: Outcome
    reason: Reason


def ending_of(
    drill: Any, machines: Collection[MachineInDrill], *, approved: bool, real_event: str | None, now: datetime
) -> Ending | None:
    """Return how a drill (its row) has ended, or None while it runs.

    `approved`: its event was approved. `real_event` is the type of an open real event in the same set, which ends the
    drill.
    """
    event, ends_by = drill.event, drill.ends_by
    if real_event is not None:
        return Ending(Outcome.OVERTAKEN, Reason("drill-overtaken", event_type=real_event))
    taking_part = [machine for machine in machines if not machine.left_out]
    if not taking_part:
        return Ending(Outcome.NO_MACHINE, Reason("drill-nobody-could"))
    if event.status == EventStatus.ENDED and event.started_at is not None:
        waiting = [m.name for m in taking_part if m.hit and m.listed and not _settled(m, event.ended_at, now)]
        if waiting and now < ends_by:
            return None
        outcome = Outcome.COMPLETED if approved else Outcome.NOT_APPROVED
        return Ending(outcome, Reason("drill-went-round", approved=approved, unheard=waiting))
    if event.status == EventStatus.ENDED:
        if any(machine.gone_reason == "real-event" for machine in taking_part):
            return Ending(Outcome.OVERTAKEN, Reason("drill-machine-saw-real"))
        return Ending(Outcome.UNFINISHED, Reason("drill-gone-before-start"))
    if now >= ends_by:
        if not any(machine.listed for machine in taking_part):
            return Ending(Outcome.NO_MACHINE, Reason("drill-nobody-began"))
        lost = [machine.name for machine in taking_part if machine.listed and not machine.gone]
        return Ending(Outcome.UNFINISHED, Reason("drill-unheard", machines=lost))
    return None


def due_at(*, ended_at: datetime | None, ends_by: datetime, now: datetime) -> datetime:
    """Return when to check a running drill again if nothing is reported about its event or its set until then."""
    settles = (ended_at + SETTLED, ended_at + SPEECHLESS) if ended_at is not None else ()
    return first_after(now, [ends_by, *settles])


def _settled(machine: MachineInDrill, ended_at: datetime | None, now: datetime) -> bool:
    since = now - ended_at if ended_at is not None else SPEECHLESS
    if machine.hooks_over:
        return since >= SETTLED
    return not machine.hooks_heard and since >= SPEECHLESS
