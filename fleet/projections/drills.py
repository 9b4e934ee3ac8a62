"""Drills and their reports: the times of each step, of the whole and of each machine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from fleet.domain.drills import OUTCOME_LOOKS, RUNNING_LOOK, Outcome
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EventStatus, Look
from fleet.models import Approval, Drill, Instruction, Order, Preparation, Rehearsal, Sighting
from fleet.projections.paging import Page, Segment, read_page
from fleet.projections.refs import MachineRef, SetRef, machine_ref, set_ref


@dataclass(frozen=True, slots=True)
class DrillRow:
    """One drill. `outcome` is None while it goes on; `machines` are those that its event names."""

    id: int
    event_id: str
    event_type: str
    event_status: EventStatus
    set: SetRef
    machines: tuple[str, ...]
    notice_seconds: int
    duration_seconds: int
    started_by: str
    via: str
    token_name: str
    comment: str
    created_at: datetime
    not_before: datetime | None
    ends_by: datetime
    closed_at: datetime | None
    outcome: Outcome | None
    reason: str

    @property
    def look(self) -> Look:
        return OUTCOME_LOOKS[self.outcome] if self.outcome else RUNNING_LOOK

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it goes on."""
        return (self.closed_at - self.created_at).total_seconds() if self.closed_at else None


@dataclass(frozen=True, slots=True)
class DrillStep:
    """One step that was taken, with `seconds` since the step before it (None at the first). `detail` may be empty."""

    label: str
    at: datetime
    seconds: float | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """One machine's part. `left_out` says why it took none, in words that fit after its name; else it is empty."""

    machine: MachineRef
    hit: bool
    left_out: str
    steps: tuple[DrillStep, ...]

    @property
    def took_part(self) -> bool:
        return not self.left_out and bool(self.steps)


@dataclass(frozen=True, slots=True)
class DrillReport:
    """`next_step` says in one sentence what to do, or what is waited for."""

    drill: DrillRow
    steps: tuple[DrillStep, ...]
    machines: tuple[MachineReport, ...]
    next_step: str
    server_time: datetime

    @property
    def took_part(self) -> tuple[MachineReport, ...]:
        return tuple(machine for machine in self.machines if machine.took_part)

    @property
    def left_out(self) -> tuple[MachineReport, ...]:
        return tuple(machine for machine in self.machines if not machine.took_part)


def _with_event() -> QuerySet[Drill]:
    return Drill.objects.select_related("event__availability_set", "started_by")


def _row(drill: Drill) -> DrillRow:
    event = drill.event
    notice = (event.not_before - drill.created_at).total_seconds() if event.not_before else 0
    return DrillRow(
        id=drill.pk,
        event_id=event.event_id,
        event_type=event.event_type,
        event_status=EventStatus(event.status),
        set=set_ref(event.availability_set),
        machines=tuple(event.resources),
        notice_seconds=round(notice),
        duration_seconds=event.duration_seconds or 0,
        started_by=drill.started_by.get_username(),
        via=drill.via,
        token_name=drill.token_name,
        comment=drill.comment,
        created_at=drill.created_at,
        not_before=event.not_before,
        ends_by=drill.ends_by,
        closed_at=drill.closed_at,
        outcome=Outcome(drill.outcome) if drill.outcome else None,
        reason=drill.reason,
    )


def listing(*, set_id: int | None = None, cursor: str | None = None, size: int | None = None) -> Page[DrillRow]:
    """Drills, newest first. One query."""
    rows = _with_event()
    if set_id is not None:
        rows = rows.filter(event__availability_set=set_id)
    page = read_page([Segment(rows, "created_at", descending=True)], cursor=cursor, size=size)
    return page.map(lambda found: tuple(_row(drill) for drill in found))


def report(*, drill_id: int, now: datetime) -> DrillReport | None:
    """One drill with every step so far. Seven queries."""
    drill = _with_event().filter(pk=drill_id).first()
    if drill is None:
        return None
    approvals = list(Approval.objects.filter(event=drill.event_id).select_related("decided_by", "rule").order_by("pk"))
    orders = list(Order.objects.filter(approval__event=drill.event_id).select_related("machine").order_by("offered_at"))
    sightings = {row.machine_id: row for row in Sighting.objects.filter(event=drill.event_id)}
    hooks = {row.machine_id: row for row in Preparation.objects.filter(event=drill.event_id)}
    told = {row.rehearsal_id: row for row in Instruction.objects.filter(rehearsal__drill=drill, what="rehearse")}
    rehearsals = (
        Rehearsal.objects.filter(drill=drill)
        .select_related("machine")
        .defer("machine__compute")
        .order_by("machine__resource_name", "pk")
    )
    hit = {name.lower() for name in drill.event.resources}
    machines = tuple(
        MachineReport(
            machine=machine_ref(row.machine),
            hit=row.machine.resource_name.lower() in hit,
            left_out=_left_out(drill, row, told.get(row.pk), sightings.get(row.machine_id)),
            steps=_of_machine(
                drill, row, told.get(row.pk), sightings.get(row.machine_id), hooks.get(row.machine_id), orders
            ),
        )
        for row in rehearsals
    )
    return DrillReport(
        drill=_row(drill),
        steps=_of_whole(drill, approvals, orders),
        machines=machines,
        next_step=_next(drill, approvals, announced=bool(sightings)),
        server_time=now,
    )


