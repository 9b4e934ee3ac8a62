"""The API describes itself: an OpenAPI 3.1 document, and a page that shows it out of local files."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings

from fleet.api.examples import show_examples
from fleet.api.problems import CONTENT_TYPE
from fleet.api.read_only import read_only
from fleet.api.routes import CALLS
from fleet.api.shapes.problems import answer_of, by_status, name_of, shape_of, told
from fleet.wording.problems import PROBLEMS

SETTINGS: dict[str, Any] = {
    "TITLE": "Drydock",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "DESCRIPTION": (
        "Scheduled events of Azure, decided once. Everything that a page can do, through the same operations and the"
        " same guards. Times are RFC 3339 in UTC with `Z`; `seconds_left` counts from `server_time`. Errors are problem"
        " documents (RFC 9457)."
    ),
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    # Words of a state stand where they are used; a name for each list of them would only be one more name.
    "POSTPROCESSING_HOOKS": [],
    "COMPONENT_SPLIT_PATCH": False,
    # What a class is for those who read the code says nothing to those who call.
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

STREAM_PROBLEMS = ("not-authenticated", "not-permitted", "validation", "busy")
STREAM: dict[str, Any] = {
    "operationId": "stream",
    "summary": "What changed, as server-sent events",
    "description": (
        "Answered by the gateway. Begins with the event `clock` (`server_time`); then one event `changed` for each"
        " new entry of a timeline, with the fields `kind`, `event_id`, `set`, `machine`, `approval`, `at` and `text`."
        " Where it cannot go on after `Last-Event-ID`, it says `reset` first (`reason`: `unreadable`, `earlier-era` or"
        " `ahead`), and goes on with what is new: read anew whatever you keep."
        " A comment keeps the line open every 15 seconds. The stream ends itself after about 200 seconds; with the"
        " last `id` in `Last-Event-ID` the next one goes on without a gap. It says what changed: read the thing"
        " itself where it lives."
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
            # There is no common way yet to say what one event holds.
            "content": {"text/event-stream": {}},
        },
        **{
            str(status): {"description": told(kinds), "content": {CONTENT_TYPE: {"schema": answer_of(kinds)}}}
            for status, kinds in by_status(STREAM_PROBLEMS).items()
        },
    },
}

# The generator leaves out bodies of DELETE.
WITHDRAWAL: dict[str, Any] = {
    "required": False,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "comment": {"type": "string", "maxLength": 2000, "description": "Why; it stands in the timeline."}
                },
            }
        }
    },
}


@cache
def schema() -> dict[str, Any]:
    """The OpenAPI document. It depends on the code alone, so each process makes it once."""
    with patched_settings(SETTINGS):
        generator: Any = SchemaGenerator(patterns=[path("api/", include(CALLS))])  # type: ignore[no-untyped-call]
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
    """The types of problems that the calls answer, by their shapes' names in the document."""
    text = json.dumps(paths)
    return {kind for kind in PROBLEMS if f'/{name_of(kind)}"' in text}


def _strip(node: Any) -> None:
    """Take out marks that the generator leaves for itself."""
    if isinstance(node, dict):
        node.pop("x-spec-enum-id", None)
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _strip(child)


@read_only
def schema_document(request: HttpRequest) -> HttpResponse:
    """The document as JSON. It holds no secret, so nobody has to log in for it."""
    return JsonResponse(schema(), content_type="application/vnd.oai.openapi+json; version=3.1; charset=utf-8")
