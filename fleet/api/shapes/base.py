"""Fields and short forms that the other shapes share. A shape says what one answer holds, and the schema tells it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.api.problems import plain
from fleet.domain.states import Presence


class Time(serializers.DateTimeField):
    """RFC 3339 in UTC with `Z`, whatever time zone the person reads pages in."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(default_timezone=UTC, **kwargs)

    def to_representation(self, value: datetime | None) -> Any:
        return plain(value)


@extend_schema_field(OpenApiTypes.DATETIME)
class ServerTime(serializers.Field[datetime, Any, str, Any]):
    """The backend's clock at this answer: what `seconds_left` counts from."""

    def __init__(self) -> None:
        super().__init__(source="*", read_only=True, help_text="The backend's clock, which `seconds_left` counts from.")

    def to_representation(self, value: Any) -> Any:
        return plain(self.context["now"])


@extend_schema_field({"type": ["number", "null"], "minimum": 0})
class SecondsUntil(serializers.Field[float, Any, float | None, Any]):
    """Seconds until a time of the row, never below 0; null where nothing runs out any more."""

    def __init__(self, until: str, *, states: Iterable[str], help_text: str) -> None:
        self.until = until
        self.states = frozenset(states)
        super().__init__(source="*", read_only=True, help_text=help_text)

    def to_representation(self, value: Any) -> float | None:
        known = value if isinstance(value, Mapping) else values_of(value)
        until: datetime | None = known[self.until]
        state = known.get("state") or known.get("status")
        if until is None or (self.states and str(state) not in self.states):
            return None
        now: datetime = self.context["now"]
        return round(max(0.0, (until - now).total_seconds()), 3)


def word(kind: type[StrEnum], *, help_text: str = "", empty: bool = False) -> serializers.ChoiceField:
    """A field that holds one word of an enumeration, and null where `empty` is allowed."""
    return serializers.ChoiceField([member.value for member in kind], allow_null=empty, help_text=help_text)


def texts(help_text: str = "") -> serializers.ListField:
    """A list of words or sentences."""
    return serializers.ListField(child=serializers.CharField(), help_text=help_text)


def values_of(*rows: Any) -> dict[str, Any]:
    """The fields of frozen dataclasses side by side, without copying what is in them; the last one wins."""
    return {field.name: getattr(row, field.name) for row in rows for field in dataclasses.fields(row)}


class SetRefSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    kind = serializers.CharField()
    name = serializers.CharField()


class MachineRefSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    resource_name = serializers.CharField()


class CacheRefSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    host = serializers.CharField()


class RuleRefSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()


def presence_word(help_text: str = "") -> serializers.ChoiceField:
    return word(Presence, help_text=help_text or "How present its agent is.")


class ProblemSerializer(serializers.Serializer[Any]):
    """A problem document (RFC 9457). Some types bring further fields."""

    type = serializers.CharField(help_text="One of a fixed list of words.")
    title = serializers.CharField(help_text="What it is.")
    status = serializers.IntegerField(help_text="The HTTP status.")
    detail = serializers.CharField(help_text="What is the matter in this case, then what to do.")
