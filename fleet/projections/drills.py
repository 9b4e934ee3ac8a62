"""Drills and their reports: the time of each step, for the whole drill and for each machine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Unpack

from django.db.models import QuerySet

from fleet.domain.drills import Outcome
from fleet.domain.reasons import Reason, read_reason
from fleet.domain.shapes import InApi, from_row
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EventStatus
from fleet.models import Approval, Drill, Instruction, Order, Preparation, Rehearsal, Sighting
from fleet.projections.changes import changed_at
from fleet.projections.pages import OrderedAt, Page, Segment, read_list
from fleet.projections.refs import MachineRef, SetRef, machine_ref, set_ref
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class DrillRow:
    """One drill. `outcome` is None while the drill is in progress; `machines` are the machines that its event names."""

    id: int
    event_id: Annotated[str, "Begins with `DRILL-`; it takes the calls of any event."]
    event_type: str
    event_status: EventStatus
    set: SetRef
    machines: Annotated[tuple[str, ...], "Those that the event names."]
    notice_seconds: int
    duration_seconds: int
    started_by: str
    via: str
    token_name: str
    comment: str
    created_at: datetime
    not_before: datetime | None
    ends_by: Annotated[datetime, "When it is over at the latest, whatever happens."]
    closed_at: datetime | None
    outcome: Annotated[Outcome | None, "Null while it is in progress."]
    reason: Reason | str
    # Last change of the drill and its event, by the database's clock.
    changed_at: datetime

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def seconds(self) -> Annotated[float | None, "How long it took, in seconds; null while it is in progress."]:
        """Return how long the drill took; None while it is in progress."""
        return (self.closed_at - self.created_at).total_seconds() if self.closed_at else None


@dataclass(frozen=True, slots=True)
class DrillStep:
    """One completed step; `seconds` is the time since the step before it (None for the first). `detail` may be
    empty.
    """

    label: Reason
    at: datetime
    seconds: Annotated[float | None, "Since the step before; null at the first."]
    detail: Reason | str = ""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Report of one machine in a drill. `left_out` states why the machine took no part, as text that follows its name;
    empty if it took part.
    """

    machine: MachineRef
    hit: Annotated[bool, "The event names it, so its hooks run."]
    left_out: Annotated[Reason | str, "Why it takes no part; empty where it does."]
    steps: tuple[DrillStep, ...]

    @property
    def took_part(self) -> Annotated[bool, InApi.SHOWN]:
        return not self.left_out and bool(self.steps)


@dataclass(frozen=True, slots=True)
class DrillReport:
    """Report of a drill. `next_step` states what the user should do next, or what the drill waits for."""

    drill: DrillRow
    steps: Annotated[tuple[DrillStep, ...], "Of the whole, in the order of their times."]
    machines: tuple[MachineReport, ...]
    next_step: Annotated[Reason, "What to do next, or what is waited for, in one sentence."]
    server_time: datetime

    @property
    def took_part(self) -> tuple[MachineReport, ...]:
        return tuple(machine for machine in self.machines if machine.took_part)

    @property
    def left_out(self) -> tuple[MachineReport, ...]:
        return tuple(machine for machine in self.machines if not machine.took_part)


RELATED = ("event__availability_set", "started_by")


def _row(drill: Drill) -> DrillRow:
    event = drill.event
    notice = (event.not_before - drill.created_at).total_seconds() if event.not_before else 0
    return from_row(
        DrillRow,
        drill,
        event_id=event.event_id,
        event_type=event.event_type,
        event_status=EventStatus(event.status),
        set=set_ref(event.availability_set),
        machines=tuple(event.resources),
        notice_seconds=round(notice),
        duration_seconds=event.duration_seconds or 0,
        started_by=drill.started_by.get_username(),
        not_before=event.not_before,
        changed_at=changed_at(drill, event),
    )


def listing(*, drills: QuerySet[Drill] | None = None, **at: Unpack[OrderedAt]) -> Page[DrillRow]:
    """Return a page of drills, newest first. `drills` is a filtered queryset (see `filters.DrillFilter`). One query."""
    rows = (visible(Drill) if drills is None else drills).select_related(*RELATED)
    page = read_list(Segment(rows, "created_at", descending=True), **at)
    return page.map(lambda found: tuple(_row(drill) for drill in found))


