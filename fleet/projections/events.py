"""Scheduled events, as people see them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from fleet.domain.conditions import not_ready
from fleet.domain.consequences import FAR_AHEAD, advice, if_nobody_acts
from fleet.domain.events import facts_of
from fleet.domain.guards import EventFacts, Guard, Need, guards, who_is_asked
from fleet.domain.places import Place
from fleet.domain.preparing import PREPARED_LOOKS, Prepared, prepared_of
from fleet.domain.presence import Limits
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, Certainty, EndedAs, EventStatus, Look, Presence
from fleet.models import Drill, Machine, Preparation, ScheduledEvent, Sighting
from fleet.models.facts import facts_of as known_facts
from fleet.models.facts import machine_presence, presence_limits
from fleet.projections import approvals, attention, relaying
from fleet.projections.approvals import ApprovalRow
from fleet.projections.attention import NOBODY, Attention, ClaimRow, HoldRow
from fleet.projections.paging import Page, Segment, read_page
from fleet.projections.refs import MachineRef, SetRef, machine_ref, plain_name, set_ref
from fleet.projections.relaying import ByHand

OPEN = (EventStatus.SCHEDULED.value, EventStatus.STARTED.value)


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event. `seconds_left` until NotBefore, never below 0, None once it is not scheduled or has no time."""

    id: int
    event_id: str
    event_type: str
    resource_type: str
    status: EventStatus
    ended_as: EndedAs | None
    certainty: Certainty | None
    approved_elsewhere: bool
    source: str
    description: str
    duration_seconds: int | None
    not_before: datetime | None
    resources: tuple[str, ...]
    set: SetRef
    first_seen_at: datetime
    notice_seconds: int | None
    started_at: datetime | None
    ended_at: datetime | None
    watched: bool
    warnings: tuple[str, ...]
    version: int
    # The live approval, else the newest one.
    approval: ApprovalRow | None
    claim: ClaimRow | None
    hold: HoldRow | None
    # A rehearsal: Azure knows nothing of it.
    drill: bool
    needs_decision: bool
    if_nobody_acts: str
    seconds_left: float | None
    server_time: datetime

    @property
    def effect(self) -> str:
        return facts_of(self.event_type).effect

    @property
    def documented_notice_seconds(self) -> int | None:
        return facts_of(self.event_type).notice_seconds

    @property
    def open(self) -> bool:
        return self.status is not EventStatus.ENDED

    @property
    def started_seconds(self) -> float | None:
        """How long it has been, or was, Started; None before that."""
        if self.started_at is None:
            return None
        return max(0.0, ((self.ended_at or self.server_time) - self.started_at).total_seconds())

    @property
    def approval_to_start_seconds(self) -> float | None:
        """From our approval to Started; None without one, or while it has not started."""
        granted = self.approval.granted_at if self.approval and self.approval.accepted_at else None
        if self.started_at is None or granted is None:
            return None
        return max(0.0, (self.started_at - granted).total_seconds())

    @property
    def past_not_before(self) -> bool:
        return self.status is EventStatus.SCHEDULED and self.seconds_left == 0

    @property
    def far_ahead(self) -> bool:
        return self.seconds_left is not None and self.seconds_left > FAR_AHEAD.total_seconds()


@dataclass(frozen=True, slots=True)
class SightingRow:
    """One machine's newest word. `says`: `Scheduled`, `Started`, `no longer listed` or Azure's own other word."""

    machine: MachineRef
    presence: Presence
    foreign: bool
    says: str
    first_at: datetime
    # After the first machine of all that saw it.
    delay_seconds: float
    started_at: datetime | None
    listed_at: datetime
    gone_at: datetime | None
    incarnation: int | None
    # Fields in which this machine differs from the event as computed.
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HitMachine:
    """A name in Resources, with the machine behind it if one is known."""

    name: str
    machine: MachineRef | None
    presence: Presence | None
    fault_domain: int | None
    update_domain: int | None
    zone: str
    prepared: Prepared
    # The first hook of the newest phase that did not succeed.
    failed_hook: str

    @property
    def prepared_look(self) -> Look:
        return PREPARED_LOOKS[self.prepared]


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """`stay_up` counts live machines of the set that Resources does not name; `total` those that are not gone."""

    stay_up: int
    total: int
    hit: int
    not_live: int

    @property
    def summary(self) -> str:
        """In words, such as `4 of 6 stay up`."""
        if not self.total:
            return "no machine of the set is known"
        return f"{self.stay_up} of {self.total} {'stays' if self.stay_up == 1 else 'stay'} up"


