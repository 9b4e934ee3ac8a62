"""The parts of the documentation that are printed from the schema: the calls, and what their answers hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fleet.api.authentication import scope_of
from fleet.api.documentation import schema
from fleet.api.routes import CALLS

# Formats of texts that have a plain name.
FORMATS = {"date-time": "time", "uuid": "UUID", "uri": "address"}


def needs() -> dict[tuple[str, str], str]:
    """The scope that each call needs, by (method, route)."""
    found = {}
    for route in CALLS:
        view = route.callback.view_class  # type: ignore[attr-defined]
        for method in ("get", "post", "patch", "delete"):
            if hasattr(view, method):
                found[method, f"/api/{route.pattern}"] = scope_of(view, method)
    return found


def calls_table() -> str:
    """Every call: method, address, scope, what it does."""
    by_operation = {(method, plain_route(route)): scope for (method, route), scope in needs().items()}
    lines = ["| Call | Scope | What it does |", "|---|---|---|"]
    for address, methods in schema()["paths"].items():
        for method, operation in methods.items():
            scope = by_operation.get((method, address), "read")
            shown = address.removeprefix("/api/v1/")
            lines.append(f"| `{method.upper()} {shown}` | {scope} | {operation['summary']} |")
    return "\n".join(lines)


def plain_route(route: str) -> str:
    """`events/<str:event_id>/` as the schema writes it: `events/{event_id}/`."""
    return re.sub(r"<\w+:(\w+)>", r"{\1}", route)


def fields_tables() -> str:
    """One table for each shape, by name: its fields, their types, what they mean."""
    shapes = schema()["components"]["schemas"]
    # Of pages and problems it is said elsewhere.
    own = ((name, shape) for name, shape in shapes.items() if not name.endswith(("Page", "Problem")))
    return "\n\n".join("\n".join(_table(name, shape)) for name, shape in own)


def _table(name: str, shape: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield "| Field | Type | Meaning |"
    yield "|---|---|---|"
    for field, value in shape["properties"].items():
        yield f"| `{field}` | {type_of(value)} | {value.get('description', '')} |"


def type_of(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    for combined in ("allOf", "oneOf", "anyOf"):
        if combined in value:
            return " or ".join(type_of(part) for part in value[combined])
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return " or ".join("null" if word is None else f"`{word}`" for word in value["enum"])
    kind = value.get("type", "any")
    kinds: list[str] = kind if isinstance(kind, list) else [kind]
    text = FORMATS.get(value.get("format", ""), "string")
    shown = [text if each == "string" else each for each in kinds]
    if "array" in kinds:
        return f"list of {type_of(value['items'])}"
    return " or ".join(shown)
