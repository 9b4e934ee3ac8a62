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


class RequestSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know, and values of another JSON type: what is misspelt must not be passed over
    in silence, and `0` is neither a name nor a no.
    """

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            found: dict[str, Any] = {str(n): ["There is no such field."] for n in data if n not in self.fields}
            found |= {
                n: told for n, field in self.fields.items() if n in data and (told := of_its_type(field, data[n]))
            }
            if found:
                raise serializers.ValidationError(found)
        return super().to_internal_value(data)


def of_its_type(field: Any, value: Any) -> Any:
    """What is wrong with the JSON type of a value, as errors of its field; none where nothing is."""
    if value is None:
        return []
    if isinstance(field, serializers.BooleanField) and not isinstance(value, bool):
        return ["Say `true` or `false`."]
    if isinstance(field, serializers.IntegerField) and (isinstance(value, bool) or not _whole(value)):
        return ["Give a whole number."]
    if isinstance(field, serializers.CharField | serializers.ChoiceField) and not isinstance(value, str):
        return ["Give a text."]
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        return {number: told for number, one in enumerate(value) if (told := of_its_type(field.child, one))}
    if isinstance(field, serializers.DictField) and isinstance(value, dict):
        return {name: told for name, one in value.items() if (told := of_its_type(field.child, one))}
    return []


def _whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


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

    target_class = "fleet.api.shapes.strict.RequestSerializer"
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
