"""Validation of query parameters against the schema, before any other code reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter

SHAPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
}
# No database column holds a greater number.
LARGEST = 2**63 - 1


def wrongly_given(known: Iterable[OpenApiParameter], query: QueryDict) -> Iterator[dict[str, str]]:
    """Yield the errors of given parameters that do not match their description."""
    for parameter in known:
        values = query.getlist(parameter.name)
        if len(values) > 1 and not parameter.many and _shape(parameter)["type"] != "array":
            yield {"field": parameter.name, "message": "Say it once."}
            continue
        told = {*filter(None, (_wrong(parameter, value) for value in values))}
        yield from ({"field": parameter.name, "message": message} for message in sorted(told))


def _shape(parameter: OpenApiParameter) -> Mapping[str, Any]:
    return parameter.type if isinstance(parameter.type, dict) else SHAPES[parameter.type]


def _wrong(parameter: OpenApiParameter, value: str) -> str:
    """Return the error of a value; empty if it is valid."""
    shape = _shape(parameter)
    shape = shape.get("items", shape)
    if parameter.enum and value not in parameter.enum:
        return f"Say one of {', '.join(f'`{each}`' for each in parameter.enum)}."
    if shape["type"] == "integer":
        least, most = shape.get("minimum", -LARGEST), shape.get("maximum", LARGEST)
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(value) <= most):
            return f"Say a number from {least} to {most}."
    if shape["type"] == "boolean" and value.lower() not in ("true", "false"):
        return "Say `true` or `false`."
    # An invalid time is rejected by its filter, with its own message.
    return "Say a time as RFC 3339, such as `2030-01-31T22:00:00Z`." if shape.get("format") and not value else ""
