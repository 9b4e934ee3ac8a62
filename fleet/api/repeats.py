"""Calls that may be sent twice: with an `Idempotency-Key` they happen once, and a repeat gets the stored answer."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of
from fleet.api.problems import CONTENT_TYPE, refusal, wrong
from fleet.domain.refusal import Refused
from fleet.operations.people.idempotency import Answer, answer_once, fingerprint

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Up to 200 printable characters. The same key and request get the stored answer, for 24 hours.",
)


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
        # No key of a caller holds such a character.
        key=f"{key}\x1f{part}" if part else key,
        request=fingerprint(method=str(request.method), path=request.path, body=request.data),
        now=now,
        act=attempt,
    )


def answered(answer: Answer) -> Response:
    """The response that carries such an answer."""
    headers = {"Idempotency-Replayed": "true"} if answer.repeated else {}
    kind = CONTENT_TYPE if answer.status >= 400 else None
    return Response(answer.body, status=answer.status, headers=headers, content_type=kind)


def idempotency_key(request: Request) -> str | None:
    """The header, if there is one. Raises Problem `validation`."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?", key):
        raise wrong("Idempotency-Key", "Use 1 to 200 printable ASCII characters.")
    return key
