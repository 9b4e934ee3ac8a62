"""Shapes of answers, derived from the frozen dataclasses that they show: a type becomes a field.

The library for it (djangorestframework-dataclasses) is made for what callers send as well; of our types it cannot tell
properties, reasons, fields of a part side by side with those of the whole, and answers that always hold every field.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime, time
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from fleet.api.shapes.base import Said, ServerTime
from fleet.domain.reasons import Reason
from fleet.domain.timeline import EntryKind
from fleet.operations.inputs import ClockTime, Time

Shape = type[serializers.Serializer[Any]]
AnyField = serializers.Field[Any, Any, Any, Any]


@extend_schema_field({"anyOf": [{"type": "string", "enum": [kind.value for kind in EntryKind]}, {"type": "string"}]})
class KindField(serializers.CharField):
    """The kind of an entry: while processes of two releases run beside each other, one that the older does not know."""


# What is shown as one value. A reason, and what may be one, is shown as its sentence.
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
# The shape of each dataclass, where others hold it.
SHAPES: dict[Any, Shape] = {}


def shape(
    row: type,
    help_texts: Mapping[str, str] | None = None,
    /,
    *,
    name: str = "",
    beside: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    properties: tuple[str, ...] = (),
    inputs: Shape | None = None,
    **own: AnyField,
) -> Shape:
    """The shape of a dataclass: all its fields, with these help texts, and the `properties` that are named.

    `beside` names parts, dataclasses themselves, whose fields stand beside those of the row. `own` are fields that no
    type tells. The first shape of a dataclass is that of every field of its type; one without a shape gets a plain one.
    Help texts are also those of `inputs`, the serializer of what is sent, and of fields that are
    `Annotated[type, "text"]`.
    """
    noted = {field: hint.__metadata__[0] for field, hint in _annotated(row).items()}
    sent = {field: known.help_text for field, known in inputs().fields.items()} if inputs else {}
    texts = {**sent, **noted, **(help_texts or {})}
    hints = {field: hint for field, hint in get_type_hints(row).items() if field not in without}
    hints |= {each: get_type_hints(getattr(row, each).fget)["return"] for each in properties}
    fields: dict[str, AnyField] = {}
    for part in beside:
        fields |= {field: _inside(part, field, known) for field, known in _declared(_shape_of(hints.pop(part))).items()}
    for field, hint in hints.items():
        told: dict[str, Any] = {"help_text": texts[field]} if field in texts else {}
        if hint in (int, int | None) and (field == "id" or field.endswith("_id")):
            told["min_value"] = 1
        if field in own:
            fields[field] = own.pop(field)
        else:
            fields[field] = ServerTime() if field == "server_time" else field_of(hint, **told)
    fields |= own
    unknown = set(help_texts or ()) - set(hints)
    if unknown:
        raise TypeError(f"{row.__name__} has no fields {unknown}")
    made = cast(Shape, type(name or row.__name__.removesuffix("Row"), (serializers.Serializer,), dict(fields)))
    SHAPES.setdefault(row, made)
    return made


def _annotated(row: type) -> dict[str, Any]:
    hints = get_type_hints(row, include_extras=True)
    return {field: hint for field, hint in hints.items() if get_origin(hint) is Annotated}


def field_of(hint: Any, **more: Any) -> AnyField:
    """The field of a type; `more` are its arguments. Raises KeyError for a type that no answer holds."""
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
            return _shape_of(child)(many=True, **more)
        return serializers.ListField(child=field_of(child), **more)
    if origin is EntryKind:
        return KindField(**more)
    if isinstance(origin, type) and issubclass(origin, StrEnum):
        return serializers.ChoiceField([member.value for member in origin], **more)
    return PLAIN[origin](**more) if origin in PLAIN else _shape_of(origin)(**more)


@cache
def page_of(shape: Shape) -> serializers.Serializer[Any]:
    """The shape of one page, for the schema."""
    return inline_serializer(
        f"{shape.__name__}Page",
        {
            "next": serializers.URLField(allow_null=True, help_text="The address of the next page."),
            "previous": serializers.URLField(allow_null=True, help_text="The address of the page before."),
            "results": shape(many=True),
        },
    )


def _shape_of(row: type) -> Shape:
    return SHAPES.get(row) or shape(row)


def _declared(known: Shape) -> dict[str, AnyField]:
    return cast(dict[str, AnyField], cast(Any, known)._declared_fields)


def _inside(part: str, name: str, field: Any) -> AnyField:
    """The same field, read from a part of the row."""
    moved = copy.deepcopy(field)
    # What the framework makes each request's field of.
    moved._kwargs["source"] = part if field.source == "*" else f"{part}.{field.source or name}"
    return cast(AnyField, moved)
