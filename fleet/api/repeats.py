"""Request headers of writing calls. With `Idempotency-Key`, a repeated call is not executed again, but gets the stored
response. `If-Match` makes a call depend on a version.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of
from fleet.api.problems import CONTENT_TYPE, bare, refusal, wrong
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
    """Call `act` and return its result as JSON values, or its refusal. A repeat with the same key gets the stored one.

    `part` names one of several actions of the same request. Without a key, `act` is called each time.
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
    path = f"{request.get_full_path()} {request.headers.get(IF_MATCH.name, '')}".rstrip()
    return answer_once(
        user=person_of(request),
        key=key_of_part(key, part),
        request=fingerprint(method=str(request.method), path=path, body=request.data),
        now=now,
        act=attempt,
        part=bool(part),
    )


def key_of_part(key: str, part: str) -> str:
    """Return the key under which the response to one part of a request is stored."""
    # A caller's key cannot contain this character.
    return f"{key}\x1f{part}" if part else key


def completed(request: Request, bodies: Mapping[str, Any]) -> None:
    """Store the responses to parts of this request (`bodies`, by part) under its key. Does nothing without a key."""
    key = idempotency_key(request)
    if key is not None and bodies:
        complete(user=person_of(request), bodies={key_of_part(key, part): body for part, body in bodies.items()})


def answered(answer: Answer, headers: Mapping[str, str] | None = None) -> Response:
    """Return the HTTP response for the result of a call. `headers` are added unless the result is a refusal."""
    refused = answer.status >= 400
    sent = {**({} if refused else headers or {}), **({"Idempotency-Replayed": "true"} if answer.repeated else {})}
    return Response(answer.body, answer.status, headers=sent, content_type=CONTENT_TYPE if refused else None)


def idempotency_key(request: Request) -> str | None:
    """Return the header `Idempotency-Key`; None without it. Raises Problem `validation` if it is invalid."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not re.fullmatch(PRINTABLE, key):
        raise wrong("Idempotency-Key", "Use 1 to 200 printable ASCII characters.")
    return key


# Versions of resources: responses state them as `ETag`, and a writing call may require one with `If-Match`.

# One tag; a tag that a proxy has made weak still names its version.
VERSION = r"[\x21\x23-\x7e]*"
ONE_TAG = rf'\s*(?:W/)?"({VERSION})"\s*'
IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": rf"^(\*|{ONE_TAG}(,{ONE_TAG}){{0,19}})$"},
    OpenApiParameter.HEADER,
    description="The `ETag` that you looked at, or several. Where it is another by now, nothing is done: 412.",
)
# Any tag matches, provided that the resource exists; the operation checks that.
ANY = "*"
TAG = re.compile(ONE_TAG)
# Headers whose condition Drydock does not evaluate.
OTHERS = ("If-None-Match", "If-Unmodified-Since")


def expected_versions(request: Request) -> frozenset[str] | None:
    """Return the versions in the header `If-Match`; None if every version matches. Raises Problem `validation`."""
    text = request.headers.get(IF_MATCH.name)
    if text is None or text.strip() == ANY:
        return None
    parts = [TAG.fullmatch(part) for part in text.split(",")]
    if len(parts) > 20 or not all(parts):
        raise wrong(IF_MATCH.name, 'Send an `ETag` as it was answered, such as `"3"`.')
    return frozenset(part[1] for part in parts if part)


def refuse_headers(request: Request, *, matches: bool, keyless: str) -> None:
    """Raise Problem `validation` for a header that this call does not support: ignoring a condition could overwrite a
    change, and a caller relies on a key. `matches`: the call supports `If-Match`. `keyless`: why it accepts no key.
    """
    for name in OTHERS if matches else (IF_MATCH.name, *OTHERS):
        if name in request.headers:
            raise wrong(name, "This call heeds no such condition: read the thing first, then send the call without it.")
    if idempotency_key(request) is not None and keyless:
        raise wrong("Idempotency-Key", f"This call takes none: {keyless}")


# URLs below `/api/` that are no calls and are only read: they respond to any other method with a problem, too.

View = Callable[..., HttpResponseBase]
METHODS = ("GET", "HEAD")


def read_only(view: View) -> View:
    """Restrict a view to GET and HEAD. It writes nothing, so it needs no CSRF check."""

    @wraps(view)
    def read(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in METHODS:
            return bare("method-not-allowed", {"Allow": ", ".join(METHODS)})
        return view(request, *args, **kwargs)

    return csrf_exempt(read)
