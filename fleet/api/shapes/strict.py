"""What callers send is taken as it was meant: a field takes its own JSON type alone, and the schema says what else it
takes.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from rest_framework import serializers

# Something in it can be seen.
SAYS_SOMETHING = r"\S"


class ShownWhole(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """How the schema shows what callers send: no other field, and texts that say something where they have to."""

    target_class = "fleet.operations.inputs.RequestSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        found: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            _say_something(field, found["properties"][name])
        return {**found, "additionalProperties": False}


def _say_something(field: Any, shape: dict[str, Any]) -> None:
    if isinstance(field, serializers.ListField) and "items" in shape:
        _say_something(field.child, shape["items"])
    elif isinstance(field, serializers.CharField) and not field.allow_blank and "enum" not in shape:
        shape.setdefault("pattern", SAYS_SOMETHING)
        shape.setdefault("minLength", 1)
