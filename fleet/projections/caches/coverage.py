"""Coverage of caches: which machines listened to a cache, and when. Also the filters of cache lists."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import django_filters
from django.db.models import Exists, OuterRef, Q, QuerySet

from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.shapes import from_row
from fleet.domain.states import Presence
from fleet.models import Cache, Coverage, Machine, Maintenance, Notification, Reporter
from fleet.models.facts.events import contact_times, machine_presence
from fleet.projections import places
from fleet.projections.changes import ChangeFilter
from fleet.projections.places import CachePlaceFilter, ChoicesFilter, IdsFilter, TextsFilter, TimeFilter
from fleet.projections.refs import MachineRef, SetRef, machine_ref, set_ref
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class Span:
    """A period of time."""

    begin: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, slots=True)
class ListenerState:
    """State of a machine's subscription to a cache, as the agent reports it."""

    machine: MachineRef
    state: str
    reason: str

    @property
    def listening(self) -> bool:
        return self.state == "subscribed"


@dataclass(frozen=True, slots=True)
class Stretch(ListenerState):
    """A period in which a machine listened or did not listen, limited to the requested times."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ListenerRow(ListenerState):
    """Newest state of one machine's subscription to a cache; `set` is the machine's set."""

    since: datetime
    set: SetRef


def _last_seen(row: Coverage, machine: Machine) -> datetime:
    heard_at, _ = contact_times(machine)
    return max(row.vouched_at, heard_at) if heard_at else row.vouched_at


def listener(row: Coverage, *, now: datetime) -> ListenerRow:
    """Build the row from the newest coverage of a machine, loaded with the machine, its presence and its newest
    document. No query.
    """
    machine = row.machine
    state, since = row.state, row.since
    if state == "subscribed" and machine_presence(machine, now=now) is not Presence.LIVE:
        state, since = "silent", max(row.since, _last_seen(row, machine))
    home = set_ref(machine.availability_set)
    return ListenerRow(machine=machine_ref(machine), state=state, reason=row.reason, since=since, set=home)


def with_machine() -> QuerySet[Coverage]:
    """Return coverage rows with the machine columns that `listener` and `stretches` need."""
    of_machine = [f"machine__{name}" for name in ("presence", "latest_document", "availability_set")]
    rows = visible(Coverage).select_related(*of_machine).defer("machine__compute")
    return rows.order_by("machine__resource_name", "machine", "since")


def stretches(*, cache_id: int, begin: datetime, end: datetime, now: datetime) -> tuple[Stretch, ...]:
    """Return the periods of one cache between two times, by machine. One query."""
    rows = with_machine().filter(Q(until=None) | Q(until__gt=begin), cache=cache_id, since__lt=end)
    return shaped(rows, begin=begin, end=end, now=now)


def shaped(rows: Iterable[Coverage], *, begin: datetime, end: datetime, now: datetime) -> tuple[Stretch, ...]:
    """Build the periods from rows of `with_machine`, limited to the requested times. No query."""
    found = []
    for row in rows:
        until = row.until
        if until is None:
            live = machine_presence(row.machine, now=now) is Presence.LIVE
            # A silent machine counts as listening until it was last seen.
            until = now if live or row.state != "subscribed" else max(row.since, _last_seen(row, row.machine))
        first, last = max(row.since, begin), min(until, end)
        if last > first:
            found.append(from_row(Stretch, row, machine=machine_ref(row.machine), begin=first, end=last))
    return tuple(found)


def gaps_of(found: Iterable[Stretch], *, begin: datetime, end: datetime) -> tuple[Span, ...]:
    """Return the periods between `begin` and `end` without a listener."""
    return between((stretch for stretch in found if stretch.listening), begin, end)


def between(spans: Iterable[Span | Stretch], begin: datetime, end: datetime) -> tuple[Span, ...]:
    """Return the parts of the time from `begin` to `end` that none of these spans covers."""
    gaps, covered_until = [], begin
    for span in sorted(spans, key=lambda span: span.begin):
        if covered_until < span.begin:
            gaps.append(Span(covered_until, min(span.begin, end)))
        covered_until = max(covered_until, span.end)
        if covered_until >= end:
            return tuple(gaps)
    return (*gaps, Span(covered_until, end)) if covered_until < end else tuple(gaps)


# Filters of the lists of caches, maintenances and notifications.


class CacheFilter(CachePlaceFilter):
    """Filter of caches. `q` searches in host names."""

    cache_path = "pk"

    tier = django_filters.CharFilter(lookup_expr="iexact", label="One tier.")
    q = django_filters.CharFilter(field_name="host", lookup_expr="icontains", label="Part of a host name.")
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = Cache


class MaintenanceFilter(CachePlaceFilter):
    """Filter of maintenances. `since` and `until` limit the time of the first notification."""

    cache = IdsFilter(field_name="cache", label="The id of a cache; may be repeated.")
    status = ChoicesFilter(MaintenanceStatus, label="One status; may be repeated.")
    since = TimeFilter(field_name="first_at", lookup_expr="gte", label="First heard at this time or later.")
    until = TimeFilter(field_name="first_at", lookup_expr="lt", label="First heard before this time.")
    changed_since = ChangeFilter(label="Changed at or after this time, as `changed_at` of the rows has it.")

    model = Maintenance


class NotificationFilter(CachePlaceFilter):
    """Filter of notifications. `since` and `until` limit the time of the first report; `machine` selects the
    notifications that a machine reported.
    """

    machine = IdsFilter(method="filter_machine", label="The id of a machine; may be repeated. Those that heard it.")
    machine_name = TextsFilter(
        method="filter_machine",
        label="The resource name of a machine, in any case; may be repeated. Those that heard it.",
    )
    cache = IdsFilter(field_name="cache", label="The id of a cache; may be repeated.")
    maintenance = IdsFilter(field_name="maintenance", label="The id of a maintenance; may be repeated.")
    type = django_filters.CharFilter(field_name="type", lookup_expr="iexact", label="One type, in any case.")
    since = TimeFilter(field_name="first_at", lookup_expr="gte", label="First heard at this time or later.")
    until = TimeFilter(field_name="first_at", lookup_expr="lt", label="First heard before this time.")

    model = Notification

    def asked_of(self, columns: Any) -> dict[str, list[Any]]:
        return {} if columns is places.MACHINE_COLUMNS else super().asked_of(columns)

    def filter_machine(self, queryset: QuerySet[Notification], name: str, value: Any) -> QuerySet[Notification]:
        heard = visible(Reporter).filter(notification=OuterRef("pk"), machine__in=places.machines_where({name: value}))
        return queryset.filter(Exists(heard))
