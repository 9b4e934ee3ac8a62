"""Fields that the shapes share, and the shape of a problem. A shape says what one answer holds; the schema tells it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.domain.reasons import Reason
from fleet.domain.times import iso
from fleet.wording.say import say
from fleet.wording.times import API


@extend_schema_field(OpenApiTypes.DATETIME)
class ServerTime(serializers.Field[datetime, Any, str, Any]):
    """The backend's clock at this answer: what `seconds_left` counts from."""

    def __init__(self, *, source: str = "*") -> None:
        text = "The backend's clock, which `seconds_left` counts from."
        super().__init__(source=source, read_only=True, help_text=text)

    def to_representation(self, value: Any) -> Any:
        return iso(self.context["now"])


@extend_schema_field({"type": ["number", "null"], "minimum": 0})
class SecondsUntil(serializers.Field[float, Any, float | None, Any]):
    """Seconds until a time of the row, never below 0; null where nothing runs out any more."""

    def __init__(self, until: str, *, states: Iterable[str], help_text: str, source: str = "*") -> None:
        self.until = until
        self.states = frozenset(states)
        super().__init__(source=source, read_only=True, help_text=help_text)

    def to_representation(self, value: Any) -> float | None:
        until: datetime | None = getattr(value, self.until)
        state = getattr(value, "state", None) or getattr(value, "status", None)
        if until is None or (self.states and str(state) not in self.states):
            return None
        now: datetime = self.context["now"]
        return round(max(0.0, (until - now).total_seconds()), 3)


class Said(serializers.CharField):
    """A reason as a sentence, its times in UTC; what was recorded as a sentence stays as it is."""

    def to_representation(self, value: Reason | str) -> str:
        return say(value, API)
