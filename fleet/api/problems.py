"""Errors of the API as problem documents (RFC 9457). Their types are defined in `fleet.wording.problems`.

The gateway uses the same types with its own sentences.
"""

import json
import logging
import math
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions
from rest_framework.response import Response

from fleet.domain.approvals.guards import Need
from fleet.domain.db_timeouts import sqlstate
from fleet.domain.reasons import Refused, as_json
from fleet.operations.idempotency import KeyReused
from fleet.operations.inputs import flat_errors
from fleet.wording import say as wording
from fleet.wording.problems import PROBLEMS, database_waits
from fleet.wording.times import API

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
# `Retry-After` while Postgres is unavailable.
AWAY_SECONDS = 2


class Problem(exceptions.APIException):
    """An error raised by the API. `name` is a key of PROBLEMS, `detail` a sentence about this case."""

    def __init__(self, name: str, detail: str = "", **more: Any) -> None:
        super().__init__(detail or PROBLEMS[name].title)
        self.name = name
        self.sentence = detail
        self.more = more
        self.status_code = PROBLEMS[name].status


def wrong(field: str, message: str) -> Problem:
    """Return the problem `validation` for one field."""
    return Problem("validation", errors=[{"field": field, "message": message}])


def document(name: str, *, detail: str = "", more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a problem document as JSON values. The sentence `detail` precedes the advice of the type."""
    known = PROBLEMS[name]
    text = f"{detail} {known.advice}" if detail else known.advice
    fields = {"type": name, "title": known.title, "status": known.status, "detail": text}
    return fields | {field: value for field, value in as_json(more or {}).items() if field not in fields}


def refusal(error: Refused) -> dict[str, Any]:
    """Return the problem document for an operation's refusal."""
    more = wording.refusal(error, API)
    sentence = more.pop("sentence")
    if error.code == "validation":
        more.setdefault("errors", [{"field": "", "message": sentence}])
    return document(error.code, detail=sentence, more=more)


def waits(error: BaseException) -> dict[str, Any]:
    """Return the problem document for a database that is unavailable or too slow."""
    return document("busy", detail=database_waits(sqlstate(error)))


def answer(body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with this problem document."""
    return Response(body, status=body["status"], headers=dict(headers or {}), content_type=CONTENT_TYPE)


def bare(name: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a problem response outside of an API call, for Django and for middleware below `/api/`."""
    return _plain(document(name), headers)


def unreadable(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the problem response for a malformed request, or for one with a wrong Host header."""
    return bare("unreadable")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the problem response for an unknown URL."""
    return bare("not-found")


def failed(request: HttpRequest) -> HttpResponse:
    """Return the problem response for an exception outside of an API call. Django has logged it already."""
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError | InterfaceError):
        return _plain(waits(error), {"Retry-After": str(AWAY_SECONDS)})
    return bare("failed")


def _plain(body: dict[str, Any], headers: Mapping[str, str] | None) -> HttpResponse:
    sent = {"Cache-Control": "no-store", **(headers or {})}
    answered = HttpResponse(json.dumps(body), status=body["status"], headers=sent, content_type=CONTENT_TYPE)
    # Otherwise Django would log the URL, and that of a calendar contains its secret.
    answered._has_been_logged = body["status"] < 500  # type: ignore[attr-defined]
    return answered


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """Return the problem response for an exception. Unexpected exceptions are logged."""
    headers: dict[str, str] = {}
    match error:
        case Refused():
            return answer(refusal(error))
        case KeyReused():
            return answer(document("key-reused"))
        case Problem():
            return answer(document(error.name, detail=error.sentence, more=error.more))
        case exceptions.ValidationError():
            return answer(document("validation", more={"errors": list(flat_errors(error.detail))}))
        case exceptions.ParseError():
            return answer(document("unreadable"))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            headers["WWW-Authenticate"] = 'Bearer realm="drydock"'
            reason = str(error.detail) if isinstance(error, exceptions.AuthenticationFailed) else ""
            return answer(document("not-authenticated", detail=reason), headers)
        case exceptions.PermissionDenied():
            return answer(document("not-permitted", detail=_ended(str(error.detail))))
        case PermissionDenied():
            return answer(document("not-permitted"))
        case Http404() | exceptions.NotFound():
            return answer(document("not-found"))
        case exceptions.MethodNotAllowed():
            view = context.get("view")
            headers["Allow"] = ", ".join(view.allowed_methods) if view is not None else ""
            return answer(document("method-not-allowed"), headers)
        case exceptions.UnsupportedMediaType():
            return answer(document("unsupported-media-type"))
        case exceptions.Throttled():
            headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "wait", None) or 1)))
            return answer(document("throttled"), headers)
        case OperationalError() | InterfaceError():
            # Postgres is unavailable or starting: a caller that sent a key may repeat the call, and it happens once.
            logger.warning("the database does not answer: %s", error)
            headers["Retry-After"] = str(AWAY_SECONDS)
            return answer(waits(error), headers)
    logger.exception("a call failed")
    return answer(document("failed"))


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


