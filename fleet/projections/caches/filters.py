"""What lists of caches, of their maintenance and of notifications may be narrowed down to."""

from typing import Any

import django_filters
from django.db.models import Exists, OuterRef, QuerySet

from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.models import Cache, Maintenance, Notification, Reporter
from fleet.projections.changes import ChangeFilter
from fleet.projections.filter_kinds import IdsFilter, TextsFilter, TimeFilter
from fleet.projections.places import MACHINE_COLUMNS, CachePlaceFilter, machines_where
from fleet.projections.sight import seen


class CacheFilter(CachePlaceFilter):
    """`q` looks into hosts."""

    cache_path = "pk"

    tier = django_filters.CharFilter(lookup_expr="iexact", label="Tier")
    q = django_filters.CharFilter(field_name="host", lookup_expr="icontains", label="Search")
    changed_since = ChangeFilter(label="Changed since")

    class Meta:
        model = Cache
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Cache) if queryset is None else queryset, **kwargs)


class MaintenanceFilter(CachePlaceFilter):
    """`since` and `until` go by the first notification."""

    cache = IdsFilter(field_name="cache", label="Cache")
    status = django_filters.MultipleChoiceFilter(choices=[(status.value, status.value) for status in MaintenanceStatus])
    since = TimeFilter(field_name="first_at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="first_at", lookup_expr="lt", label="Until")
    changed_since = ChangeFilter(label="Changed since")

    class Meta:
        model = Maintenance
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Maintenance) if queryset is None else queryset, **kwargs)


class NotificationFilter(CachePlaceFilter):
    """`since` and `until` go by the time at which a notification was first heard; machines are those that heard it."""

    machine = IdsFilter(method="filter_machine", label="Machine")
    machine_name = TextsFilter(method="filter_machine", label="Name of a machine")
    cache = IdsFilter(field_name="cache", label="Cache")
    maintenance = IdsFilter(field_name="maintenance", label="Maintenance")
    type = django_filters.CharFilter(field_name="type", lookup_expr="iexact", label="Type")
    since = TimeFilter(field_name="first_at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="first_at", lookup_expr="lt", label="Until")

    class Meta:
        model = Notification
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Notification) if queryset is None else queryset, **kwargs)

    def asked_of(self, columns: Any) -> dict[str, list[Any]]:
        return {} if columns is MACHINE_COLUMNS else super().asked_of(columns)

    def filter_machine(self, queryset: QuerySet[Notification], name: str, value: Any) -> QuerySet[Notification]:
        if not value:
            return queryset
        heard = seen(Reporter).filter(notification=OuterRef("pk"), machine__in=machines_where({name: value}))
        return queryset.filter(Exists(heard))
