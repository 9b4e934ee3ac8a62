"""Shapes of responses, derived from frozen dataclasses: each type becomes a serializer field.

The library djangorestframework-dataclasses also covers request bodies. It is not used because it does not support our
properties, reasons, flattened parts, and responses in which every field is always present.
"""

import copy
from datetime import datetime, time
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from fleet.domain.reasons import Reason
from fleet.domain.shapes import InApi
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.operations.inputs import ClockTime, Time
from fleet.wording.say import say
from fleet.wording.times import API

Shape = type[serializers.Serializer[Any]]
AnyField = serializers.Field[Any, Any, Any, Any]


@extend_schema_field({"anyOf": [{"type": "string", "enum": [kind.value for kind in EntryKind]}, {"type": "string"}]})
class KindField(serializers.CharField):
    """Field with the kind of an entry. During an upgrade, an older process may read a kind that it does not know."""


@extend_schema_field(OpenApiTypes.DATETIME)
class ServerTime(serializers.Field[datetime, Any, str, Any]):
    """Field with the backend's clock at the time of the response; `seconds_left` counts from it."""

    def __init__(self, *, source: str = "*") -> None:
        text = "The backend's clock, which `seconds_left` counts from."
        super().__init__(source=source, read_only=True, help_text=text)

    def to_representation(self, value: Any) -> Any:
        return iso(self.context["now"])


class Said(serializers.CharField):
    """Field with a reason as a sentence, with times in UTC. A stored sentence is returned unchanged."""

    def to_representation(self, value: Reason | str) -> str:
        return say(value, API)


# Types with a single value. A reason, or a type that may be one, is shown as its sentence.
PLAIN: dict[Any, type[AnyField]] = {
    str: serializers.CharField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    bool: serializers.BooleanField,
    UUID: serializers.UUIDField,
    datetime: Time,
    time: ClockTime,
    Reason: Said,
    dict: serializers.DictField,
}
# Shape of each dataclass, for use in other shapes.
SHAPES: dict[Any, Shape] = {}


def shape(
    row: type,
    /,
    *,
    name: str = "",
    without: tuple[str, ...] = (),
    inputs: Shape | None = None,
    **own: AnyField,
) -> Shape:
    """Return the serializer class of a dataclass with its fields and annotated properties (see
    `fleet.domain.shapes.InApi`). The description of a field is its annotated text, else the help text of `inputs`, the
    serializer of the request.

    `own` are fields that the types do not define. The first shape created for a dataclass is used wherever a field has
    that type; a dataclass without a shape gets a default one.
    """
    sent = {field: known.help_text for field, known in inputs().fields.items()} if inputs else {}
    hints = get_type_hints(row, include_extras=True)
    properties = {each: get_type_hints(known.fget, include_extras=True)["return"] for each, known in _properties(row)}
    hints |= {each: hint for each, hint in properties.items() if get_origin(hint) is Annotated}
    fields: dict[str, AnyField] = {}
    flattened: dict[str, AnyField] = {}
    for field, annotated in hints.items():
        hint, marks = (
            (annotated.__origin__, annotated.__metadata__) if get_origin(annotated) is Annotated else (annotated, ())
        )
        if field in own:
            fields[field] = own.pop(field)
        elif InApi.FLATTENED in marks:
            for each, known in cast(Any, shape_of(hint))._declared_fields.items():
                flattened[each] = moved = copy.deepcopy(known)
                # The framework creates each request's field from these arguments.
                moved._kwargs["source"] = field if known.source == "*" else f"{field}.{known.source or each}"
        elif InApi.OMITTED not in marks and field not in without:
            text = next((mark for mark in marks if isinstance(mark, str)), sent.get(field))
            options: dict[str, Any] = {"help_text": text} if text else {}
            if hint in (int, int | None) and (field == "id" or field.endswith("_id")):
                options["min_value"] = 1
            fields[field] = ServerTime() if field == "server_time" else field_of(hint, **options)
    made = cast(
        Shape,
        type(name or row.__name__.removesuffix("Row"), (serializers.Serializer,), {**flattened, **fields, **own}),
    )
    SHAPES.setdefault(row, made)
    return made


def _properties(row: type) -> list[tuple[str, property]]:
    return [(name, known) for base in row.__mro__ for name, known in vars(base).items() if isinstance(known, property)]


def field_of(hint: Any, **more: Any) -> AnyField:
    """Return the serializer field for a type; `more` are the field's arguments. Raises KeyError for an unsupported
    type.
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if NoneType in kinds:
        more["allow_null"] = True
    kind = Reason if Reason in kinds else next(each for each in kinds if each is not NoneType)
    origin = get_origin(kind) or kind
    if origin is Literal:
        return serializers.ChoiceField(get_args(kind), **more)
    if origin is tuple:
        child = get_args(kind)[0]
        if hasattr(child, "__dataclass_fields__") and child is not Reason:
            return shape_of(child)(many=True, **more)
        return serializers.ListField(child=field_of(child), **more)
    if origin is EntryKind:
        return KindField(**more)
    if isinstance(origin, type) and issubclass(origin, StrEnum):
        return serializers.ChoiceField([member.value for member in origin], **more)
    return PLAIN[origin](**more) if origin in PLAIN else shape_of(origin)(**more)


@cache
def page_of(shape: Shape) -> serializers.Serializer[Any]:
    """Return the serializer of one page, for the OpenAPI schema."""
    return inline_serializer(
        f"{shape.__name__}Page",
        {
            "next": serializers.URLField(allow_null=True, help_text="The address of the next page."),
            "previous": serializers.URLField(allow_null=True, help_text="The address of the page before."),
            "results": shape(many=True),
        },
    )


def shape_of(row: type) -> Shape:
    """Return the shape of a dataclass. If `row` is already a shape, return it."""
    return row if issubclass(row, serializers.Serializer) else SHAPES.get(row) or shape(row)