@dataclass(frozen=True, slots=True)
class EventDetail:
    """`not_seen_by` are machines of the set that are not gone; `asked` stand in the order in which they will be."""

    event: EventRow
    effect: str
    lost: str
    documented_notice_seconds: int | None
    sightings: tuple[SightingRow, ...]
    approvals: tuple[ApprovalRow, ...]
    guards: tuple[Guard, ...]
    hit: tuple[HitMachine, ...]
    blast: BlastRadius
    asked: tuple[MachineRef, ...]
    seen_by: tuple[MachineRef, ...]
    not_seen_by: tuple[MachineRef, ...]
    other_open: tuple[str, ...]
    # Where it lies, as far as rights go.
    place: Place
    # Machines in Resources that are not prepared; "when prepared" waits for them.
    not_ready: tuple[str, ...]
    # What can be done without an agent; None while agents do it.
    by_hand: ByHand | None
    advice: str
    # Of the drill that it belongs to; None for real events.
    drill_id: int | None
    server_time: datetime

    @property
    def blocked(self) -> bool:
        return any(guard.blocks for guard in self.guards)

    @property
    def blocked_for_all(self) -> bool:
        """Nobody may go past it, whatever the reason."""
        return any(guard.blocks and not guard.overridable for guard in self.guards)

    @property
    def needs_second(self) -> bool:
        return any(guard.needs is Need.SECOND for guard in self.guards)

    @property
    def seen_summary(self) -> str:
        """In words, such as `seen by 5 of 6, not by vm6`."""
        total = len(self.seen_by) + len(self.not_seen_by)
        text = f"seen by {len(self.seen_by)} of {total}"
        names = [machine.resource_name for machine in self.not_seen_by]
        if not names:
            return text
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"{text}, not by {shown}"


def _seconds_left(event: ScheduledEvent, now: datetime) -> float | None:
    if event.status != EventStatus.SCHEDULED.value or event.not_before is None:
        return None
    return round(max(0.0, (event.not_before - now).total_seconds()), 3)


def _current(rows: Sequence[ApprovalRow]) -> ApprovalRow | None:
    return next((row for row in rows if row.state in LIVE_APPROVALS), rows[0] if rows else None)


def event_row(
    event: ScheduledEvent, approval_rows: Sequence[ApprovalRow], *, now: datetime, seen_to: Attention = NOBODY
) -> EventRow:
    """Shape one event loaded with its set. No query."""
    approval = _current(approval_rows)
    status = EventStatus(event.status)
    in_time = event.not_before is None or event.not_before > now
    held = seen_to.hold is not None and not seen_to.hold.by_rule
    # As `attention.needs_decision` asks the database.
    undecided = not held if approval is None or not approval.live else approval.state is ApprovalState.PROPOSED
    return EventRow(
        id=event.pk,
        event_id=event.event_id,
        event_type=event.event_type,
        resource_type=event.resource_type,
        status=status,
        ended_as=EndedAs(event.ended_as) if event.ended_as else None,
        certainty=Certainty(event.certainty) if event.certainty else None,
        approved_elsewhere=event.approved_elsewhere,
        source=event.source,
        description=event.description,
        duration_seconds=event.duration_seconds,
        not_before=event.not_before,
        resources=tuple(event.resources),
        set=set_ref(event.availability_set),
        first_seen_at=event.first_seen_at,
        notice_seconds=event.notice_seconds,
        started_at=event.started_at,
        ended_at=event.ended_at,
        watched=event.watched,
        warnings=tuple(event.warnings),
        version=event.version,
        approval=approval,
        claim=seen_to.claim,
        hold=seen_to.hold,
        drill=event.drill,
        needs_decision=status is EventStatus.SCHEDULED and in_time and undecided,
        if_nobody_acts=if_nobody_acts(
            status=status, not_before=event.not_before, watched=event.watched, now=now, drill=event.drill
        ),
        seconds_left=_seconds_left(event, now),
        server_time=now,
    )


