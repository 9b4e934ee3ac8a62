"""Calls that may be sent twice: with an `Idempotency-Key` they happen once, and a repeat gets the stored answer."""

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
ONE_SIGHT = "its answer holds a secret, which is shown this once and kept nowhere."


def once(request: Request, act: Callable[[], Any], *, now: datetime, status: int = 201, part: str = "") -> Answer:
    """What `act` answers, as JSON values, or its refusal: both are answers that a repeat gets again.

    `part` names one of several acts of the same request. Without a key, `act` is simply done.
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
    """The key under which the answer of one act of a request is kept."""
    # No key of a caller holds such a character.
    return f"{key}\x1f{part}" if part else key


def completed(request: Request, bodies: Mapping[str, Any]) -> None:
    """Keep these answers, by the part of the request, with its key; without one there is nothing to keep."""
    key = idempotency_key(request)
    if key is not None and bodies:
        complete(user=person_of(request), bodies={key_of_part(key, part): body for part, body in bodies.items()})


def _asked(request: Request) -> str:
    """The address, and what beside the body makes it another request."""
    query, expected = request.META.get("QUERY_STRING", ""), request.headers.get(IF_MATCH.name, "")
    return request.path + (f"?{query}" if query else "") + (f" {expected}" if expected else "")


def answered(answer: Answer, headers: Mapping[str, str] | None = None) -> Response:
    """The response that carries such an answer; `headers` go with one that is no refusal."""
    told = {"Idempotency-Replayed": "true"} if answer.repeated else {}
    refused = answer.status >= 400
    return Response(
        answer.body,
        status=answer.status,
        headers=told if refused else {**(headers or {}), **told},
        content_type=CONTENT_TYPE if refused else None,
    )


def refuse_key(request: Request, why: str) -> None:
    """Raises Problem `validation` for a key that is none; where `why` says that the call takes none, for any: whoever
    sends one relies on it.
    """
    if idempotency_key(request) is not None and why:
        raise wrong("Idempotency-Key", f"This call takes none: {why}")


def idempotency_key(request: Request) -> str | None:
    """The header, if there is one. Raises Problem `validation`."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not re.fullmatch(PRINTABLE, key):
        raise wrong("Idempotency-Key", "Use 1 to 200 printable ASCII characters.")
    return key
