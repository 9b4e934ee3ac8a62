"""Every error of the API is a problem document (RFC 9457) of one of these types.

The gateway answers agents and streams with types out of the same list, in sentences of its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from fleet.operations.errors import Refused
from fleet.operations.idempotency import KeyReused

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
# When to call again while Postgres is away.
AWAY_SECONDS = 2


@dataclass(frozen=True, slots=True)
class ProblemType:
    """`status` is the HTTP status, `title` says what it is, `advice` in one sentence what to do."""

    status: int
    title: str
    advice: str


PROBLEMS: dict[str, ProblemType] = {
    "unreadable": ProblemType(400, "The request cannot be read", "Send one JSON object in UTF-8."),
    "not-authenticated": ProblemType(
        401, "Nobody is logged in", "Send `Authorization: Bearer <token>` with a valid token, or log in."
    ),
    "not-permitted": ProblemType(
        403, "This person or token may not do that", "Ask an administrator for the right or the scope that is missing."
    ),
    "join-token-refused": ProblemType(
        403, "This join token admits no agent", "Make a new one and configure the agent with it."
    ),
    "not-found": ProblemType(404, "There is no such thing", "Check the address; paths end with a slash."),
    "unknown-event": ProblemType(404, "Nobody has reported this EventId", "Look it up in the list of events."),
    "unknown-machine": ProblemType(404, "No machine has this id", "Look it up in the list of machines."),
    "unknown-person": ProblemType(404, "Nobody has this name", "Look it up in the list of people."),
    "unknown-set": ProblemType(404, "No set has this id", "Look it up in the list of sets."),
    "unknown-drill": ProblemType(404, "No drill has this id", "Look it up in the list of drills."),
    "unknown-wave": ProblemType(404, "No wave has this id", "Look it up in the list of waves."),
    "unknown-approval": ProblemType(404, "No approval has this id", "Look it up at its event."),
    "method-not-allowed": ProblemType(405, "This address has no such method", "Use one of the methods in `Allow`."),
    "too-slow": ProblemType(408, "The request did not come to its end in time", "Send it again, all at once."),
    "already-decided": ProblemType(
        409, "Somebody was first", "Look at the approval that is there; `by` and `at` say who decided and when."
    ),
    "guarded": ProblemType(
        409, "A guard speaks against it", "Read `guards`: what `needs` a reason takes one in `override`."
    ),
    "too-late": ProblemType(
        409, "It is too late for that", "Do nothing: what happens now is decided already; the event's page shows it."
    ),
    "version-changed": ProblemType(
        409, "The event has changed since you looked", "Send the `version` that you decide on as `expected_version`."
    ),
    "count-changed": ProblemType(
        409, "Others are there than you saw", "Look at the list again, then send the number that you see."
    ),
    "already-claimed": ProblemType(
        409, "Somebody is on it already", "Talk to `by`, or take the claim over with `take_over`."
    ),
    "not-claimed": ProblemType(409, "Nobody has claimed it", "Do nothing: there is no claim to give back."),
    "already-held": ProblemType(409, "Somebody holds it already", "Do nothing: `by` says who, `reason` why."),
    "not-held": ProblemType(409, "Nobody holds it", "Do nothing: there is no hold to lift."),
    "real-event-open": ProblemType(
        409, "A real event of this set is open", "Decide about that one; `event` is its id. Rehearse when it is over."
    ),
    "drill-open": ProblemType(
        409, "A drill of this set is under way", "Take part in it, or stop it; `drill` is its id."
    ),
    "no-live-machine": ProblemType(
        409, "No machine of this set is live", "See to its agents first: only live machines can rehearse."
    ),
    "wave-running": ProblemType(
        409, "A wave is under way there", "Wait until it is over, or stop it; `wave` is its id."
    ),
    "set-exists": ProblemType(
        409, "There is a set of this kind and name already", "Merge the two sets if they are one; `set` is its id."
    ),
    "too-large": ProblemType(413, "The body is too large", "Send less at once."),
    "unsupported-media-type": ProblemType(
        415, "The body is of a kind that is not understood", "Send `Content-Type: application/json`."
    ),
    "validation": ProblemType(422, "Something in the request is wrong", "Correct what `errors` names."),
    "key-reused": ProblemType(
        422, "This Idempotency-Key belongs to another request", "Use a new key for a new request."
    ),
    "throttled": ProblemType(429, "Too many requests", "Wait for as many seconds as `Retry-After` says."),
    "failed": ProblemType(500, "Drydock failed", "Try again; if it happens again, tell the people who run Drydock."),
    "busy": ProblemType(503, "Drydock has too much to do", "Wait for as many seconds as `Retry-After` says."),
}


class Problem(exceptions.APIException):
    """Raised by this edge itself. `name` is a key of PROBLEMS, `detail` one sentence about this very case."""

    def __init__(self, name: str, detail: str = "", **more: Any) -> None:
        super().__init__(detail or PROBLEMS[name].title)
        self.name = name
        self.sentence = detail
        self.more = more
        self.status_code = PROBLEMS[name].status


def document(name: str, *, detail: str = "", more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The problem document as JSON values. `detail` comes first, then what to do."""
    known = PROBLEMS[name]
    said = f"{detail} {known.advice}" if detail else known.advice
    taken = {"type": name, "title": known.title, "status": known.status, "detail": said}
    return taken | {field: value for field, value in plain(more or {}).items() if field not in taken}


def refusal(error: Refused) -> dict[str, Any]:
    """The problem document of an operation's refusal."""
    more = dict(error.details)
    if error.code == "validation":
        more.setdefault("errors", [{"field": "", "message": error.sentence}])
    return document(error.code, detail=error.sentence, more=more)


def answer(body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """The response that carries a problem document."""
    return Response(body, status=body["status"], headers=dict(headers or {}), content_type=CONTENT_TYPE)


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Every exception becomes a problem; one that nobody expected is logged, or shown by Django where DEBUG is on."""
    headers: dict[str, str] = {}
    match error:
        case Refused():
            return answer(refusal(error))
        case KeyReused():
            return answer(document("key-reused"))
        case Problem():
            return answer(document(error.name, detail=error.sentence, more=error.more))
        case exceptions.ValidationError():
            return answer(document("validation", more={"errors": list(_flat(error.detail))}))
        case exceptions.ParseError():
            return answer(document("unreadable"))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            headers["WWW-Authenticate"] = 'Bearer realm="drydock"'
            said = str(error.detail) if isinstance(error, exceptions.AuthenticationFailed) else ""
            return answer(document("not-authenticated", detail=said), headers)
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
            # Postgres is away or is starting: whoever sent a key may repeat the call, and it happens once.
            logger.warning("the database is away: %s", error)
            headers["Retry-After"] = str(AWAY_SECONDS)
            return answer(document("busy", detail="The database cannot be reached right now."), headers)
    if settings.DEBUG:
        return None
    logger.exception("a call failed")
    return answer(document("failed"))


def plain(value: Any) -> Any:
    """JSON values only; times as RFC 3339 in UTC with `Z`."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _flat(detail: Any, path: str = "") -> Any:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            step = "" if name == "non_field_errors" else str(name)
            yield from _flat(inner, ".".join(part for part in (path, step) if part))
    elif isinstance(detail, list | tuple):
        for inner in detail:
            yield from _flat(inner, path)
    else:
        yield {"field": path, "message": str(detail)}
