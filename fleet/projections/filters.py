"""Filters of lists, shared by pages and API: one FilterSet for each list.

The library has no type annotations, so its base class needs `type: ignore`.
"""

from typing import Any

import django_filters
from django.db.models import Q, QuerySet

from fleet.domain.sets import KINDS
from fleet.domain.states import ApprovalState, EventStatus, Presence
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import WaveState
from fleet.models import Admission, Approval, AvailabilitySet, Cache, Drill, Entry, Machine, ScheduledEvent, Wave
from fleet.models.events import named_in_resources, with_names
from fleet.models.index_scan import IndexRange, IndexScanRows
from fleet.projections import places
from fleet.projections.changes import ChangeFilter
from fleet.projections.counts import VALUES, with_presences
from fleet.projections.desk.find import machines_called
from fleet.projections.events.rows import needs_decision
from fleet.projections.machines import waiting_rows, with_presence
from fleet.projections.places import ChoicesFilter, IdsFilter, MachinePlaceFilter, PlaceFilter, TextsFilter, TimeFilter
from fleet.projections.visibility import listening, visible

Events = QuerySet[ScheduledEvent]
Sets = QuerySet[AvailabilitySet]


class EventFilter(PlaceFilter):
    """Filter of events.

    `machine` (row ids) and `machine_name` match events whose Resources name one of these machines. `since` and `until`
    limit the first sighting, `due_since` and `due_until` NotBefore; `has_not_before` selects events with or without
    NotBefore.

    Pass `now=` if `needs_decision` may be used.
    """

    status = ChoicesFilter(EventStatus, label="`SCHEDULED`, `STARTED` or `ENDED`; may be repeated.")
    type = django_filters.CharFilter(
        field_name="event_type", lookup_expr="iexact", label="Such as `Reboot`, in any case."
    )
    source = django_filters.CharFilter(
        field_name="source", lookup_expr="iexact", label="`Platform` or `User`, in any case."
    )
    machine = IdsFilter(
        method="filter_machine", label="The id of a machine: the events that name it in `Resources`; may be repeated."
    )
    machine_name = TextsFilter(
        method="filter_machine_name", label="A name in `Resources`, in any case; may be repeated."
    )
    needs_decision = django_filters.BooleanFilter(
        method="filter_needs_decision", label="Before NotBefore, and undecided or waiting for a second person."
    )
    drill = django_filters.BooleanFilter(field_name="drill", label="Only drills, or only real events.")
    since = TimeFilter(field_name="first_seen_at", lookup_expr="gte", label="First seen at or after this time.")
    until = TimeFilter(field_name="first_seen_at", lookup_expr="lt", label="First seen before this time.")
    due_since = TimeFilter(
        field_name="not_before", lookup_expr="gte", label="With a `NotBefore` at or after this time."
    )
    due_until = TimeFilter(field_name="not_before", lookup_expr="lt", label="With a `NotBefore` before this time.")
    has_not_before = django_filters.BooleanFilter(
        field_name="not_before", lookup_expr="isnull", exclude=True, label="Whether a `NotBefore` is stated."
    )
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = ScheduledEvent

    def filter_machine(self, queryset: Events, name: str, value: Any) -> Events:
        either = Q(pk__in=[])
        for machine in visible(Machine, every=True).filter(pk__in=value).only("resource_name", "availability_set"):
            either |= Q(availability_set=machine.availability_set_id) & named_in_resources([machine.resource_name])
        return with_names(queryset).filter(either)

    def filter_machine_name(self, queryset: Events, name: str, value: list[str]) -> Events:
        return with_names(queryset).filter(named_in_resources(value))

    def filter_needs_decision(self, queryset: Events, name: str, value: bool) -> Events:
        needs = needs_decision(now=self.now)
        return queryset.filter(needs) if value else queryset.exclude(needs)


def _value_filter(name: str, text: str) -> TextsFilter:
    """Return the filter of machines by a reported value; `text` begins its description."""
    return TextsFilter(field_name=VALUES[name], lookup_expr="iexact", label=f"{text}, in any case; may be repeated.")