def _steps(taken: Iterable[tuple[str, datetime | None, str]]) -> tuple[DrillStep, ...]:
    """The steps that have a time, in the order of their times."""
    known = sorted(((at, label, detail) for label, at, detail in taken if at is not None), key=lambda step: step[0])
    found: list[DrillStep] = []
    for at, label, detail in known:
        seconds = (at - found[-1].at).total_seconds() if found else None
        found.append(DrillStep(label, at, seconds, detail))
    return tuple(found)


def _of_whole(drill: Drill, approvals: Sequence[Approval], orders: Sequence[Order]) -> tuple[DrillStep, ...]:
    event = drill.event
    taken: list[tuple[str, datetime | None, str]] = [("Began", drill.created_at, f"by {drill.started_by}")]
    # Its first word is a sighting's; before that the event stands at the beginning of the drill.
    taken.append(("Announced", event.first_seen_at if event.version else None, ""))
    for approval in approvals:
        taken.append(("Decided", approval.decided_at, f"by {approval.decided_by or 'a rule'}"))
        taken.append(("Second person agreed", approval.consented_at, ""))
    taken += [("Order sent", order.offered_at, f"to {order.machine.resource_name}") for order in orders]
    taken += [("Accepted", approval.accepted_at, "by a rehearsal, not by Azure") for approval in approvals]
    taken += [("Started", event.started_at, ""), ("Ended", event.ended_at, ""), ("Over", drill.closed_at, drill.reason)]
    return _steps(taken)


def _of_machine(
    drill: Drill,
    row: Rehearsal,
    told: Instruction | None,
    sighting: Sighting | None,
    hooks: Preparation | None,
    orders: Sequence[Order],
) -> tuple[DrillStep, ...]:
    taken: list[tuple[str, datetime | None, str]] = []
    if told is not None:
        taken += [("Told", told.written_at, ""), ("Has the order", told.delivered_at, told.delivered_by)]
    if sighting is not None:
        taken += [
            ("Announced", sighting.first_at, ""),
            ("Started", sighting.started_at, ""),
            ("Gone", sighting.gone_at, "" if row.gone_reason in ("", "over") else row.gone_reason),
        ]
    if hooks is not None:
        taken += [
            ("Prepare hooks began", hooks.prepare_began_at, ""),
            ("Prepare hooks ended", hooks.prepare_ended_at, hooks.prepare_outcome),
            ("Recover hooks began", hooks.recover_began_at, ""),
            ("Recover hooks ended", hooks.recover_ended_at, hooks.recover_outcome),
        ]
    for order in orders:
        if order.machine_id == row.machine_id:
            taken.append(("Asked to start it", order.delivered_at, order.delivered_by))
            taken.append(("Answered", order.answered_at, str(order.azure_status or order.reason)))
    return _steps(taken)


def _left_out(drill: Drill, row: Rehearsal, told: Instruction | None, sighting: Sighting | None) -> str:
    if row.left_out or sighting is not None or drill.closed_at is None:
        return row.left_out
    if told is not None and told.delivered_at is not None:
        return "it had the order, and nothing more was heard of it"
    return "the order never reached it"


def _next(drill: Drill, approvals: Sequence[Approval], *, announced: bool) -> str:
    if drill.closed_at is not None:
        return f"It is over. {drill.reason}"
    if not announced:
        return "The machines are being told: in a moment the event stands in the queue."
    status = EventStatus(drill.event.status)
    if status is EventStatus.ENDED:
        return "The event is over. The drill closes as soon as the recover hooks have ended."
    if status is EventStatus.STARTED:
        return f"It has started, and ends by itself after {drill.event.duration_seconds} s."
    live = [approval for approval in approvals if approval.state in {state.value for state in LIVE_APPROVALS}]
    if live and live[-1].state == ApprovalState.PROPOSED.value:
        return "It is proposed: a second person has to agree, as in earnest."
    if live:
        return "It is approved: watch it start."
    return "Decide now, as you would in earnest: on the event's page, or through the API."
