"""What all pages share: who may see them, and how a page or a part of it is answered."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render, resolve_url
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie

from fleet.dashboard import words
from fleet.domain import hours
from fleet.operations.profiles import BROWSER
from fleet.operations.rights import can_administer, can_approve, can_override, can_read
from fleet.projections.people import OwnSettings, own_settings
from fleet.projections.queue import pulse

# Where a request keeps what its person has chosen.
OWN = "drydock.own"
P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def is_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def person(request: HttpRequest) -> User:
    """The person behind a request that passed `reader`."""
    assert isinstance(request.user, User)  # noqa: S101
    return request.user


def reader(view: View[P]) -> View[P]:
    """Only people who may read. A part that is asked for after the login ended sends the browser to log in."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not request.user.is_authenticated:
            login = resolve_url(settings.LOGIN_URL)
            if is_htmx(request):
                # Back to the page, not to the part that it asked for.
                there = urlsplit(request.headers.get("HX-Current-URL", "")).path or "/"
                return HttpResponse(status=401, headers={"HX-Redirect": f"{login}?{urlencode({'next': there})}"})
            answer = HttpResponse(status=302)
            answer["Location"] = f"{login}?{urlencode({'next': request.get_full_path()})}"
            return answer
        if not can_read(request.user):
            return render(request, "403.html", {"reason": "You are in none of the groups that may read."}, status=403)
        own = own_settings(user_id=person(request).pk)
        request.META[OWN] = own
        with timezone.override(zone_of(own, request.COOKIES.get("drydock_zone", ""))):
            return view(request, *args, **kwargs)

    return never_cache(ensure_csrf_cookie(guarded))


def zone_of(own: OwnSettings, told: str) -> tzinfo:
    """The time zone in which somebody reads pages; `told` is what their browser says of itself."""
    name = told if own.time_zone == BROWSER else own.time_zone
    try:
        return hours.zone_of(name)
    except ValueError:
        return UTC


Parts = dict[str, Callable[[], dict[str, Any]]]


def page(
    request: HttpRequest, template: str, parts: Parts, *, now: datetime, status: int = 200, **context: Any
) -> HttpResponse:
    """A whole page, or with `?part=<name>` that part of it: the template `parts/<name>.html`.

    `parts` names the parts that may be asked for, each with what makes its context; only what is shown is made.
    """
    context |= {"now": now, "may_approve": can_approve(request.user)}
    asked = request.GET.get("part", "")
    if is_htmx(request) and asked in parts:
        return timed(render(request, f"parts/{asked}.html", context | parts[asked](), status=status))
    for make in parts.values():
        context |= make()
    context |= {"may_administer": can_administer(request.user), "own": request.META.get(OWN)}
    context |= {"zone": timezone.get_current_timezone_name(), "may_override": can_override(request.user)}
    if "pulse" not in context:
        context["pulse"] = pulse(now=now)
    return timed(render(request, template, context, status=status))


def part(request: HttpRequest, name: str, *, now: datetime, status: int = 200, **context: Any) -> HttpResponse:
    """One part alone, as the answer to a form that the browser sent by itself."""
    context |= {"now": now, "may_approve": can_approve(request.user)}
    return timed(render(request, f"parts/{name}.html", context, status=status))


def timed(answer: HttpResponse) -> HttpResponse:
    """With the server's time, by which the browser counts down."""
    patch_vary_headers(answer, ["HX-Request"])
    answer["X-Drydock-Time"] = words.iso(timezone.now())
    return answer


def missing(request: HttpRequest, sentence: str) -> HttpResponse:
    """404 with a sentence."""
    return page(request, "404.html", {}, now=timezone.now(), status=404, reason=sentence)
