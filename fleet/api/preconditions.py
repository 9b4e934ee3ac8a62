"""Versions of resources: responses state them as `ETag`, and a writing call may require one with `If-Match`.

The tag is the version itself, not a digest of the response: it changes with values that decisions depend on. A report
of a machine, or another decision of a rule, does not change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from fleet.api.problems import bare, wrong

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


def etag_of(version: Any) -> str:
    """Return the `ETag` header of this version."""
    return f'"{version}"'


def expected_versions(request: Request) -> frozenset[str] | None:
    """Return the versions in `If-Match`; None if any version matches. Raises Problem `validation`."""
    text = request.headers.get(IF_MATCH.name)
    if text is None or text.strip() == ANY:
        return None
    parts = [TAG.fullmatch(part) for part in text.split(",")]
    if len(parts) > 20 or not all(parts):
        raise wrong(IF_MATCH.name, 'Send an `ETag` as it was answered, such as `"3"`.')
    return frozenset(part[1] for part in parts if part)


def refuse_preconditions(request: Request, *, but_if_match: bool) -> None:
    """Raise Problem `validation` for a condition that this call does not support: ignoring it could lose a change."""
    for name in OTHERS if but_if_match else (IF_MATCH.name, *OTHERS):
        if name in request.headers:
            raise wrong(name, "This call heeds no such condition: read the thing first, then send the call without it.")


# URLs below `/api/` that are no calls and are only read: they respond to any other method with a problem, too.

View = Callable[..., HttpResponseBase]
METHODS = ("GET", "HEAD")


def read_only(view: View) -> View:
    """Restrict a view to GET and HEAD. It writes nothing, so it needs no CSRF protection."""

    @wraps(view)
    def read(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in METHODS:
            return bare("method-not-allowed", {"Allow": ", ".join(METHODS)})
        return view(request, *args, **kwargs)

    return csrf_exempt(read)
