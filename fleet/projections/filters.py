"""FilterSets: one for each list, whoever asks, page or API.

The library ships no types, hence the ignores at its base class.
"""

import json
from datetime import datetime
from typing import Any

import django_filters
import django_filters.fields
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Upper

from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.messages.moments import Moment
from fleet.domain.messages.states import MessageState
from fleet.domain.sets import KINDS
from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.domain.times import clamped
from fleet.models import (
    AvailabilitySet,
    Cache,
    Entry,
    Machine,
    Maintenance,
    Message,
    Notification,
    ScheduledEvent,
)
from fleet.projections.desk.attention import needs_decision
from fleet.projections.machines import with_presence
from fleet.projections.sight import listening, seen
from fleet.projections.timeline.entries import with_merged


def _naming(rows: QuerySet[ScheduledEvent], machine: Machine) -> QuerySet[ScheduledEvent]:
    name = json.dumps(machine.resource_name, ensure_ascii=False).upper()
    rows = rows.filter(availability_set=machine.availability_set_id)
    return rows.alias(named=Upper(Cast("resources", TextField()))).filter(named__contains=name)


class BoundedTime(django_filters.fields.IsoDateTimeField):  # type: ignore[misc]
    """A time; one that no row of ours can have becomes the bound that is nearer."""

    def to_python(self, value: Any) -> datetime | None:
        try:
            moment = super().to_python(value)
        except OverflowError:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None
        return clamped(moment) if moment is not None else None


class TimeFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = BoundedTime


class EventFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`machine` (an id) leaves the events that name it in Resources; `since` and `until` go by the first sighting.

    Construct with `now=` (an aware datetime): a decision is needed only before NotBefore.
    """

    status = django_filters.MultipleChoiceFilter(choices=[(status.value, status.value) for status in EventStatus])
    type = django_filters.CharFilter(field_name="event_type", lookup_expr="iexact", label="Type")
    source = django_filters.CharFilter(field_name="source", lookup_expr="iexact", label="Source")
    set = django_filters.NumberFilter(field_name="availability_set", label="Set")
    service = django_filters.CharFilter(field_name="availability_set__service", label="Service")
    machine = django_filters.NumberFilter(method="filter_machine", label="Machine")
    needs_decision = django_filters.BooleanFilter(method="filter_needs_decision", label="Needs a decision")
    drill = django_filters.BooleanFilter(field_name="drill", label="Drill")
    since = TimeFilter(field_name="first_seen_at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="first_seen_at", lookup_expr="lt", label="Until")

    class Meta:
        model = ScheduledEvent
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, *, now: datetime, **kwargs: Any) -> None:
        self.now = now
        super().__init__(data, seen(ScheduledEvent) if queryset is None else queryset, **kwargs)

    def filter_machine(self, queryset: QuerySet[ScheduledEvent], name: str, value: Any) -> QuerySet[ScheduledEvent]:
        machine = seen(Machine).filter(pk=value).first()
        return _naming(queryset, machine) if machine else queryset.none()

    def filter_needs_decision(
        self, queryset: QuerySet[ScheduledEvent], name: str, value: bool
    ) -> QuerySet[ScheduledEvent]:
        needs = needs_decision(now=self.now)
        return queryset.filter(needs) if value else queryset.exclude(needs)


class MachineFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`q` looks into resource names and vmIds."""

    set = django_filters.NumberFilter(field_name="availability_set", label="Set")
    region = django_filters.CharFilter(lookup_expr="iexact", label="Region")
    q = django_filters.CharFilter(method="filter_q", label="Search")

    class Meta:
        model = Machine
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, with_presence() if queryset is None else queryset, **kwargs)

    def filter_q(self, queryset: QuerySet[Machine], name: str, value: str) -> QuerySet[Machine]:
        return queryset.filter(Q(resource_name__icontains=value) | Q(vm_id__icontains=value))


class SetFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`q` looks into names and resource groups."""

    kind = django_filters.ChoiceFilter(choices=[(kind, kind) for kind in KINDS], label="Kind")
    service = django_filters.CharFilter(label="Service")
    q = django_filters.CharFilter(method="filter_q", label="Search")

    class Meta:
        model = AvailabilitySet
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(AvailabilitySet) if queryset is None else queryset, **kwargs)

    def filter_q(self, queryset: QuerySet[AvailabilitySet], name: str, value: str) -> QuerySet[AvailabilitySet]:
        return queryset.filter(Q(name__icontains=value) | Q(resource_group__icontains=value))


class EntryFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Entries by service, set (with those merged into it), machine, cache, event (an EventId in any case), kind, time.

    To a service belong its sets, and the caches that their machines listen to.
    """

    service = django_filters.CharFilter(method="filter_service", label="Service")

    set = django_filters.NumberFilter(method="filter_set", label="Set")
    machine = django_filters.NumberFilter(field_name="machine", label="Machine")
    cache = django_filters.NumberFilter(field_name="cache", label="Cache")
    event = django_filters.CharFilter(field_name="event__event_id", lookup_expr="iexact", label="Event")
    kind = django_filters.MultipleChoiceFilter(choices=[(kind.value, kind.value) for kind in EntryKind], label="Kind")
    since = TimeFilter(field_name="at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="at", lookup_expr="lt", label="Until")

    class Meta:
        model = Entry
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Entry) if queryset is None else queryset, **kwargs)

    def filter_service(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        heard = listening().filter(machine__availability_set__service__iexact=value)
        return queryset.filter(
            Q(availability_set__service__iexact=value)
            | Q(cache__service__iexact=value)
            | Q(cache__in=heard.values("cache"))
        )

    def filter_set(self, queryset: QuerySet[Entry], name: str, value: Any) -> QuerySet[Entry]:
        return queryset.filter(availability_set__in=with_merged(int(value)))


class CacheFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`q` looks into hosts."""

    tier = django_filters.CharFilter(lookup_expr="iexact", label="Tier")
    q = django_filters.CharFilter(field_name="host", lookup_expr="icontains", label="Search")

    class Meta:
        model = Cache
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Cache) if queryset is None else queryset, **kwargs)


class MaintenanceFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`since` and `until` go by the first notification."""

    cache = django_filters.NumberFilter(field_name="cache", label="Cache")
    status = django_filters.MultipleChoiceFilter(choices=[(status.value, status.value) for status in MaintenanceStatus])
    since = TimeFilter(field_name="first_at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="first_at", lookup_expr="lt", label="Until")

    class Meta:
        model = Maintenance
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Maintenance) if queryset is None else queryset, **kwargs)


class NotificationFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`since` and `until` go by the time at which a notification was first heard."""

    cache = django_filters.NumberFilter(field_name="cache", label="Cache")
    maintenance = django_filters.NumberFilter(field_name="maintenance", label="Maintenance")
    type = django_filters.CharFilter(field_name="type", lookup_expr="iexact", label="Type")
    since = TimeFilter(field_name="first_at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="first_at", lookup_expr="lt", label="Until")

    class Meta:
        model = Notification
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Notification) if queryset is None else queryset, **kwargs)


class MessageFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Messages by channel, state, event (an EventId in any case) and moment; `since` goes by when they were made."""

    channel = django_filters.NumberFilter(field_name="channel", label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in MessageState])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.MultipleChoiceFilter(choices=[(moment.value, moment.value) for moment in Moment])
    since = TimeFilter(field_name="created_at", lookup_expr="gte", label="Since")

    class Meta:
        model = Message
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Message) if queryset is None else queryset, **kwargs)

    def filter_event(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(event__event_id=value.upper())
