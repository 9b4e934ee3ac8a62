"""Idempotent calls: with an `Idempotency-Key` they happen once, and a repeat gets the stored response."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of
from fleet.api.preconditions import IF_MATCH
from fleet.api.problems import CONTENT_TYPE, refusal, wrong
from fleet.domain.reasons import Refused
from fleet.operations.idempotency import Answer, answer_once, complete, fingerprint

PRINTABLE = r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?"
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": f"^{PRINTABLE}$"},
    OpenApiParameter.HEADER,
    description="Up to 200 printable characters. The same key and request get the stored answer, for 24 hours.",
)

# Why a call takes no key.
SHOWN_ONCE = "its answer has a secret, which is shown only once and is not stored."


def once(request: Request, act: Callable[[], Any], *, now: datetime, status: int = 201, part: str = "") -> Answer:
    """Return the result of `act` as JSON values, or its refusal: a repeat gets either of them again.

    `part` names one of several actions of the same request. Without a key, `act` is called directly.
    """

    def attempt() -> Answer:
        try:
            return Answer(status=status, body=act())
        except Refused as error:
            body = refusal(error)
            return Answer(status=body["status"], body=body)

    key = idempotency_key(request)
    if key is None:
        return attempt()
    return answer_once(
        user=person_of(request),
        key=key_of_part(key, part),
        request=fingerprint(method=str(request.method), path=_asked(request), body=request.data),
        now=now,
        act=attempt,
        part=bool(part),
    )


def key_of_part(key: str, part: str) -> str:
    """Return the key under which the response of one part of a request is stored."""
    # A caller's key cannot contain this character.
    return f"{key}\x1f{part}" if part else key


def completed(request: Request, bodies: Mapping[str, Any]) -> None:
    """Store these responses with the request's key, by the part of the request; without a key store nothing."""
    key = idempotency_key(request)
    if key is not None and bodies:
        complete(user=person_of(request), bodies={key_of_part(key, part): body for part, body in bodies.items()})


def _asked(request: Request) -> str:
    """Return the URL and the header that, in addition to the body, identify a request."""
    query, expected = request.META.get("QUERY_STRING", ""), request.headers.get(IF_MATCH.name, "")
    return request.path + (f"?{query}" if query else "") + (f" {expected}" if expected else "")


def answered(answer: Answer, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response with this answer; `headers` are added unless it is a refusal."""
    told = {"Idempotency-Replayed": "true"} if answer.repeated else {}
    refused = answer.status >= 400
    return Response(
        answer.body,
        status=answer.status,
        headers=told if refused else {**(headers or {}), **told},
        content_type=CONTENT_TYPE if refused else None,
    )


def refuse_key(request: Request, why: str) -> None:
    """Raise Problem `validation` for an invalid key, or for any key if `why` states that the call takes none. A caller
    that sends a key relies on it.
    """
    if idempotency_key(request) is not None and why:
        raise wrong("Idempotency-Key", f"This call takes none: {why}")


def idempotency_key(request: Request) -> str | None:
    """Return the header, if present. Raises Problem `validation`."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not re.fullmatch(PRINTABLE, key):
        raise wrong("Idempotency-Key", "Use 1 to 200 printable ASCII characters.")
    return key