class MachineFilter(MachinePlaceFilter):
    """Filter of machines. `q` matches the beginning of a vmId, node name or word of the resource name. Pass `now=` to
    the constructor if `presence` may be used.
    """

    machine_path = "pk"

    presence = ChoicesFilter(
        Presence, method="filter_presence", label="`live`, `late`, `silent`, `gone` or `expected`; may be repeated."
    )
    size = _value_filter("size", "A VM size, such as `Standard_D2s_v3`")
    region = _value_filter("region", "A region")
    zone = _value_filter("zone", "An availability zone, such as `1`")
    agent_version = _value_filter("agent_version", "A version of the agent")
    events_version = _value_filter("events_version", "An api-version for scheduled events")
    instance_version = _value_filter("instance_version", "An api-version for instance metadata")
    not_stated = ChoicesFilter(
        VALUES, method="filter_not_stated", label="Machines that report no such value; may be repeated."
    )
    q = django_filters.CharFilter(
        method=lambda machines, name, text: machines_called(machines, text),
        label="How words of a resource name, a node name or a vmId begin; where that finds none, or over a thousand,"
        " parts of names.",
    )
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = Machine

    def rows(self) -> QuerySet[Machine]:
        return with_presence()

    def filter_presence(self, queryset: QuerySet[Machine], name: str, value: list[str]) -> QuerySet[Machine]:
        return with_presences(queryset, *value, now=self.now)

    def filter_not_stated(self, queryset: QuerySet[Machine], name: str, value: list[str]) -> QuerySet[Machine]:
        for column in (VALUES[each] for each in value):
            queryset = queryset.filter(Q(**{column: ""}) | Q(**{f"{column}__isnull": True}))
        return queryset


class SetFilter(PlaceFilter):
    """Filter of sets. `q` searches in names and resource groups; `machine`, `machine_name` and `presence` match sets
    with at least one such machine. Pass `now=` to the constructor if `presence` may be used.
    """

    set_path = "pk"

    machine = IdsFilter(method="filter_machine", label="The id of a machine: the set that it is of; may be repeated.")
    machine_name = TextsFilter(
        method="filter_machine_name",
        label="The resource name of a machine, in any case: the sets that have one; may be repeated.",
    )
    presence = ChoicesFilter(
        Presence,
        method="filter_presence",
        label="Sets with a machine that is `live`, `late`, `silent`, `gone` or `expected`; may be repeated.",
    )
    kind = django_filters.ChoiceFilter(choices=[(kind, kind) for kind in KINDS], label="One kind of set.")
    q = django_filters.CharFilter(method="filter_q", label="Part of a name or of a resource group.")
    # This value selects the columns of each row, not the rows: the code that reads the rows applies it.
    machines = django_filters.BooleanFilter(
        method=lambda sets, name, value: sets, label="`false`: machines as numbers only; the lists of them stay empty."
    )
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = AvailabilitySet

    def filter_machine(self, queryset: Sets, name: str, value: Any) -> Sets:
        return queryset.filter(places.sets_with(visible(Machine).filter(pk__in=value)))

    def filter_machine_name(self, queryset: Sets, name: str, value: list[str]) -> Sets:
        return queryset.filter(
            places.sets_with(visible(Machine).filter(places.one_of("resource_name", value, lookup="iexact")))
        )

    def filter_presence(self, queryset: Sets, name: str, value: list[str]) -> Sets:
        return queryset.filter(places.sets_with(with_presences(visible(Machine), *value, now=self.now)))

    def filter_q(self, queryset: Sets, name: str, value: str) -> Sets:
        return queryset.filter(Q(name__icontains=value) | Q(resource_group__icontains=value))

    @property
    def in_numbers(self) -> bool:
        """Return whether the caller requests only the numbers of machines instead of a list."""
        return self.form.cleaned_data.get("machines") is False


