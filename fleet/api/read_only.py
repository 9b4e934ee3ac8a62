"""Addresses below `/api/` that are no calls, and are only read: they answer any other method with a problem, too."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from fleet.api.problems import bare

View = Callable[..., HttpResponseBase]
METHODS = ("GET", "HEAD")


def read_only(view: View) -> View:
    """The view, for GET and HEAD. Nothing is written, so there is nothing to forge."""

    @wraps(view)
    def read(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in METHODS:
            return bare("method-not-allowed", {"Allow": ", ".join(METHODS)})
        return view(request, *args, **kwargs)

    return csrf_exempt(read)