def report(*, drill_id: int, now: datetime) -> DrillReport | None:
    """Return one drill by row id with all steps so far; None if it does not exist. Seven queries."""
    drill = visible(Drill).select_related(*RELATED).filter(pk=drill_id).first()
    if drill is None:
        return None
    approvals = list(visible(Approval).filter(event=drill.event_id).select_related("decided_by", "rule").order_by("pk"))
    sent = visible(Order).filter(approval__event=drill.event_id)
    orders = list(sent.select_related("machine").order_by("offered_at"))
    sightings = {row.machine_id: row for row in visible(Sighting).filter(event=drill.event_id)}
    hooks = {row.machine_id: row for row in visible(Preparation).filter(event=drill.event_id)}
    told = visible(Instruction).filter(rehearsal__drill=drill, what="rehearse")
    instructions = {row.rehearsal_id: row for row in told}
    rehearsals = visible(Rehearsal).filter(drill=drill).select_related("machine").defer("machine__compute")
    hit = {name.lower() for name in drill.event.resources}
    machines = []
    for row in rehearsals.order_by("machine__resource_name", "pk"):
        instruction, sighting = instructions.get(row.pk), sightings.get(row.machine_id)
        machines.append(
            MachineReport(
                machine=machine_ref(row.machine),
                hit=row.machine.resource_name.lower() in hit,
                left_out=_left_out(drill, row, instruction, sighting),
                steps=_of_machine(row, instruction, sighting, hooks.get(row.machine_id), orders),
            )
        )
    return DrillReport(
        drill=_row(drill),
        steps=_of_whole(drill, approvals, orders),
        machines=tuple(machines),
        next_step=_next(drill, approvals, announced=bool(sightings)),
        server_time=now,
    )


# Code of a step, its time, and its detail.
Taken = tuple[str, datetime | None, Reason | str]


def _steps(taken: Iterable[Taken]) -> tuple[DrillStep, ...]:
    """Return the steps that were reached, by time."""
    known = sorted(((at, step, detail) for step, at, detail in taken if at is not None), key=lambda step: step[0])
    found: list[DrillStep] = []
    for at, step, detail in known:
        seconds = (at - found[-1].at).total_seconds() if found else None
        found.append(DrillStep(Reason("drill-step", step=step), at, seconds, detail))
    return tuple(found)


def _of_whole(drill: Drill, approvals: Sequence[Approval], orders: Sequence[Order]) -> tuple[DrillStep, ...]:
    event = drill.event
    taken: list[Taken] = [
        ("began", drill.created_at, Reason("drill-step-by", by=drill.started_by.get_username())),
        # The first report of a machine is recorded as a sighting. Before that, `first_seen_at` is the beginning of the
        # drill.
        ("announced", event.first_seen_at if event.version else None, ""),
    ]
    for approval in approvals:
        by = approval.decided_by.get_username() if approval.decided_by else ""
        taken.append(("decided", approval.decided_at, Reason("drill-step-by", by=by)))
        taken.append(("agreed", approval.consented_at, ""))
        taken.append(("accepted", approval.accepted_at, Reason("drill-step-accepted")))
    taken += [("sent", one.offered_at, Reason("drill-step-to", machine=one.machine.resource_name)) for one in orders]
    taken += [("started", event.started_at, ""), ("ended", event.ended_at, "")]
    return _steps([*taken, ("over", drill.closed_at, read_reason(drill.reason))])


def _of_machine(
    row: Rehearsal,
    instruction: Instruction | None,
    sighting: Sighting | None,
    hooks: Preparation | None,
    orders: Sequence[Order],
) -> tuple[DrillStep, ...]:
    taken: list[Taken] = []
    if instruction is not None:
        taken.append(("told", instruction.written_at, ""))
        taken.append(("has-order", instruction.delivered_at, instruction.delivered_by))
    if sighting is not None:
        taken += [
            ("announced", sighting.first_at, ""),
            ("started", sighting.started_at, ""),
            ("gone", sighting.gone_at, "" if row.gone_reason in ("", "over") else row.gone_reason),
        ]
    if hooks is not None:
        taken += [
            ("prepare-began", hooks.prepare_began_at, ""),
            ("prepare-ended", hooks.prepare_ended_at, hooks.prepare_outcome),
            ("recover-began", hooks.recover_began_at, ""),
            ("recover-ended", hooks.recover_ended_at, hooks.recover_outcome),
        ]
    for order in orders:
        if order.machine_id == row.machine_id:
            taken.append(("asked", order.delivered_at, order.delivered_by))
            taken.append(("answered", order.answered_at, str(order.azure_status or order.reason)))
    return _steps(taken)


def _left_out(drill: Drill, row: Rehearsal, instruction: Instruction | None, sighting: Sighting | None) -> Reason | str:
    if row.left_out or sighting is not None or drill.closed_at is None:
        return read_reason(row.left_out)
    delivered = instruction is not None and instruction.delivered_at is not None
    return Reason("drill-unheard-of" if delivered else "drill-unreached")


def _next(drill: Drill, approvals: Sequence[Approval], *, announced: bool) -> Reason:
    if drill.closed_at is not None:
        return Reason("drill-next-over", reason=read_reason(drill.reason))
    if not announced:
        return Reason("drill-next-telling")
    status = EventStatus(drill.event.status)
    if status is EventStatus.ENDED:
        return Reason("drill-next-ended")
    if status is EventStatus.STARTED:
        return Reason("drill-next-started", seconds=drill.event.duration_seconds)
    live = [approval.state for approval in approvals if ApprovalState(approval.state) in LIVE_APPROVALS]
    if not live:
        return Reason("drill-next-decide")
    return Reason("drill-next-second" if live[-1] == ApprovalState.PROPOSED.value else "drill-next-watch")
