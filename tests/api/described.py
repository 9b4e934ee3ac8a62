"""Comparison of an answer with the OpenAPI document, and the scope that each call requires."""

import re
from functools import cache
from typing import Any

import jsonschema

from fleet.api.authentication import scope_of
from fleet.api.documentation import schema
from fleet.urls import CALLS

Validator = jsonschema.Draft202012Validator


def required_scopes() -> dict[tuple[str, str], str]:
    """Return the scope of each call by (method, route)."""
    return {
        (method, f"/api/{route.pattern}"): scope_of(view, method)
        for route in CALLS
        for view in [route.callback.view_class]  # type: ignore[attr-defined]
        for method in ("get", "post", "patch", "delete")
        if hasattr(view, method)
    }


def writing_calls() -> list[tuple[str, str]]:
    """Return each call that writes as its method and an address."""
    return [
        (method.upper(), re.sub(r"<int:\w+>", "1", re.sub(r"<(str|path):\w+>", "x", route)))
        for method, route in required_scopes()
        if method != "get"
    ]


def plain_route(route: str) -> str:
    """Return a Django route as the schema writes it: `events/<str:event_id>/` as `events/{event_id}/`."""
    return re.sub(r"<\w+:(\w+)>", r"{\1}", route)


def as_described(response: Any, method: str) -> None:
    """Raises AssertionError where the document says nothing of such an answer of this call, or something else."""
    match = response.resolver_match
    operation = schema()["paths"].get(f"/{plain_route(match.route)}", {}).get(method.lower()) if match else None
    # What has no such method or is no address at all is in no document, nor is that Drydock failed.
    if operation is None or response.status_code in (405, 500):
        return
    name, status = operation["operationId"], str(response.status_code)
    assert status in operation["responses"], f"{name} answers {status}: {response.content!r}"
    content = operation["responses"][status].get("content", {})
    kind = response.get("Content-Type", "").partition(";")[0]
    if not content:
        assert not response.content, name
        return
    assert kind in content, f"{name} answers {status} with {kind}"
    if kind.endswith("json"):
        problems = [error.message for error in validator(name, status, kind).iter_errors(response.json())]
        assert not problems, f"{name} answers {status}: {problems}"


@cache
def validator(name: str, status: str, kind: str) -> Validator:
    """Every field of a shape, each of its type, and no other; problems may say more."""
    operations = {one["operationId"]: one for methods in schema()["paths"].values() for one in methods.values()}
    components = {
        shape: {**said, "additionalProperties": shape.endswith("Problem")}
        for shape, said in schema()["components"]["schemas"].items()
    }
    said = operations[name]["responses"][status]["content"][kind]["schema"]
    return Validator({**said, "components": {"schemas": components}}, format_checker=Validator.FORMAT_CHECKER)
