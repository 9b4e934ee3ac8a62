"""What callers send is taken as it was meant: a field takes its own JSON type alone, and the schema says what else it
takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from rest_framework import serializers

# Something in it can be seen.
SAYS_SOMETHING = r"\S"


class Told(serializers.Field[Any, Any, Any, Any]):
    """A field of which the schema says more than the framework can know, such as what an operation refuses in its own
    words: `told` are the words of JSON schema for it.
    """

    def __init__(self, *, told: Mapping[str, Any], **kwargs: Any) -> None:
        self.told = told
        super().__init__(**kwargs)


class ToldText(Told, serializers.CharField):
    pass


class ToldNumber(Told, serializers.IntegerField):
    pass


class ToldList(Told, serializers.ListField):
    pass


class TellsMore(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """How the schema shows such a field."""

    target_class = "fleet.api.shapes.strict.Told"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        found: dict[str, Any] = auto_schema._map_serializer_field(self.target, direction, bypass_extensions=True)
        # Whoever asks says once more that it may be null.
        if isinstance(found.get("type"), list):
            [found["type"]] = [kind for kind in found["type"] if kind != "null"][:1]
        if "items" in self.target.told:
            found["items"] = {**found["items"], **self.target.told["items"]}
        return {**self.target.told, **found, **{k: v for k, v in self.target.told.items() if k != "items"}}


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