class EntryFilter(places.EntryPlaceFilter):
    """Filter of entries by place, machine, cache, event (EventId in any case), kind and time. A set includes the sets
    merged into it. A service includes its sets, and the caches to which their machines listen.
    """

    service = TextsFilter(method="filter_service", label="Service")
    cache = IdsFilter(field_name="cache", label="Cache")
    event = django_filters.CharFilter(method="filter_event", label="Event")
    kind = ChoicesFilter(EntryKind, label="Kind")
    since = TimeFilter(field_name="at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="at", lookup_expr="lt", label="Until")

    model = Entry

    def asked_of(self, columns: Any) -> dict[str, list[Any]]:
        return {name: value for name, value in super().asked_of(columns).items() if name != "service"}

    def filter_service(self, queryset: QuerySet[Entry], name: str, value: list[str]) -> QuerySet[Entry]:
        named = places.one_of("service", value, lookup="iexact")
        sets = places.ids_of(visible(AvailabilitySet).filter(named))
        heard = listening().filter(places.one_of("machine__availability_set__service", value, lookup="iexact"))
        caches = places.ids_of(visible(Cache).filter(named | Q(pk__in=heard.order_by().values("cache"))))
        found = queryset.filter(Q(availability_set__in=sets) | Q(cache__in=caches))
        if isinstance(found, IndexScanRows) and isinstance(sets, list) and isinstance(caches, list):
            return found.near(IndexRange("availability_set", sets), IndexRange("cache", caches))
        return found


class ApprovalFilter(PlaceFilter):
    """Filter of approvals by state, event (EventId in any case) and place; `since` and `until` limit the time of the
    decision.
    """

    set_path = "event__availability_set"

    state = ChoicesFilter(ApprovalState, label="A state; may be repeated.")
    event = TextsFilter(method="filter_event", label="An EventId, in any case; may be repeated.")
    since = TimeFilter(field_name="decided_at", lookup_expr="gte", label="Decided at or after this time.")
    until = TimeFilter(field_name="decided_at", lookup_expr="lt", label="Decided before this time.")
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = Approval

    def filter_event(self, queryset: QuerySet[Approval], name: str, value: list[str]) -> QuerySet[Approval]:
        return queryset.filter(event__event_id__in=[each.upper() for each in value])


class DrillFilter(PlaceFilter):
    """Filter of drills. `since` and `until` limit the time at which a drill began."""

    set_path = "event__availability_set"

    since = TimeFilter(field_name="created_at", lookup_expr="gte", label="Begun at or after this time.")
    until = TimeFilter(field_name="created_at", lookup_expr="lt", label="Begun before this time.")
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = Drill


class WaveFilter(PlaceFilter):
    """Filter of waves by the sets of their events; `since` and `until` limit the time at which a wave began."""

    state = ChoicesFilter(WaveState, label="`RUNNING`, `DONE` or `STOPPED`; may be repeated.")
    since = TimeFilter(field_name="created_at", lookup_expr="gte", label="Begun at or after this time.")
    until = TimeFilter(field_name="created_at", lookup_expr="lt", label="Begun before this time.")
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = Wave

    def in_sets(self, sets: places.Ids) -> Q:
        members = visible(Approval).filter(event__availability_set__in=sets, wave__isnull=False)
        return Q(pk__in=members.order_by().values("wave"))


class AdmissionFilter(MachinePlaceFilter):
    """Filter of machines that wait for admission, by the machine that each claims to be."""

    set_path = "machine__availability_set"

    model = Admission

    def rows(self) -> QuerySet[Admission]:
        return waiting_rows()


class EventEntryFilter(places.VisibleRows):
    """Filter of the timeline entries of one event, by machine."""

    machine = IdsFilter(field_name="machine", label="The id of a machine; may be repeated.")
    machine_name = TextsFilter(
        field_name="machine__resource_name",
        lookup_expr="iexact",
        label="The resource name of a machine, in any case; may be repeated.",
    )

    model = Entry

    def keeps(self, entry: Entry) -> bool:
        """Return whether an archived entry, which no query can select, matches the filter."""
        asked = self.form.cleaned_data
        names = {name.casefold() for name in asked.get("machine_name") or ()}
        name = entry.machine.resource_name.casefold() if entry.machine else None
        return (not asked.get("machine") or entry.machine_id in asked["machine"]) and (not names or name in names)


class BlindSpotFilter(MachinePlaceFilter):
    """Filter of blind spots; its queryset contains the sets."""

    set_path = "pk"

    model = AvailabilitySet

    def of_machines(self, machines: places.Ids) -> Q:
        return Q()

    def asked_for(self) -> dict[str, Any]:
        """Return the requested sets and machines (row ids) and machine names; None stands for no restriction."""
        found = self.asked_of(places.MACHINE_COLUMNS)
        sets = set(self.qs.values_list("pk", flat=True)) if self.asked_of(places.COLUMNS) else None
        return {"sets": sets, "machines": found.get("machine"), "names": found.get("machine_name")}
