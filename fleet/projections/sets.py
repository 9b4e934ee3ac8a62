"""Read models of availability sets, with their machines and domains."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Unpack

from django.db.models import Count, Q, QuerySet

from fleet.domain.reasons import Reason
from fleet.domain.requirements import LOWERING_WAITS
from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import InApi, from_row, grouped, names_of
from fleet.domain.states import Presence
from fleet.models import AvailabilitySet, Machine, ScheduledEvent, Sighting
from fleet.models.index_scan import IndexRange, first_of_each
from fleet.projections.changes import changed_at, with_changes
from fleet.projections.counts import SetCounts, counts_of_sets
from fleet.projections.events.rows import OPEN, EventRow, event_rows
from fleet.projections.machines import MachineRow, OpenEventBrief, agentless, machine_rows
from fleet.projections.pages import At, OrderedAt, Page, Segment, read_list
from fleet.projections.refs import PresenceCounts, SetRef, count_presence, future, label_of, plain_name, set_ref
from fleet.projections.set_summaries import MOST, Domains, SetSummary, first_machines, set_summaries
from fleet.projections.visibility import listed_sets, visible

# At most this many machines are shown one by one, and sets offered in a form.
MOST_SHOWN, MOST_OFFERED = 100, 500
# At most this many open events of a set are read by time left: for a line, for a set in a list, and for one set. A
# silent machine may leave any number of them open.
OPEN_IN_LINE, OPEN_IN_LIST, OPEN_IN_SET = 2, 20, 100


@dataclass(frozen=True, slots=True)
class GridMachine:
    """One machine in the domain grid. `hit_by` are the open events that name it, the soonest first."""

    machine: MachineRow
    hit_by: tuple[OpenEventBrief, ...]


@dataclass(frozen=True, slots=True)
class GridRow:
    """One fault domain; `cells` contains the machines of each update domain, in the order of the grid's columns."""

    fault_domain: int | None
    cells: tuple[tuple[GridMachine, ...], ...]
    # For a large set instead: the presence counts of each update domain.
    counts: tuple[PresenceCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """Table of machines by fault domain and update domain. The domain None means "not stated" and comes last."""

    update_domains: tuple[int | None, ...]
    rows: tuple[GridRow, ...]

    @property
    def in_numbers(self) -> bool:
        """Return whether the grid shows numbers because there are too many machines."""
        return any(row.counts for row in self.rows)

    @property
    def stated(self) -> bool:
        """Return whether at least one machine states its domains."""
        return any(domain is not None for domain in (*self.update_domains, *(row.fault_domain for row in self.rows)))


NO_GRID = Grid((), ())


@dataclass(frozen=True, slots=True)
class MissingMachine:
    """A machine of the imported inventory that has no agent. Texts that the inventory does not state are empty."""

    name: str
    vm_id: Annotated[str, "Empty when the inventory does not say it."]
    zone: str
    region: str
    size: str
    imported_at: Annotated[datetime, "When an inventory last listed it."]


def _label(row: SetRef, machine_names: Sequence[str]) -> Reason | str:
    """Return the set's name; for an unnamed set, the names of its machines, because a vmId means nothing to users."""
    by_machines = row.provisional and machine_names
    return Reason("first-machine", names=list(machine_names)) if by_machines else label_of(row.name, row.name_suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRow(SetRef):
    """One set with its machines by name. A large set has only the first of them, and `omitted` counts the others."""

    service: Annotated[str, "What belongs together for the people who run it; may be empty."]
    machines: Annotated[tuple[MachineRow, ...], "By name, the first 500."]
    omitted: Annotated[
        int, "How many machines are not in `machines`; `GET machines/?set=` has all of them, page by page."
    ]
    without_agent: Annotated[
        tuple[MissingMachine, ...], "Machines that an imported inventory lists and that have no agent."
    ]
    presence: Annotated[PresenceCounts, "How many machines are how present."]
    open_events: Annotated[
        tuple[OpenEventBrief, ...],
        "By time left, at most 100, in a list of sets 20; `GET events/?set=` has all of them.",
    ]
    open_event_count: Annotated[int, "How many open events it has; `GET events/?set=` has all of them."]
    warnings: Annotated[tuple[Reason, ...], "What is wrong with the set, in sentences."]
    grid: Annotated[Grid, InApi.OMITTED]
    second_person: Annotated[bool, "Approving in it always takes a second person."]
    step_up: Annotated[bool, "Approvers must authenticate again to approve in it."]
    exempt_service_accounts: Annotated[bool, "Service accounts may approve in it without authenticating again."]
    min_live: Annotated[int | None, "How many live machines it needs; null if not specified."]
    admits_until: Annotated[
        datetime | None, "Until then its machines that come back without their credential are admitted by themselves."
    ]
    runbook: Annotated[str, "Link that pages of its events show; empty: that of its service."]
    silenced_until: Annotated[datetime | None, "Notifications about its events are held back until then."]
    # Last change of the set, its machines and its events, by the database's clock.
    changed_at: datetime

    @property
    def label(self) -> Reason | str:
        names = [machine.resource_name for machine in self.machines]
        # Names that are not loaded are empty.
        return _label(self, names + [""] * self.omitted if names else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNumbers(SetRef):
    """One set with machine counts instead of machines. `machine_names` are set only for a provisional set."""

    service: str
    machine_names: tuple[str, ...]
    presence: PresenceCounts
    without_agent: int

    @property
    def label(self) -> Reason | str:
        return _label(self, self.machine_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLine(SetNumbers):
    """One set as a row of a long list, with counts instead of machines."""

    open_events: tuple[OpenEventBrief, ...]
    open_event_count: int
    admits_until: datetime | None


def machine_names(**of_sets: Any) -> dict[int, tuple[str, ...]]:
    """Return the names of the machines in provisional sets, by row id of the set. `of_sets` are filters on the sets.
    One query.
    """
    unnamed = visible(Machine).filter(**of_sets, availability_set__kind=PROVISIONAL).order_by("resource_name", "pk")
    found = grouped(unnamed.values_list("availability_set", "resource_name"))
    return {set_id: tuple(names) for set_id, names in found.items()}


@dataclass(frozen=True, slots=True)
class SetDetail:
    set: SetRow
    events: tuple[EventRow, ...]
    server_time: datetime

    @property
    def may_wave(self) -> bool:
        """Return whether a wave can be started here: the set has several undecided events, or one and belongs to a
        service.
        """
        waiting = sum(event.needs_decision for event in self.events)
        return waiting > 1 or (waiting == 1 and bool(self.set.service))


def _grid(machines: Sequence[MachineRow], events: Sequence[OpenEventBrief]) -> Grid:
    hits = grouped((plain_name(name), event) for event in events for name in event.resources)
    present = [machine for machine in machines if machine.presence is not Presence.GONE]
    cells = grouped(
        ((row.fault_domain, row.update_domain), GridMachine(row, tuple(hits[plain_name(row.resource_name)])))
        for row in present
    )
    faults, updates = _axes(list(cells))
    return Grid(updates, tuple(GridRow(fault, tuple(tuple(cells[fault, one]) for one in updates)) for fault in faults))


def _domains(summary: SetSummary) -> Grid:
    """Return the domain grid of a large set, which shows numbers."""
    here = {domains: counts for domains, counts in summary.domains.items() if counts.total}
    (faults, updates), none = _axes(here), PresenceCounts()
    rows = (GridRow(fault, (), tuple(here.get((fault, update), none) for update in updates)) for fault in faults)
    return Grid(updates, tuple(rows))


def _axes(places: Collection[Domains]) -> Iterator[tuple[int | None, ...]]:
    """Return the fault domains and the update domains of these places in order, what is not stated last."""
    return (tuple(sorted({place[of] for place in places}, key=lambda one: (one is None, one or 0))) for of in (0, 1))


def _warnings(
    row: AvailabilitySet,
    machines: Sequence[MachineRow],
    counts: PresenceCounts,
    without_agent: Sequence[MissingMachine],
    foreign: Sequence[Reason],
    summary: SetSummary | None = None,
    *,
    now: datetime,
) -> tuple[Reason, ...]:
    """Return the warnings of a set. `machines` are all of its machines; for a large set only those with warnings, and
    `summary` covers the others.
    """

    def named(code: str, presence: Presence) -> list[Reason]:
        if summary is not None:
            names = summary.named(presence)
        else:
            names = [machine.resource_name for machine in machines if machine.presence is presence]
        return [Reason(code, names=names)] if names else []

    found = [Reason("set-unnamed")] if row.kind == PROVISIONAL else []
    if row.lowering and row.lowering_at is not None and row.lowering_at > now - LOWERING_WAITS:
        found.append(Reason("set-lowering-proposed", lowered=sorted(row.lowering)))
    found += named("set-silent", Presence.SILENT) + named("set-expected", Presence.EXPECTED)
    if without_agent:
        found.append(Reason("set-without-agents", names=[machine.name for machine in without_agent]))
    found += foreign
    if (counts.total or without_agent) and not counts.live:
        found.append(Reason("set-unwatched"))
    plain = [plain_name(machine.resource_name) for machine in machines if machine.presence is not Presence.GONE]
    if summary.name_twice if summary is not None else len(set(plain)) < len(plain):
        found.append(Reason("set-name-twice"))
    found += [
        Reason("machine-warning", machine=machine.resource_name, warning=warning)
        for machine in machines
        for warning in machine.warnings
    ]
    return tuple(found)


def _shape(
    sets: Sequence[AvailabilitySet],
    events: Mapping[int, "OpenEvents"],
    *,
    now: datetime,
    most: int,
    with_grid: bool = True,
) -> tuple[SetRow, ...]:
    """Build the rows of sets with at most `most` machines each."""
    machines = first_machines([row.pk for row in sets], most=most)
    for row in sets:
        for machine in machines[row.pk]:
            machine.availability_set = row
    large = set_summaries([pk for pk, found in machines.items() if len(found) > most], now=now)
    bare = agentless().filter(availability_set__in=[row.pk for row in sets]).order_by("name", "pk")
    missing = grouped((row.availability_set_id, from_row(MissingMachine, row)) for row in bare)
    foreign = _foreign(sets)
    shaped = []
    for row in sets:
        inside = machine_rows(machines[row.pk][:most], now=now)
        summary = large.get(row.pk)
        warned = machine_rows(summary.warned, now=now) if summary else inside
        counts = summary.presence if summary else count_presence([machine.presence for machine in inside])
        briefs = tuple(from_row(OpenEventBrief, event) for event in events[row.pk].rows)
        shaped.append(
            from_row(
                SetRow,
                row,
                machines=inside,
                omitted=counts.all - len(inside),
                without_agent=tuple(missing[row.pk]),
                presence=counts,
                open_events=briefs,
                open_event_count=events[row.pk].count,
                warnings=_warnings(row, warned, counts, missing[row.pk], foreign[row.pk], summary, now=now),
                changed_at=changed_at(row),
                grid=(_domains(summary) if summary else _grid(inside, briefs)) if with_grid else NO_GRID,
                admits_until=future(row.admits_until, now=now),
                silenced_until=future(row.silenced_until, now=now),
            )
        )
    return tuple(shaped)


def _foreign(sets: Sequence[AvailabilitySet]) -> dict[int, list[Reason]]:
    """Return by set a warning for each machine of another set that reports an open event of this set."""
    of_these = {"event__availability_set__in": [row.pk for row in sets], "event__status__in": OPEN}
    other = [f"machine__availability_set{of}" for of in ("", "__kind", "__name", "__name_suffix")]
    rows = visible(Sighting).filter(foreign=True, gone_at__isnull=True, **of_these).order_by("machine__resource_name")
    told = rows.values_list("event__availability_set", "machine__resource_name", *other).distinct()
    return grouped((set_id, Reason("set-foreign", machine=name, set=SetRef(*of).label)) for set_id, name, *of in told)


@dataclass(frozen=True, slots=True)
class OpenEvents:
    """The first open events of a set by time left, and the number of all."""

    rows: list[ScheduledEvent]
    count: int


def _open_events(
    sets: Sequence[AvailabilitySet], rows: QuerySet[ScheduledEvent] | None = None, *, most: int
) -> dict[int, OpenEvents]:
    """Return the first `most` open events of each set (row id). One query, and one more to count those of sets that
    have more.
    """
    read = visible(ScheduledEvent).only("availability_set", *names_of(OpenEventBrief)) if rows is None else rows
    events, ids = read.filter(status__in=OPEN), [row.pk for row in sets]
    first = first_of_each(events, IndexRange("availability_set", ids), ("not_before", "pk"), most + 1)
    found = grouped((event.availability_set_id, event) for event in first)
    counts = {set_id: len(found[set_id]) for set_id in ids}
    if more := [set_id for set_id, count in counts.items() if count > most]:
        counted = events.filter(availability_set__any=more).order_by().values_list("availability_set")
        counts |= dict(counted.annotate(Count("pk")))
    return {set_id: OpenEvents(found[set_id][:most], count) for set_id, count in counts.items()}


def listing(*, now: datetime, sets: QuerySet[AvailabilitySet] | None = None, **at: Unpack[OrderedAt]) -> Page[SetRow]:
    """Return a page of sets by name or by another column, without sets merged into another, with their first open
    events and without grids. Five queries, five more if a set is large, and one more if a set has more open events.
    """
    rows = with_changes(listed_sets(sets))
    page = read_list(Segment(rows, "name"), **at)
    return page.map(
        lambda found: _shape(found, _open_events(found, most=OPEN_IN_LIST), now=now, most=MOST, with_grid=False)
    )


def in_numbers(row: SetRow) -> SetRow:
    """Return the set without its list of machines, but with the counts."""
    return replace(row, machines=(), omitted=row.presence.all, without_agent=(), grid=NO_GRID)


def lines(*, now: datetime, sets: QuerySet[AvailabilitySet] | None = None, **at: Unpack[At]) -> Page[SetLine]:
    """Return a page of sets with counts only, by name. Machines are read only for unnamed sets. Eight queries, or nine
    if reconciling is overdue.
    """
    rows = listed_sets(sets)
    found = read_list(Segment(rows, "name"), **at)
    return found.map(lambda shown: _lines(shown, now=now))


def _lines(sets: Sequence[AvailabilitySet], *, now: datetime) -> tuple[SetLine, ...]:
    counted = counts_of_sets({"availability_set__any": [row.pk for row in sets]}, now=now)
    names = machine_names(availability_set__any=[row.pk for row in sets if row.kind == PROVISIONAL])
    events = _open_events(sets, most=OPEN_IN_LINE)
    return tuple(
        from_row(
            SetLine,
            row,
            machine_names=names.get(row.pk, ()),
            presence=(counts := counted.get(row.pk, SetCounts())).presence,
            without_agent=counts.without_agent,
            open_events=tuple(from_row(OpenEventBrief, event) for event in events[row.pk].rows),
            open_event_count=events[row.pk].count,
            admits_until=future(row.admits_until, now=now),
        )
        for row in sets
    )


def cards(*, now: datetime, first: Sequence[int] = (), limit: int = 12) -> tuple[SetRow, ...]:
    """Return the sets of the front page: those in `first` (row ids) in this order, then others by name. Six queries."""
    chosen = list(first[:limit])
    there = listed_sets()
    found = {row.pk: row for row in there.filter(pk__in=chosen)}
    # The others use the index on names: one common order would need all rows.
    others = there.exclude(pk__in=chosen).order_by("name", "pk")[: limit - len(found)]
    sets = [*(found[pk] for pk in chosen if pk in found), *others]
    return _shape(sets, _open_events(sets, most=OPEN_IN_SET), now=now, most=MOST_SHOWN)


def named() -> tuple[SetRef, ...]:
    """Return the sets that have a name, by name. One query."""
    rows = listed_sets().exclude(kind=PROVISIONAL)
    return tuple(set_ref(row) for row in rows.order_by("name", "pk")[:MOST_OFFERED])


def merge_targets(*, set_id: int) -> tuple[SetRef, ...]:
    """Return the sets into which this set can be merged, by name: those with a name, or all if this set is provisional.
    Two queries.
    """
    row = visible(AvailabilitySet).filter(pk=set_id, merged_into=None).first()
    if row is None:
        return ()
    others = listed_sets().exclude(pk=set_id)
    if row.kind != PROVISIONAL:
        others = others.exclude(kind=PROVISIONAL)
    if row.subscription:
        others = others.filter(Q(subscription="") | Q(subscription__iexact=row.subscription))
    return tuple(set_ref(other) for other in others.order_by("name", "pk")[:MOST_OFFERED])


def detail(*, set_id: int, now: datetime, most: int = 0) -> SetDetail | None:
    """Return one set by row id, with its open events and up to `most` machines (default `MOST`); None if it does not
    exist. For a merged set, return the set that it was merged into.

    Seven queries, five more for a larger set, one more for a merged set.
    """
    row = with_changes(visible(AvailabilitySet).select_related("merged_into")).filter(pk=set_id).first()
    if row is None:
        return None
    if row.merged_into is not None:
        row = with_changes(visible(AvailabilitySet)).get(pk=row.merged_into.pk)
    events = _open_events([row], visible(ScheduledEvent).select_related("availability_set"), most=OPEN_IN_SET)
    return SetDetail(
        set=_shape([row], events, now=now, most=most or MOST)[0],
        events=event_rows(events[row.pk].rows, now=now),
        server_time=now,
    )
