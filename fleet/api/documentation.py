"""The OpenAPI 3.1 document of the API."""

from __future__ import annotations

import json
from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_spectacular.generators import SchemaGenerator

from fleet.api.examples import show_examples
from fleet.api.preconditions import read_only
from fleet.api.problems import CONTENT_TYPE, answer_of, by_status, name_of, shape_of, told
from fleet.api.shapes import strict as schema_extensions  # noqa: F401
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
            str(status): {"description": told(kinds), "content": {CONTENT_TYPE: {"schema": answer_of(kinds)}}}
            for status, kinds in by_status(STREAM_PROBLEMS).items()
        },
    },
}

# The generator omits bodies of DELETE.
WITHDRAWAL: dict[str, Any] = {
    "required": False,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "comment": {
                        "type": "string",
                        "maxLength": 2000,
                        "description": "The reason; it is recorded in the timeline.",
                    }
                },
            }
        }
    },
}


def schema() -> dict[str, Any]:
    """Return the OpenAPI document. It depends on the code alone, so each process generates it once."""
    with GENERATOR_LOCK:
        return generated()


@cache
def generated() -> dict[str, Any]:
    """Generate the OpenAPI document, in one thread at a time."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    found: dict[str, Any] = generator.get_schema(request=None, public=True)
    found["paths"]["/api/v1/stream"] = {"get": STREAM}
    found["paths"]["/api/v1/approvals/{approval_id}/"]["delete"]["requestBody"] = WITHDRAWAL
    shapes = found["components"]["schemas"]
    for kind in sorted(_kinds(found["paths"])):
        shapes[name_of(kind)] = shape_of(kind)
    _strip(found)
    show_examples(found["paths"])
    return found


def _kinds(paths: dict[str, Any]) -> set[str]:
    """Return the types of problems that the calls return, by the names of their shapes in the document."""
    text = json.dumps(paths)
    return {kind for kind in PROBLEMS if f'/{name_of(kind)}"' in text}


def _strip(node: Any) -> None:
    """Remove marks that the generator uses internally."""
    if isinstance(node, dict):
        node.pop("x-spec-enum-id", None)
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _strip(child)


@read_only
def schema_document(request: HttpRequest) -> HttpResponse:
    """Return the document as JSON. It is public: it contains no data of the fleet."""
    return JsonResponse(schema(), content_type="application/vnd.oai.openapi+json; version=3.1; charset=utf-8")
