"""The API's documentation on a page: the calls by what they are about, and the shapes, out of the OpenAPI document."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from fleet.api.documentation import schema
from fleet.api.read_only import read_only
from fleet.api.reference import needs, plain_route, type_of
from fleet.operations import clock

PREFIX = "/api/v1/"


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of a body or a shape. `where` is `path`, `query` or `header`, empty for fields."""

    name: str
    type: SafeString
    shape: str
    description: SafeString
    required: bool
    where: str = ""


@dataclass(frozen=True, slots=True)
class CallPage:
    """One call. `answers` are (status, what it is, shape); shapes are empty where an answer has none of a name."""

    id: str
    method: str
    path: str
    summary: SafeString
    description: SafeString
    scope: str
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    body_type: str
    answers: tuple[tuple[str, SafeString, str], ...]

    @property
    def acts(self) -> bool:
        return self.method != "GET"

    @property
    def example(self) -> str:
        """A body with what has to be in it, to be filled in."""
        return json.dumps({field.name: "" for field in self.body if field.required}, indent=2) if self.body_type else ""

    @property
    def curl(self) -> str:
        lines = [f'curl --request {self.method} --header "Authorization: Bearer $DRYDOCK_TOKEN"']
        if self.body_type:
            body = json.dumps({field.name: "" for field in self.body if field.required})
            lines.append(f"--header 'Content-Type: application/json' --data {shlex.quote(body)}")
        return " ".join([*lines, shlex.quote(f"{settings.BASE_URL}{self.path}")])


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    description: SafeString
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Manual:
    """`groups` are (what they are about, calls)."""

    description: SafeString
    groups: tuple[tuple[str, tuple[CallPage, ...]], ...]
    shapes: tuple[Shape, ...]


@cache
def manual() -> Manual:
    """It depends on the code alone, so each process makes it once."""
    document = schema()
    scopes = {(method, plain_route(route)): scope for (method, route), scope in needs().items()}
    groups: dict[str, list[CallPage]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found = _call(path, method, operation, scopes.get((method, path), "read"))
            groups.setdefault(path.removeprefix(PREFIX).partition("/")[0].replace("-", " "), []).append(found)
    shapes = [
        Shape(name, spans(shape.get("description", "")), tuple(_fields(shape)))
        for name, shape in sorted(document["components"]["schemas"].items())
    ]
    return Manual(
        description=spans(document["info"]["description"]),
        groups=tuple((name, tuple(calls)) for name, calls in groups.items()),
        shapes=tuple(shapes),
    )


def _call(path: str, method: str, operation: dict[str, Any], scope: str) -> CallPage:
    content = operation.get("requestBody", {}).get("content", {})
    body: dict[str, Any] = next((one.get("schema", {}) for one in content.values()), {})
    return CallPage(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=spans(operation.get("summary", "")),
        description=spans(operation.get("description", "")),
        scope=scope,
        parameters=tuple(
            Field(
                name=one["name"],
                type=spans(type_of(one["schema"])),
                shape="",
                description=spans(one.get("description", "")),
                required=one.get("required", False),
                where=one["in"],
            )
            for one in operation.get("parameters", [])
        ),
        body=tuple(_fields(_resolved(body))),
        body_type=type_of(body) if body else "",
        answers=tuple(_answers(operation["responses"])),
    )


def _answers(responses: dict[str, Any]) -> Iterator[tuple[str, SafeString, str]]:
    for status, one in sorted(responses.items()):
        shape = next((_shape(content.get("schema", {})) for content in one.get("content", {}).values()), "")
        # Of problems the description names every type.
        yield status, spans(one.get("description", "")), "" if shape.endswith("Problem") else shape


def _fields(shape: dict[str, Any]) -> Iterator[Field]:
    required = shape.get("required", [])
    for name, value in shape.get("properties", {}).items():
        told, kind = spans(value.get("description", "")), spans(type_of(value))
        yield Field(name, kind, _shape(value), told, name in required)


def _resolved(shape: dict[str, Any]) -> dict[str, Any]:
    name = _shape(shape)
    found: dict[str, Any] = schema()["components"]["schemas"].get(name, shape)
    return found


def _shape(value: dict[str, Any]) -> str:
    """The name of the shape that a value is, or is a list of; empty where it is none."""
    found = re.search(r"'\$ref': '#/components/schemas/(\w+)'", str(value))
    return found[1] if found else ""


def spans(text: str) -> SafeString:
    """A text of the document, with what stands between backticks as code."""
    parts = [
        (format_html("<code>{}</code>", part) if number % 2 else part,) for number, part in enumerate(text.split("`"))
    ]
    return format_html_join("", "{}", parts)


@read_only
def docs_page(request: HttpRequest) -> HttpResponse:
    """It holds no secret, so nobody has to log in for it; trying a call needs a login."""
    return render(request, "api/docs.html", {"manual": manual(), "now": clock.now()})
