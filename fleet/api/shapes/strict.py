"""Strict request bodies: a field takes only its own JSON type, and the schema states further restrictions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from rest_framework import serializers

# At least one visible character.
SAYS_SOMETHING = r"\S"


class ShownWhole(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Schema of request bodies: no other fields, and required texts must not be blank."""

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