# Shapes of problem documents: one for each type, so that `type` states which further fields exist.

TEXT = {"type": "string"}
ID = {"type": "integer", "minimum": 1}
GUARD = {
    "type": "object",
    "properties": {
        "code": {**TEXT, "description": "What `override` names."},
        "sentence": {**TEXT, "description": "Why the guard blocks."},
        "needs": {**TEXT, "enum": [need.value for need in Need], "description": "What it asks for."},
        "overridable": {"type": "boolean", "description": "An approver may override it though it blocks."},
    },
    "required": ["code", "sentence", "needs", "overridable"],
}
BY = {**TEXT, "description": "Who."}
AT = {**TEXT, "format": "date-time", "description": "When."}
GUARDS = {"type": "array", "items": GUARD, "description": "The guards that block the decision."}
SHOWN = {
    "type": "object",
    "additionalProperties": TEXT,
    "description": "Digests of what these guards name, by code, for `shown` of a decision.",
}
VERSION = {"type": "integer", "minimum": 0, "description": "The event's version now."}
EVENTS = {
    "type": "array",
    "description": "Of a wave: what stands against each of its events.",
    "items": {
        "type": "object",
        "properties": {
            "event_id": TEXT,
            "code": {**TEXT, "description": "A type of problem."},
            "sentence": TEXT,
            "guards": GUARDS,
            "shown": SHOWN,
        },
        "required": ["event_id", "code", "sentence"],
    },
}
ERRORS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "field": {**TEXT, "description": "A field, parameter or header; empty for the request as a whole."},
            "message": {**TEXT, "description": "What is wrong with it."},
        },
        "required": ["field", "message"],
    },
}

# Further fields by type. Those of ALWAYS are always present; the others only where the call knows them.
DECISION = {"guards": GUARDS, "shown": SHOWN, "version": VERSION, "events": EVENTS}
MORE: dict[str, dict[str, Any]] = {
    "precondition-failed": {"version": {**TEXT, "description": "The version now, as in its `ETag`."}},
    "already-decided": {
        "by": BY,
        "at": {**AT, "type": ["string", "null"]},
        "approval": {**ID, "type": ["integer", "null"], "description": "The id of the approval that exists."},
        **DECISION,
    },
    "guarded": DECISION,
    "too-late": DECISION,
    "version-changed": DECISION,
    "stopped": DECISION,
    "already-claimed": {"by": BY, "at": AT, "comment": {**TEXT, "description": "What they are about to do."}},
    "already-held": {"by": BY, "at": AT, "reason": {**TEXT, "description": "Why."}},
    "count-changed": {"count": {"type": "integer", "minimum": 0, "description": "How many events it is now."}},
    "real-event-open": {"event": {**TEXT, "description": "Its EventId."}},
    "drill-open": {"drill": ID},
    "wave-running": {"wave": ID},
    "set-exists": {"set": ID},
    "validation": {"errors": ERRORS},
}
ALWAYS = (
    "already-claimed",
    "already-held",
    "count-changed",
    "real-event-open",
    "drill-open",
    "set-exists",
    "validation",
)


def name_of(kind: str) -> str:
    """Return the schema name of a problem type, such as `AlreadyDecidedProblem` for `already-decided`."""
    return "".join(part.capitalize() for part in kind.split("-")) + "Problem"


def shape_of(kind: str) -> dict[str, Any]:
    """Return the JSON schema of problem documents of this type."""
    known = PROBLEMS[kind]
    more = MORE.get(kind, {})
    return {
        "type": "object",
        "description": f"{known.title}. {known.advice}",
        "properties": {
            "type": {"const": kind, "type": "string"},
            "title": {**TEXT, "description": "What it is."},
            "status": {"const": known.status, "type": "integer"},
            "detail": {**TEXT, "description": "What is wrong in this case, and what to do about it."},
            **more,
        },
        "required": ["type", "title", "status", "detail", *(more if kind in ALWAYS else ())],
    }


def answer_of(kinds: Collection[str]) -> dict[str, Any]:
    """Return the JSON schema of a response that is a problem document of one of these types."""
    refs = [f"#/components/schemas/{name_of(kind)}" for kind in kinds]
    if len(refs) == 1:
        return {"$ref": refs[0]}
    mapping = dict(zip(kinds, refs, strict=True))
    return {
        "oneOf": [{"$ref": ref} for ref in refs],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def by_status(kinds: Collection[str]) -> dict[int, list[str]]:
    """Return these problem types by HTTP status, in the order of PROBLEMS."""
    statuses = sorted({PROBLEMS[kind].status for kind in kinds})
    return {
        status: [kind for kind, known in PROBLEMS.items() if kind in kinds and known.status == status]
        for status in statuses
    }


def described(kinds: Iterable[str]) -> str:
    """Return the OpenAPI description of a response with one of these problem types."""
    return "; ".join(f"`{kind}`: {PROBLEMS[kind].title}" for kind in kinds) + "."
