"""Form and serializer fields for what pages and API clients send."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.domain.times import LATEST, in_bounds, iso

# A time of day with minutes, and with seconds where callers like.
CLOCK = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"
LOCAL_TIME = "%Y-%m-%dT%H:%M"
# Longest time in seconds for which a token is valid.
MAX_LIFETIME = 366 * 86400


class MomentField(forms.DateTimeField):
    """Form field for date and time, in the active time zone unless the text states one. Returns UTC.

    Postgres accepts no offset beyond 15:59.
    """

    def to_python(self, value: Any) -> datetime | None:
        try:
            value_at: datetime | None = super().to_python(value)
            time = in_bounds(value_at) if value_at is not None else None
        except OverflowError:
            value_at, time = LATEST, None
        if value_at is not None and time is None:
            raise forms.ValidationError("Enter a time between the years 2000 and 2100.")
        return time


class UtcField(MomentField):
    """Form field for a time in UTC, independent of the user's time zone."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=LOCAL_TIME)

    def prepare_value(self, value: Any) -> Any:
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value

    def to_python(self, value: Any) -> datetime | None:
        with timezone.override(UTC):
            return super().to_python(value)


class Time(serializers.DateTimeField):
    """Serializer field for a time in RFC 3339, in UTC with `Z`, independent of the user's time zone."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(default_timezone=UTC, **kwargs)

    def to_internal_value(self, value: Any) -> datetime:
        try:
            found = in_bounds(super().to_internal_value(value))
        except OverflowError:
            found = None
        if found is None:
            raise serializers.ValidationError("Give a time between the years 2000 and 2100.")
        return found

    def to_representation(self, value: datetime | None) -> Any:
        return iso(value) if value else None


@extend_schema_field({"type": "string", "pattern": CLOCK})
class ClockTime(serializers.TimeField):
    """Serializer field for hours and minutes, such as `08:00`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(format="%H:%M", input_formats=["%H:%M", "%H:%M:%S"], **kwargs)


class RequestSerializer(serializers.Serializer[Any]):
    """Serializer that refuses unknown fields and values of the wrong JSON type.

    So a misspelt field causes an error, and `0` is not accepted as a text or as false.
    """

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            found: dict[str, Any] = {str(n): ["There is no such field."] for n in data if n not in self.fields}
            found |= {
                n: errors for n, field in self.fields.items() if n in data and (errors := of_its_type(field, data[n]))
            }
            if found:
                raise serializers.ValidationError(found)
        return super().to_internal_value(data)


class LifetimeField(serializers.IntegerField):
    """Field for the lifetime of a new token in seconds. The default comes from a setting."""

    def __init__(self, setting: str) -> None:
        super().__init__(
            required=False,
            min_value=1,
            max_value=MAX_LIFETIME,
            default=lambda: getattr(settings, setting),
            help_text=f"Default: the setting {setting}.",
        )


def of_its_type(field: Any, value: Any) -> Any:
    """Return the errors if a value has the wrong JSON type for the field; empty if it is right."""
    if value is None:
        return []
    if isinstance(field, serializers.BooleanField) and not isinstance(value, bool):
        return ["Say `true` or `false`."]
    number = isinstance(field, serializers.IntegerField | serializers.PrimaryKeyRelatedField)
    if number and (isinstance(value, bool) or not _whole(value)):
        return ["Give a whole number."]
    if isinstance(field, serializers.CharField | serializers.ChoiceField) and not isinstance(value, str):
        return ["Give a text."]
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        return {number: errors for number, one in enumerate(value) if (errors := of_its_type(field.child, one))}
    if isinstance(field, serializers.DictField) and isinstance(value, dict):
        return {name: errors for name, one in value.items() if (errors := of_its_type(field.child, one))}
    return []


def _whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def flat_errors(detail: Any, path: str = "") -> Iterator[dict[str, str]]:
    """Yield the errors of a serializer as a flat list, each with the path of the field."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            step = "" if name == "non_field_errors" else str(name)
            yield from flat_errors(inner, ".".join(part for part in (path, step) if part))
    elif isinstance(detail, list | tuple):
        for inner in detail:
            yield from flat_errors(inner, path)
    else:
        yield {"field": path, "message": str(detail)}
