"""Processing of machines' reports about their hooks."""

from collections.abc import Iterable, Sequence
from typing import Any

from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.intake import BAD_OUTCOMES
from fleet.domain.texts import readable, tidy
from fleet.domain.timeline import EntryKind
from fleet.models import Machine, Preparation, ScheduledEvent
from fleet.operations.intake.keep import AgentReport
from fleet.operations.timeline.entries import tell

MAX_OUTPUT = 4000
HookReport = AgentReport[wire.HookData]


def _event_id(report: HookReport) -> str:
    return report.data.event_id.strip().upper()


def events_of(reports: Iterable[HookReport]) -> set[int]:
    """Return the row ids of the events that these reports are about, without unknown events."""
    ids = {_event_id(report) for report in reports}
    return set(ScheduledEvent.objects.filter(event_id__in=ids).values_list("pk", flat=True)) if ids else set()


def take(reports: Sequence[HookReport]) -> None:
    """Process reports about hooks, oldest first for each machine. A report older than the stored one changes nothing.

    A report from a machine of another set is ignored, because an EventId is no secret.
    """
    named = ScheduledEvent.objects.filter(event_id__in={_event_id(report) for report in reports})
    events = {event.event_id: event for event in named}
    rows = Machine.every.filter(pk__in={report.machine_id for report in reports})
    machines = {pk: (name, home) for pk, name, home in rows.values_list("pk", "resource_name", "availability_set")}
    stored = Preparation.objects.filter(event__in=events.values(), machine_id__in=machines)
    known = {(row.event_id, row.machine_id): row for row in stored}
    for report in sorted(reports, key=lambda report: (report.machine_id, report.position)):
        name, home = machines[report.machine_id]
        event = events.get(_event_id(report))
        if event is not None and event.availability_set_id != home:
            event = None
        if event is not None:
            new = Preparation(event_id=event.pk, machine_id=report.machine_id, epoch=0, seq=0)
            row = known.setdefault((event.pk, report.machine_id), new)
            if report.data.again and _known(row, report.data):
                row.epoch, row.seq = max(report.position, (row.epoch, row.seq))
                continue
            if report.position > (row.epoch, row.seq):
                _merge(row, report)
        # That a folder holds nothing is shown on the page and is no news.
        if report.data.outcome != "nothing":
            _record(report, name, event)
    for row in known.values():
        row.save()


def _known(row: Preparation, data: wire.HookData) -> bool:
    """Return whether the stored row already contains the step of this report."""
    match data.step:
        case "begin":
            return row.prepare_began_at is not None
        case "end":
            return row.prepare_outcome == data.outcome
        case "plan":
            return row.prepare_planned_at == data.planned_at
        case _:
            return bool(row.prepare_failed_hook)


def _merge(row: Preparation, report: HookReport) -> None:
    row.epoch, row.seq = report.position
    data, phase = report.data, report.data.phase
    if phase not in wire.HOOK_PHASES:
        return
    if phase == wire.PREPARE and data.step in ("plan", "begin"):
        # Azure listed the event again after the machine had recovered.
        row.recover_outcome = ""
    if data.step == "plan":
        row.prepare_planned_at, row.prepare_outcome = data.planned_at, ""
    elif data.step == "begin":
        setattr(row, f"{phase}_outcome", "running")
        setattr(row, f"{phase}_began_at", report.at)
        setattr(row, f"{phase}_ended_at", None)
        setattr(row, f"{phase}_failed_hook", "")
        row.late = row.late or data.late
    elif data.step == "hook" and data.outcome in BAD_OUTCOMES and not getattr(row, f"{phase}_failed_hook"):
        setattr(row, f"{phase}_failed_hook", data.hook[:200])
    elif data.step == "end":
        setattr(row, f"{phase}_outcome", data.outcome[:50])
        setattr(row, f"{phase}_ended_at", report.at)


def _record(report: HookReport, name: str, event: ScheduledEvent | None) -> None:
    data = report.data
    match data.step:
        case "begin":
            kind = EntryKind.HOOK_LATE if data.late else EntryKind.HOOKS_BEGAN
        case "end":
            kind = EntryKind.HOOKS_ENDED
        case "plan":
            kind = EntryKind.HOOKS_PLANNED
        case _:
            kind = EntryKind.HOOK_SUCCEEDED if data.outcome == "succeeded" else EntryKind.HOOK_FAILED
    tell(
        kind,
        machine_actor(name),
        at=report.at,
        event_id=event.pk if event else None,
        set_id=event.availability_set_id if event else None,
        machine_id=report.machine_id,
        **hook_data(data.hook, data.outcome, data.exit_status, data.seconds, data.output),
        phase=data.phase[:20],
        **({"planned_at": data.planned_at} if data.planned_at else {}),
    )


def hook_data(hook: str, outcome: str, exit_status: int | None, seconds: float | None, output: str) -> dict[str, Any]:
    """Return the result of a hook as data of a timeline entry."""
    return {
        "hook": tidy(hook)[:200],
        "outcome": outcome[:50],
        "exit_status": exit_status,
        "seconds": seconds,
        "output": readable(output)[-MAX_OUTPUT:],
    }
