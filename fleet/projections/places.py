"""Filters by place (service, subscription, resource group, set, machine), and field types that filters share.

The library has no type annotations, so its base classes need `type: ignore`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import django_filters
import django_filters.fields
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Exists, Model, OuterRef, Q, QuerySet, Subquery

from fleet.domain.times import clamped
from fleet.models import AvailabilitySet, Machine, ScheduledEvent
from fleet.models.index_scan import IndexRange, IndexScanRows, IndexWalk
from fleet.projections.visibility import is_limited, listening, visible

# Maximum number of values of one filter.
MOST_VALUES = 100


class BoundedTime(django_filters.fields.IsoDateTimeField):  # type: ignore[misc]
    """Time field of a filter. A time outside the range of stored rows is replaced by the nearest limit."""

    def to_python(self, value: Any) -> datetime | None:
        try:
            parsed = super().to_python(value)
        except OverflowError:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None
        return clamped(parsed) if parsed is not None else None


class TimeFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = BoundedTime


class TextsField(forms.Field):
    """Field for a repeatable parameter with up to `most` texts. Empty values are ignored."""

    widget = forms.SelectMultiple

    def __init__(self, *, most: int = MOST_VALUES, **kwargs: Any) -> None:
        self.most = most
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> list[Any]:
        given = value if isinstance(value, list | tuple) else [value]
        found = list(dict.fromkeys(str(each).strip() for each in given if each is not None and str(each).strip()))
        # Repetitions of one value count as well, as the API's document states.
        if len(given) > self.most:
            raise ValidationError(f"Give at most {self.most} values.", code="invalid")
        if any("\x00" in each for each in found):
            raise ValidationError("It may not hold a NUL.", code="invalid")
        return found


class IdsField(TextsField):
    """Field for a repeatable parameter with row ids."""

    def to_python(self, value: Any) -> list[int]:
        found = super().to_python(value)
        numbers = [int(each) for each in found if each.isascii() and each.isdigit() and len(each) < 20]
        if len(numbers) < len(found) or not all(0 < number < 2**63 for number in numbers):
            raise ValidationError("Give the id of a row: a whole number from 1.", code="invalid")
        return numbers


class TextsFilter(django_filters.Filter):  # type: ignore[misc]
    """Filter for rows whose `field_name` equals one of these texts; `lookup_expr` defines the comparison."""

    field_class = TextsField

    def filter(self, qs: QuerySet[Any], value: list[Any]) -> QuerySet[Any]:
        return qs.filter(one_of(self.field_name, value, lookup=self.lookup_expr)) if value else qs


class ChoicesFilter(django_filters.MultipleChoiceFilter):  # type: ignore[misc]
    """Filter for rows with one of these known values."""

    def __init__(self, values: Iterable[str], **kwargs: Any) -> None:
        super().__init__(choices=[(str(value), str(value)) for value in values], **kwargs)


class IdsFilter(TextsFilter):
    """Filter for rows whose `field_name` is one of these row ids."""

    field_class = IdsField


def one_of(column: str, values: Iterable[Any], *, lookup: str = "exact") -> Q:
    """Return the query condition that a column has one of these values."""
    if lookup == "exact":
        return Q(**{f"{column}__in": list(values)})
    return Q(("pk__in", []), *((f"{column}__{lookup}", value) for value in values), _connector=Q.OR)


# Filters by place: service, subscription, resource group, set and machine, shared by most lists.

# Columns of a set by filter, with the lookup.
COLUMNS = {
    "service": ("service", "exact"),
    "subscription": ("subscription", "iexact"),
    "resource_group": ("resource_group", "iexact"),
    "set": ("pk", "exact"),
    "set_name": ("name", "iexact"),
}
# Up to this many ids are written into a query directly.
FEW = 100
# At most this many entries are scanned for a page; the second bound is for searches in texts.
PORTION = 50_000
HARD = 20_000
Ids = list[int] | QuerySet[Any]
MACHINE_COLUMNS = {"machine": ("pk", "exact"), "machine_name": ("resource_name", "iexact")}


class PlacePart(TextsFilter):
    """Text filter by place. It does nothing alone, because its FilterSet applies all place filters together."""

    def filter(self, qs: QuerySet[Any], value: list[Any]) -> QuerySet[Any]:
        return qs


class PlaceIds(PlacePart, IdsFilter):
    """Row id filter by place, which works like `PlacePart`."""


class VisibleRows(django_filters.FilterSet):  # type: ignore[misc]
    """Base FilterSet for the rows of its model that the reader may see. `now` is the time for filters that depend on
    it.
    """

    model: type[Model]

    def __init__(self, data: Any = None, queryset: Any = None, *, now: datetime | None = None, **kwargs: Any) -> None:
        self._now = now
        super().__init__(data, self.rows() if queryset is None else queryset, **kwargs)

    def rows(self) -> QuerySet[Any]:
        """Return the rows that are filtered."""
        return visible(self.model)

    @property
    def now(self) -> datetime:
        if self._now is None:
            raise TypeError("This filter depends on the time: pass `now`.")
        return self._now


class PlaceFilter(VisibleRows):
    """Filter of rows by the place of their set; `set_path` is the lookup path to the set."""

    set_path = "availability_set"

    service = PlacePart(label="The name of a service, exactly; may be repeated.")
    subscription = PlacePart(label="A subscription, in any case; may be repeated.")
    resource_group = PlacePart(label="A resource group, in any case; may be repeated.")
    set = PlaceIds(label="The id of a set; may be repeated. Sets that were merged into it count.")
    set_name = PlacePart(label="The name of a set, in any case; may be repeated.")

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found: QuerySet[Any] = super().filter_queryset(queryset)
        if asked := self.asked_of(COLUMNS):
            ids = sets_where(asked)
            found = nearest(found.filter(self.in_sets(ids)), self.set_path, ids)
        return found

    def in_sets(self, sets: Ids) -> Q:
        """Return the query condition that a row belongs to one of these sets (row ids)."""
        return Q(**{f"{self.set_path}__in": sets})

    def asked_of(self, columns: Any) -> dict[str, list[Any]]:
        """Return the requested values of these filters by filter name, without empty ones."""
        values = {name: self.form.cleaned_data.get(name) for name in columns if name in self.filters}
        return {name: value for name, value in values.items() if value}


class MachinePlaceFilter(PlaceFilter):
    """Filter of rows by the place of their set and by machine; `machine_path` is the lookup path to the machine."""

    machine_path = "machine"

    machine = PlaceIds(label="The id of a machine; may be repeated.")
    machine_name = PlacePart(label="The resource name of a machine, in any case; may be repeated.")

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found: QuerySet[Any] = super().filter_queryset(queryset)
        if asked := self.asked_of(MACHINE_COLUMNS):
            ids = machines_where(asked)
            found = nearest(found.filter(self.of_machines(ids)), self.machine_path, ids)
        return found

    def of_machines(self, machines: Ids) -> Q:
        """Return the query condition that a row belongs to one of these machines (row ids)."""
        return Q(**{f"{self.machine_path}__in": machines})


class EntryPlaceFilter(MachinePlaceFilter):
    """Filter of entries by place, machine, kind and event.

    It reads only the entries that an index finds for one of these values, out of possibly ten million. If no value is
    selective enough, each page scans a limited number of entries.
    """

    # Column with an index for each filter, in addition to those of places.
    keys: Mapping[str, str] = {"cache": "cache", "kind": "kind"}
    # The condition for scanned rows where no index applies.
    among: Q = Q()

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = super().filter_queryset(queryset)
        for name, column in self.keys.items():
            values = self.form.cleaned_data.get(name)
            if values and name in self.filters and not getattr(found, "nearest", ()):
                found = nearest(found, column, list(values))
        return self._in_portions(found) if isinstance(found, IndexScanRows) else found

    def leads_to_its_own(self, name: str) -> bool:
        """Return whether the index for the filter `name` finds exactly the matching entries."""
        return name in (*COLUMNS, *MACHINE_COLUMNS, *self.keys, "event")

    def _in_portions(self, found: IndexScanRows[Any]) -> IndexScanRows[Any]:
        asked = {name for name, value in self.form.cleaned_data.items() if value not in ("", None, [], ())}
        bounds = {"since": "at__gte", "until": "at__lt"}
        within = Q(**{bounds[name]: self.form.cleaned_data[name] for name in asked & bounds.keys()})
        asked -= bounds.keys()
        known = len(asked) == 1 and self.leads_to_its_own(*asked) and (bool(found.nearest) or "event" in asked)
        # For a reader with limited visibility, every index already leads to visible entries.
        if not asked or (known and not is_limited()):
            return found
        return found.looked_through(IndexWalk(HARD if "q" in asked else PORTION, within, self.among))

    def filter_event(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        event = visible(ScheduledEvent).filter(event_id=value.strip().upper())
        return queryset.filter(event=Subquery(event.values("pk")))


class CachePlaceFilter(MachinePlaceFilter):
    """Filter of rows that belong to a cache, by the places of the machines that listen to it. `cache_path` is the
    lookup path to the cache.
    """

    cache_path = "cache"

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        # One listener must meet all conditions.
        found: QuerySet[Any] = django_filters.FilterSet.filter_queryset(self, queryset)
        asked, machines = self.asked_of(COLUMNS), self.asked_of(MACHINE_COLUMNS)
        if not asked and not machines:
            return found
        listeners = listening().filter(until=None)
        if asked:
            listeners = listeners.filter(machine__availability_set__in=sets_where(asked))
        if machines:
            listeners = listeners.filter(machine__in=machines_where(machines))
        either = Q(**{f"{self.cache_path}__in": listeners.order_by().values("cache")})
        if set(asked) == {"service"} and not machines:
            path = "" if self.cache_path == "pk" else f"{self.cache_path}__"
            either |= one_of(f"{path}service", asked["service"])
        return found.filter(either)


def sets_where(asked: dict[str, list[Any]]) -> Ids:
    """Return the row ids of the sets that meet all of these conditions, and of the sets merged into them."""
    own, into = (_all_of(asked, COLUMNS, path=path) for path in ("", "merged_into__"))
    return ids_of(visible(AvailabilitySet).filter(own | into))


def machines_where(asked: dict[str, list[Any]]) -> Ids:
    """Return the row ids of the machines that meet all of these conditions."""
    return ids_of(visible(Machine, every=True).filter(_all_of(asked, MACHINE_COLUMNS)))


def _all_of(asked: dict[str, list[Any]], columns: Mapping[str, tuple[str, str]], *, path: str = "") -> Q:
    """Return the query condition that each of these columns, below the lookup path `path`, has one of its requested
    values.
    """
    each = ((*columns[name], values) for name, values in asked.items())
    return Q(*(one_of(f"{path}{column}", values, lookup=lookup) for column, lookup, values in each))


def ids_of(rows: QuerySet[Any]) -> Ids:
    """Return the row ids as a list if they are few, so that an index can be used; else the query. One query."""
    named = rows.order_by().values_list("pk", flat=True)
    found = list(named[: FEW + 1])
    return found if len(found) <= FEW else named


def nearest(rows: QuerySet[Any], column: str, values: Ids) -> QuerySet[Any]:
    """Return the same query with a hint to scan the index of `column` for these `values`, if they are a list."""
    return (
        rows.near(IndexRange(column, values)) if isinstance(rows, IndexScanRows) and isinstance(values, list) else rows
    )


def sets_with(machines: QuerySet[Machine]) -> Exists:
    """Return the query condition that a set has at least one of these machines."""
    return Exists(machines.filter(availability_set=OuterRef("pk")))
