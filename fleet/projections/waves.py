"""Progress of waves: the events in order, the state of each, and what each waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Unpack

from django.db.models import Exists, OuterRef, QuerySet

from fleet.domain.approvals.conditions import against_sending
from fleet.domain.events import FAR_AHEAD
from fleet.domain.reasons import Reason, read_reason
from fleet.domain.shapes import from_row
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EventStatus
from fleet.domain.waves import Judgement, Member, Phase, WaveState, judge, member_progress, unless
from fleet.models import Approval, ScheduledEvent, Wave
from fleet.models.facts.decisions import load_members, return_timeout
from fleet.projections.changes import changed_at, with_changes
from fleet.projections.events.rows import BlastRadius, advice, blast_radii
from fleet.projections.pages import OrderedAt, Page, Segment, read_list
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import load_facts, visible


@dataclass(frozen=True, slots=True)
class WaveMember:
    """One event of a wave. `sentence` states what the event waits for, or its result. `missing` are machines that are
    not live again after it.
    """

    approval_id: int
    turn: int
    event_id: str
    event_type: str
    event_status: EventStatus
    resources: Annotated[tuple[str, ...], "Names, as Azure states them."]
    set: SetRef
    not_before: datetime | None
    approval_state: ApprovalState
    phase: Phase
    missing: Annotated[tuple[str, ...], "Machines that have not come back yet."]
    sentence: Annotated[Reason, "What it waits for, or how it went."]


@dataclass(frozen=True, slots=True)
class WaveRow:
    """One wave. `reason` states what a running wave waits for, or how the wave ended."""

    id: int
    service: str
    state: WaveState
    by: str
    via: Annotated[str, "Through what: `page` or `api`."]
    token_name: str
    comment: str
    created_at: datetime
    closed_at: datetime | None
    reason: Annotated[Reason | str, "What it waits for; once it is over, how it ended."]
    members: Annotated[tuple[WaveMember, ...], "In turn."]
    # Last change of the wave, its approvals and their events, by the database's clock.
    changed_at: datetime
    server_time: datetime

    @property
    def running(self) -> bool:
        return self.state is WaveState.RUNNING

    @property
    def waiting(self) -> int:
        return sum(member.phase is Phase.WAITS for member in self.members)

    @property
    def back(self) -> int:
        return sum(member.phase is Phase.BACK for member in self.members)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An event that can be added to a new wave. `far_ahead`: the event is due in more than a day."""

    event_id: str
    version: int
    event_type: str
    resources: tuple[str, ...]
    set: SetRef
    not_before: datetime | None
    blast: BlastRadius
    far_ahead: bool


# Of a set, as a member of a wave names it.
OF_SET = ("id", "kind", "name", "suffix", "subscription", "resource_group")


def _shape(waves: Sequence[Wave], *, now: datetime) -> tuple[WaveRow, ...]:
    members = load_members([wave.pk for wave in waves], now=now)
    found = {wave.pk: judge(members[wave.pk], now=now, return_timeout=return_timeout()) for wave in waves}
    running = [wave.pk for wave in waves if wave.state == WaveState.RUNNING.value]
    of_running = [(member, found[wave_id].approval_id) for wave_id in running for member in members[wave_id]]
    turns = {member.event_pk: member for member, approval_id in of_running if member.approval_id == approval_id}
    # A member whose turn it is but that was not sent is blocked by a guard: the page names it.
    facts = load_facts(list(turns), now=now) if turns else {}
    against = {
        member.approval_id: standing[0].sentence
        for pk, member in turns.items()
        if member.decision and (standing := against_sending(member.decision, facts[pk], now=now))
    }
    return tuple(_row(wave, members[wave.pk], found[wave.pk], against, now=now) for wave in waves)


def _row(
    wave: Wave, members: Sequence[Member], found: Judgement, against: Mapping[int, Reason | str], *, now: datetime
) -> WaveRow:
    running = wave.state == WaveState.RUNNING.value
    blocked_by = against.get(found.approval_id or 0, "")
    return from_row(
        WaveRow,
        wave,
        by=wave.created_by.get_username(),
        changed_at=changed_at(wave),
        reason=unless(found.reason, blocked_by) if running else read_reason(wave.reason),
        members=tuple(
            from_row(
                WaveMember,
                member,
                set=SetRef(*(getattr(member, f"set_{name}") for name in OF_SET)),
                missing=member.missing if member.phase is Phase.RETURNING else (),
                sentence=member_progress(member, members, found, running=running, against=blocked_by),
            )
            for member in members
        ),
        server_time=now,
    )


def listing(*, now: datetime, waves: QuerySet[Wave] | None = None, **at: Unpack[OrderedAt]) -> Page[WaveRow]:
    """Return a page of running waves, followed by ended ones, newest first. Up to four queries, and eight more if a
    guard blocks the next event of a wave.
    """
    rows = with_changes((visible(Wave) if waves is None else waves).select_related("created_by"))
    running = Segment(rows.filter(state=WaveState.RUNNING.value), "created_at", descending=True)
    over = Segment(rows.exclude(state=WaveState.RUNNING.value), "created_at", descending=True)
    return read_list(running, over, rows=rows, **at).map(lambda found: _shape(found, now=now))


def detail(*, wave_id: int, now: datetime) -> WaveRow | None:
    """Return one wave by row id; None if it does not exist. Three queries, and eight more if a guard blocks its next
    event.
    """
    wave = with_changes(visible(Wave)).select_related("created_by").filter(pk=wave_id).first()
    return _shape([wave], now=now)[0] if wave else None


def candidates(*, now: datetime, service: str = "", set_id: int | None = None) -> tuple[Candidate, ...]:
    """Return the undecided open events of a service or a set that can form a wave, soonest first. Two queries."""
    rows = visible(ScheduledEvent).filter(~advice(), status=EventStatus.SCHEDULED.value, drill=False)
    rows = rows.filter(availability_set__service=service) if service else rows.filter(availability_set_id=set_id)
    live = [state.value for state in LIVE_APPROVALS]
    decided = Exists(visible(Approval).filter(event=OuterRef("pk"), state__in=live, decided_by__isnull=False))
    rows = rows.exclude(decided).select_related("availability_set").order_by("not_before", "pk")
    found = [row for row in rows[:100] if row.not_before is None or row.not_before > now]
    blasts = blast_radii(found, now=now)
    return tuple(
        from_row(
            Candidate,
            row,
            set=set_ref(row.availability_set),
            blast=blasts[row.pk],
            far_ahead=row.not_before is not None and row.not_before - now > FAR_AHEAD,
        )
        for row in found
    )
