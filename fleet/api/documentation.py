"""OpenAPI 3.1 document of the API."""

import json
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.generators import SchemaGenerator
from rest_framework import serializers

from fleet.api.problems import CONTENT_TYPE, answer_of, by_status, described, name_of, shape_of
from fleet.api.repeats import read_only
from fleet.wording.problems import PROBLEMS

# The generator keeps its state on the views, which all threads share.
GENERATOR_LOCK = Lock()
STREAM_PROBLEMS = ("not-authenticated", "not-permitted", "validation", "busy")
STREAM: dict[str, Any] = {
    "operationId": "stream",
    "summary": "What changed, as server-sent events",
    "description": (
        "Answered by the gateway. Begins with the event `clock` (`server_time`); then one event `changed` for each"
        " new entry of a timeline, with the fields `kind`, `event_id`, `set`, `machine`, `approval`, `at` and `text`."
        " If it cannot continue after `Last-Event-ID`, it sends `reset` first (`reason`: `unreadable`, `earlier-era` or"
        " `ahead`) and continues with new entries: reload all data that you have cached."
        " A comment every 15 seconds keeps the connection open. The stream ends after about 200 seconds; send the last"
        " `id` in `Last-Event-ID` to continue without a gap. The stream reports which objects changed: read the"
        " objects themselves from their own addresses. Requires the scope `read`."
    ),
    "tags": ["stream"],
    "security": [{"token": []}, {"cookieAuth": []}],
    "parameters": [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The `id` of the last event that was received.",
        }
    ],
    "responses": {
        "200": {
            "description": "Events until the stream ends itself.",
            # OpenAPI has no common way yet to describe the content of one event.
            "content": {"text/event-stream": {}},
        },
        **{
            str(status): {"description": described(kinds), "content": {CONTENT_TYPE: {"schema": answer_of(kinds)}}}
            for status, kinds in by_status(STREAM_PROBLEMS).items()
        },
    },
}

# The generator omits bodies of DELETE.
WITHDRAWAL = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Why"}}}, "required": False}


def schema() -> dict[str, Any]:
    """Return the OpenAPI document. It is generated once in each process, because it depends only on the code."""
    with GENERATOR_LOCK:
        return generated()


@cache
def generated() -> dict[str, Any]:
    """Generate the OpenAPI document. Only one thread generates at a time."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    document: dict[str, Any] = generator.get_schema(request=None, public=True)
    paths, shapes = document["paths"], document["components"]["schemas"]
    paths["/api/v1/stream"] = {"get": STREAM}
    paths["/api/v1/approvals/{approval_id}/"]["delete"]["requestBody"] = WITHDRAWAL
    # Only the types of problems that calls return.
    text = json.dumps(paths)
    shapes |= {name_of(kind): shape_of(kind) for kind in sorted(PROBLEMS) if f'/{name_of(kind)}"' in text}
    _strip(document)
    _add_examples(paths)
    return document


def _strip(node: Any) -> None:
    """Remove keys from the document that only the generator uses."""
    if isinstance(node, dict):
        node.pop("x-spec-enum-id", None)
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _strip(child)


@read_only
def schema_document(request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document as JSON. It is public, because it contains no data of the fleet."""
    return JsonResponse(schema(), content_type="application/vnd.oai.openapi+json; version=3.1; charset=utf-8")


# Recorded examples of calls and their responses, made with a simulated fleet by tests/api/test_examples_are_real.py.

PLACE = Path(__file__).with_name("examples.json")
# By operation: the request body (`sent`), if any, and the responses (`answered`), by status.
EXAMPLES: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))


def _add_examples(paths: dict[str, Any]) -> None:
    operations = {one["operationId"]: one for methods in paths.values() for one in methods.values()}
    for name, example in EXAMPLES.items():
        parts = [(operations[name]["responses"][status], body) for status, body in example["answered"].items()]
        if example["sent"] is not None:
            parts.append((operations[name]["requestBody"], example["sent"]))
        for part, value in parts:
            for content in part["content"].values():
                content["example"] = value


# Strict request bodies: a field takes only its own JSON type, and the schema states further restrictions.

# At least one visible character.
SAYS_SOMETHING = r"\S"


class ShownWhole(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Schema extension for request bodies: other fields are not allowed, and required texts must not be blank."""

    target_class = "fleet.operations.inputs.RequestSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        schema: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            _require_text(field, schema["properties"][name])
        return {**schema, "additionalProperties": False}


def _require_text(field: Any, shape: dict[str, Any]) -> None:
    if isinstance(field, serializers.ListField) and "items" in shape:
        _require_text(field.child, shape["items"])
    elif isinstance(field, serializers.CharField) and not field.allow_blank and "enum" not in shape:
        shape.setdefault("pattern", SAYS_SOMETHING)
        shape.setdefault("minLength", 1)