def event_rows(events: Sequence[ScheduledEvent], *, now: datetime) -> tuple[EventRow, ...]:
    """Shape events loaded with their sets. Three queries, for the approvals, claims and holds."""
    decided = approvals.by_event(events, now=now)
    seen_to = attention.of_events([event.pk for event in events])
    return tuple(
        event_row(event, decided.get(event.pk, ()), now=now, seen_to=seen_to.get(event.pk, NOBODY)) for event in events
    )


def listing(
    *,
    now: datetime,
    events: QuerySet[ScheduledEvent] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[EventRow]:
    """Open events by time left, then ended ones, newest first. At most five queries.

    `events` is a filtered queryset (see `filters.EventFilter`).
    """
    rows = ScheduledEvent.objects.all() if events is None else events
    rows = rows.select_related("availability_set")
    still_open: QuerySet[ScheduledEvent] = rows.filter(status__in=OPEN).annotate(
        due=Coalesce("not_before", "first_seen_at")
    )
    ended = rows.filter(status=EventStatus.ENDED.value)
    segments = [Segment(still_open, "due"), Segment(ended, "first_seen_at", descending=True)]
    page = read_page(segments, cursor=cursor, size=size)
    return page.map(lambda found: event_rows(found, now=now))


def ids_by_time(events: QuerySet[ScheduledEvent], *, limit: int) -> list[str]:
    """EventIds of a filtered queryset by time left, those without a time first. One query."""
    rows = events.order_by(F("not_before").asc(nulls_first=True), "pk")
    return list(rows.values_list("event_id", flat=True)[:limit])


def blast_radius(resources: Iterable[str], machines: Iterable[tuple[str, Presence]]) -> BlastRadius:
    """What is left of a set, from (resource name, presence) of its machines."""
    named = {plain_name(name) for name in resources}
    there = [(plain_name(name), presence) for name, presence in machines if presence is not Presence.GONE]
    return BlastRadius(
        stay_up=sum(presence is Presence.LIVE and name not in named for name, presence in there),
        total=len(there),
        hit=len(named),
        not_live=sum(presence is not Presence.LIVE for _, presence in there),
    )


def blast_radii(events: Sequence[ScheduledEvent], *, now: datetime) -> dict[int, BlastRadius]:
    """The blast radius of each event, by primary key. One query."""
    limits = presence_limits()
    by_set: dict[int, list[tuple[str, Presence]]] = defaultdict(list)
    machines = Machine.objects.filter(availability_set__in={event.availability_set_id for event in events})
    for machine in machines.select_related("presence", "head").defer("compute"):
        presence = machine_presence(machine, now=now, limits=limits)
        by_set[machine.availability_set_id].append((machine.resource_name, presence))
    return {event.pk: blast_radius(event.resources, by_set[event.availability_set_id]) for event in events}


def _sighting_row(sighting: Sighting, event: ScheduledEvent, *, now: datetime, limits: Limits) -> SightingRow:
    differs = []
    if sighting.gone_at is None:
        if sighting.event_type and sighting.event_type != event.event_type:
            differs.append(f"type {sighting.event_type}")
        if sighting.not_before and event.not_before and sighting.not_before != event.not_before:
            differs.append(f"NotBefore {sighting.not_before:%H:%M:%S} UTC")
        if sighting.resources and sighting.resources != event.resources:
            differs.append("Resources " + ", ".join(sighting.resources))
    return SightingRow(
        machine=machine_ref(sighting.machine),
        presence=machine_presence(sighting.machine, now=now, limits=limits),
        foreign=sighting.foreign,
        says="no longer listed" if sighting.gone_at else sighting.status or "listed",
        first_at=sighting.first_at,
        delay_seconds=max(0.0, (sighting.first_at - event.first_seen_at).total_seconds()),
        started_at=sighting.started_at,
        listed_at=sighting.listed_at,
        gone_at=sighting.gone_at,
        incarnation=sighting.gone_incarnation if sighting.gone_at else sighting.listed_incarnation,
        differs=tuple(differs),
    )


def _hit(
    name: str,
    machines: Sequence[Machine],
    preparations: Mapping[int, Preparation],
    *,
    now: datetime,
    limits: Limits,
) -> HitMachine:
    known = [machine for machine in machines if plain_name(machine.resource_name) == plain_name(name)]
    # Of several machines with one name it is the one that is most present.
    order = list(Presence)
    ranked = sorted(known, key=lambda machine: order.index(machine_presence(machine, now=now, limits=limits)))
    machine = ranked[0] if ranked else None
    row = preparations.get(machine.pk) if machine else None
    return HitMachine(
        name=name,
        machine=machine_ref(machine) if machine else None,
        presence=machine_presence(machine, now=now, limits=limits) if machine else None,
        fault_domain=machine.fault_domain if machine else None,
        update_domain=machine.update_domain if machine else None,
        zone=machine.zone if machine else "",
        prepared=prepared_of(prepare_outcome=row.prepare_outcome, recover_outcome=row.recover_outcome)
        if row
        else Prepared.UNKNOWN,
        failed_hook=(row.recover_failed_hook or row.prepare_failed_hook) if row else "",
    )


def detail(*, event_id: str, now: datetime) -> EventDetail | None:
    """One event, by its EventId in any case. A fixed number of queries."""
    event = ScheduledEvent.objects.select_related("availability_set").filter(event_id=event_id.upper()).first()
    if event is None:
        return None
    limits = presence_limits()
    approval_rows = approvals.by_event([event], now=now).get(event.pk, ())
    sightings = list(
        event.sightings.select_related("machine__presence", "machine__head")
        .defer("machine__compute")
        .order_by("first_at", "pk")
    )
    machines = list(
        Machine.objects.filter(availability_set_id=event.availability_set_id)
        .select_related("presence", "head")
        .defer("compute")
        .order_by("resource_name", "pk")
    )
    preparing = list(Preparation.objects.filter(event=event))
    facts: EventFacts = known_facts([event], {event.availability_set_id: machines}, sightings, preparing, now=now)[
        event.pk
    ]
    approval_rows = tuple(relaying.followed(row, facts, now=now) if row.live else row for row in approval_rows)
    presences = [(machine, machine_presence(machine, now=now, limits=limits)) for machine in machines]
    there = [machine for machine, presence in presences if presence is not Presence.GONE]
    witnesses = {sighting.machine_id for sighting in sightings if not sighting.foreign}
    preparations = {row.machine_id: row for row in preparing}
    hit = tuple(_hit(name, machines, preparations, now=now, limits=limits) for name in event.resources)
    known = facts_of(event.event_type)
    approval_rows = tuple(approvals.told_by(row, facts, now=now) for row in approval_rows)
    seen_to = attention.of_events([event.pk]).get(event.pk, NOBODY)
    return EventDetail(
        event=event_row(event, approval_rows, now=now, seen_to=seen_to),
        effect=known.effect,
        lost=known.lost,
        documented_notice_seconds=known.notice_seconds,
        sightings=tuple(_sighting_row(sighting, event, now=now, limits=limits) for sighting in sightings),
        approvals=approval_rows,
        guards=tuple(guards(facts, now=now)),
        hit=hit,
        blast=blast_radius(event.resources, [(machine.resource_name, presence) for machine, presence in presences]),
        asked=tuple(MachineRef(id=m.machine_id, resource_name=m.name) for m in who_is_asked(facts)),
        seen_by=tuple(machine_ref(machine) for machine in machines if machine.pk in witnesses),
        not_seen_by=tuple(machine_ref(machine) for machine in there if machine.pk not in witnesses),
        other_open=tuple(facts.other_open),
        place=facts.place,
        not_ready=tuple(not_ready(facts)),
        by_hand=relaying.by_hand(facts, _current(approval_rows), machines, now=now),
        advice=advice(status=EventStatus(event.status), source=event.source, not_before=event.not_before, now=now),
        drill_id=Drill.objects.filter(event=event).values_list("pk", flat=True).first() if event.drill else None,
        server_time=now,
    )
