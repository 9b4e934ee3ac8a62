"""Kinds of filters that many lists have: times, several ids, several names.

The library ships no types, hence the ignores at its base classes.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import django_filters
import django_filters.fields
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet

from fleet.domain.times import clamped

# So many values of one filter count at once.
MOST_VALUES = 100


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


class TextsField(forms.Field):
    """Texts: a parameter that may be repeated. Empty ones are left out."""

    widget = forms.SelectMultiple

    def to_python(self, value: Any) -> list[Any]:
        given = value if isinstance(value, list | tuple) else [value]
        found = list(dict.fromkeys(str(each).strip() for each in given if each is not None and str(each).strip()))
        # Also of one value again and again: that is what the API's document says.
        if len(given) > MOST_VALUES:
            raise ValidationError(f"Give at most {MOST_VALUES} values.", code="invalid")
        if any("\x00" in each for each in found):
            raise ValidationError("It may not hold a NUL.", code="invalid")
        return found


class IdsField(TextsField):
    """The same of row ids."""

    def to_python(self, value: Any) -> list[int]:
        found = super().to_python(value)
        numbers = [int(each) for each in found if each.isascii() and each.isdigit() and len(each) < 20]
        if len(numbers) < len(found) or not all(0 < number < 2**63 for number in numbers):
            raise ValidationError("Give the id of a row: a whole number from 1.", code="invalid")
        return numbers


class TextsFilter(django_filters.Filter):  # type: ignore[misc]
    """Rows whose `field_name` is one of these texts, as `lookup_expr` compares them."""

    field_class = TextsField

    def filter(self, qs: QuerySet[Any], value: list[Any]) -> QuerySet[Any]:
        if not value:
            return qs
        found: QuerySet[Any] = qs.filter(one_of(self.field_name, value, lookup=self.lookup_expr))
        return found


class IdsFilter(TextsFilter):
    """Rows whose `field_name` is one of these row ids."""

    field_class = IdsField


def one_of(column: str, values: Iterable[Any], *, lookup: str = "exact") -> Q:
    """That a column has one of these values."""
    found = list(values)
    if lookup == "exact":
        return Q(**{f"{column}__in": found})
    either = Q(pk__in=[])
    for value in found:
        either |= Q(**{f"{column}__{lookup}": value})
    return either
