"""Common parts of all pages: access control, and responses with a page, a part of a page, a list or a refusal."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.template.loader import get_template
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.functional import SimpleLazyObject
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.middleware import HtmxDetails

from fleet.dashboard import saved_form, status_bar
from fleet.dashboard.singleflight import single_flight
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.desk import LISTS
from fleet.domain.people import BROWSER, Right, Rights
from fleet.domain.policy import hours
from fleet.domain.reasons import Refused
from fleet.operations import clock, step_up
from fleet.projections import visibility
from fleet.projections.archived import ARCHIVE
from fleet.projections.desk import find, queue
from fleet.projections.pages import BadCursorError, Page
from fleet.projections.people import OwnSettings, own_settings, rights
from fleet.projections.policy import rules
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import say, times
from fleet.wording.problems import CLOCK_WRONG, FAILURES, PROBLEMS
from fleet.wording.times import page_reader

HISTORY_SIZE = 25


class Asked(HttpRequest):
    """Request of a user who may read, with the user's rights and settings. `now` is the time of the request."""

    user: User
    htmx: HtmxDetails
    now: datetime
    rights: Rights
    actor: Actor
    own: OwnSettings


P = ParamSpec("P")
T = TypeVar("T")
Answer = Callable[..., HttpResponseBase]
View = Callable[Concatenate[Asked, P], HttpResponseBase]
PageView = Callable[Concatenate[Asked, P], HttpResponse]
Routed = Callable[Concatenate[HttpRequest, P], HttpResponseBase]
# Parts of a page that can be requested alone: the function that returns the context, by template.
Parts = Mapping[str, Callable[[], Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Panel:
    """A part that an annex adds to a page. The template gets the result of `load` as `panel`."""

    template: str
    load: Callable[..., Any]


def loaded(panels: Iterable[Panel], *subject: Any) -> list[tuple[str, Any]]:
    """Return (template, result of `load`) for each of these panels, for the object `subject` of the page."""
    return [(panel.template, panel.load(*subject)) for panel in panels]


def require_reader(view: View[P]) -> Routed[P]:
    """Restrict a view to users who may read. If the session has ended, the user signs in again, and a submitted form is
    preserved.
    """

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        asked = cast(Asked, request)
        if not request.user.is_authenticated:
            return _ended(asked)
        asked.rights = rights(asked.user)
        if not asked.rights.may(Right.READ):
            return render(request, "403.html", {"reason": "You are in no group with read access."}, status=403)
        asked.now, asked.own = clock.now(), own_settings(user_id=asked.user.pk)
        request_id, address = request.META.get(REQUEST_ID, ""), request.META["REMOTE_ADDR"]
        proved = step_up.recent(step_up.last(request.session), now=asked.now)
        asked.actor = actor.person(asked.user, "page", request_id=request_id, address=address, proved=proved)
        visibility.set_reader(asked.rights, name=asked.actor.name, number=asked.user.pk)
        if request.method not in ("GET", "HEAD") and visibility.hidden_id(kwargs):
            raise Http404("There is no object at this address.")
        if request.method not in ("GET", "HEAD") and not clock.may_clock_decide():
            title, reason = CLOCK_WRONG
            return failure(503, title=title, reason=reason)
        with timezone.override(zone_of(asked.own, request.COOKIES.get("drydock_zone", ""))):
            answer = view(asked, *args, **kwargs)
        saved_form.remember_user(request, answer, asked.user.get_username())
        return answer

    return never_cache(ensure_csrf_cookie(guarded))


def _ended(request: Asked) -> HttpResponse:
    """Return the response to a request without a session. It asks the user to sign in again and preserves a submitted
    form.
    """
    if request.htmx:
        # The sign-in box; the page itself is unchanged.
        box = render(request, "again/box.html", {"whose": saved_form.page_user(request)}, status=401)
        box["HX-Retarget"], box["HX-Reswap"] = "#again", "innerHTML"
        return box
    if request.method == "POST":
        form = saved_form.save_form(request, saved_form.last_user(request))
        if form is not None and form.username:
            return render(request, "again/page.html", {"kept": form, "whose": form.username}, status=401)
    # A form redirects to the page that it was sent from, because its own URL shows nothing.
    there = request.get_full_path() if request.method in ("GET", "HEAD") else came_from(request)
    return redirect(f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': there})}")


def came_from(request: HttpRequest) -> str:
    """Return the path of the page from which a form was sent; the front page if unknown."""
    return urlsplit(request.headers.get("Referer", "")).path or "/"


def read_view(address: str, name: str) -> Callable[[View[P]], Routed[P]]:
    """Return a decorator for a view of GET and HEAD requests of users who may read, with its URL pattern and name."""
    return lambda view: _routed(address, name, require_safe(require_reader(view)))


def form_view(address: str, name: str) -> Callable[[View[P]], Routed[P]]:
    """Return a decorator like that of `read_view`. GET shows the page of a form, POST sends the form."""
    methods = require_http_methods(["GET", "HEAD", "POST"])
    return lambda view: _routed(address, name, methods(require_reader(view)))


def action_view(address: str, name: str, answer: Answer) -> Callable[[View[P]], Routed[P]]:
    """Return a decorator for the view of a form, with its URL pattern and its name. If the form is refused, `answer`
    returns its page again with the reason.
    """

    def decorate(view: View[P]) -> Routed[P]:
        @wraps(view)
        def guarded(request: Asked, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            try:
                return view(request, *args, **kwargs)
            except Refused as error:
                return answer(request, *args, **kwargs, sent=request.POST, **refused(error))

        return _routed(address, name, require_POST(require_reader(guarded)))

    return decorate


def for_admins(reason: str) -> Callable[[PageView[P]], PageView[P]]:
    """Return a decorator for a page of administrators. Other users get the 403 page with this reason."""

    def decorate(answer: PageView[P]) -> PageView[P]:
        @wraps(answer)
        def checked(request: Asked, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.rights.may(Right.ADMINISTER):
                return answer(request, *args, **kwargs)
            return render(request, "403.html", {"reason": reason}, status=403)

        return checked

    return decorate


def _routed(address: str, name: str, view: Routed[P]) -> Routed[P]:
    view.at = address, name  # type: ignore[attr-defined]
    return view


def pages_of(*modules: ModuleType) -> list[URLPattern]:
    """Return the URL patterns of the views in these modules, with fixed parts of an address before parameters."""
    views = [view for module in modules for view in vars(module).values() if isinstance(view, FunctionType)]
    found = {view.at: view for view in views if hasattr(view, "at")}
    return [path(address, found[address, name], name=name) for address, name in sorted(found, reverse=True)]


def failure(status: int, *, headers: Mapping[str, str] | None = None, **said: object) -> HttpResponse:
    """Return an error page with this HTTP status, without a database query. `said` replaces its default texts."""
    title, reason = FAILURES[status]
    shown = get_template("failure.html").render({"title": title, "reason": reason, "status": status, **said})
    return HttpResponse(shown, status=status, headers={"Cache-Control": "no-store", **(headers or {})})


def refused(error: Refused) -> dict[str, Any]:
    """Return the template context of a refusal: the HTTP `status`, and `refusal` with its text."""
    problem, refusal = PROBLEMS[error.code], say.refusal(error, page_reader(clock.now()))
    title = "" if problem.status != 409 or problem.title in refusal["sentence"] else problem.title
    return {"status": problem.status, "refusal": refusal | {"title": title}}


def done(request: Asked, message: str, to: str, **of: Any) -> HttpResponse:
    """Return the response to a successful form: a redirect to the page `to`, which shows the message."""
    messages.success(request, message)
    answer: HttpResponse = redirect(to, **of)
    return answer


def known(found: T | None, sentence: str) -> T:
    """Return the object. If it is None, raise an error that shows the 404 page with this sentence."""
    if found is None:
        raise Http404(sentence)
    return found


def zone_of(own: OwnSettings, reported: str) -> tzinfo:
    """Return the time zone for a user's pages: the configured one, else the browser's (`reported`)."""
    name = reported if own.time_zone == BROWSER else own.time_zone
    try:
        return hours.zone_of(name)
    except ValueError:
        return UTC


def as_asked(request: HttpRequest) -> Asked | None:
    """Return the request if `require_reader` has prepared it, else None."""
    return cast(Asked, request) if isinstance(getattr(request, "own", None), OwnSettings) else None


def common(request: HttpRequest) -> dict[str, Any]:
    """Return the context that all templates share (a Django context processor)."""
    if (asked := as_asked(request)) is None:
        return {}
    saved: dict[str, Any] = {}
    name = request.resolver_match.url_name or "" if request.resolver_match else ""
    if name in LISTS:
        views = SimpleLazyObject(lambda: find.saved_views(user_id=asked.user.pk, page=name))
        saved = {"saved_views": views, "filters_now": filters_of(request.GET)}
    return {
        "now": asked.now,
        "own": asked.own,
        "zone": timezone.get_current_timezone_name(),
        "role": asked.rights.role,
        "version": settings.VERSION,
        "may_approve": asked.rights.may(Right.APPROVE),
        "may_override": asked.rights.may(Right.OVERRIDE),
        "may_administer": asked.rights.may(Right.ADMINISTER),
        "stop": SimpleLazyObject(rules.current),
        "pulse": SimpleLazyObject(lambda: queue.pulse(now=asked.now, rights=asked.rights)),
        **saved,
        "oldest": SimpleLazyObject(lambda: queue.oldest(now=asked.now, rights=asked.rights)),
        "strip": SimpleLazyObject(lambda: status_bar.CACHED.at(asked.now)),
        "archived_until": SimpleLazyObject(ARCHIVE.archived_until),
    }


def filters_of(asked: QueryDict) -> str:
    """Return the query of a URL without the parameters for a part of the page and for the cursor."""
    pairs = [(name, value) for name, values in sorted(asked.lists()) for value in values if value]
    return urlencode([(name, value) for name, value in pairs if name not in ("part", "cursor")])


def page(
    request: Asked,
    template: str,
    parts: Parts | None = None,
    *,
    only: str = "",
    status: int = 200,
    same: Container[str] = (),
    **context: Any,
) -> HttpResponse:
    """Return a page or one of its `parts`: the one named `only`, or the one that htmx requests with `?part=`.

    Only the requested part is built. The name of a part is that of its template file. Templates in `same` are equal for
    all readers with the same rights, so they must contain neither personal data nor forms.
    """
    parts = parts or {}
    asked = only or (request.GET.get("part", "") if request.htmx else "")
    alone = [name for name in parts if asked and name.endswith(f"/{asked}.html")]
    name = (alone or [template])[0]

    def make() -> HttpResponse:
        built = dict(context)
        for part in alone or parts:
            built |= parts[part]()
        return render(request, name, built, status=status)

    # The result of a reader with limited visibility is not shared.
    if request.htmx and name in same and not visibility.is_limited():
        own = replace(request.own, handover_read_until=None)
        # What determines the content of a part that several readers share.
        key = request.get_full_path(), request.rights, own, timezone.get_current_timezone_name()
        answer = HttpResponse(single_flight.once(key, lambda: make().content))
    else:
        answer = make()
    patch_vary_headers(answer, ["HX-Request"])
    # The browser counts down by the server's time.
    answer["X-Drydock-Time"] = times.iso(clock.now())
    return answer


def listed(
    request: Asked,
    template: str,
    part: str,
    read: Callable[..., Page[Any]],
    more_parts: Parts | None = None,
    orders: Sequence[str] = (),
    **context: Any,
) -> HttpResponse:
    """Return a list page with its `part` of rows and further parts. `read` loads the page of rows for a `cursor` and,
    if the address names one of the columns `orders`, in that `order` (see `sort_heading.html`). A cursor that cannot be
    read redirects to the beginning of the list.
    """
    order = request.GET.get("order", "")
    order = order if order.removeprefix("-") in orders else ""
    context |= {"order": order, "unsorted": query_with(request, order="", cursor="")}

    def rows() -> dict[str, Any]:
        return pager(request, read(cursor=request.GET.get("cursor"), **({"order": order} if order else {})))

    try:
        return page(request, template, {part: rows, **(more_parts or {})}, query=query_with(request), **context)
    except BadCursorError:
        return redirect(request.path)


def pager(request: HttpRequest, found: Page[Any]) -> dict[str, Any]:
    """Return the template context of `pager.html`: the rows, and the links to the pages before and after."""
    older, newer = (f"?{query_with(request, cursor=to)}" if to else "" for to in (found.next, found.previous))
    return {"rows": found.results, "older": older, "newer": newer, "looked_to": found.looked_to}


def query_with(request: HttpRequest, **changed: str) -> str:
    """Return the URL query of this page with these values changed, without the parameter for a part. An empty value
    removes its parameter.
    """
    query = request.GET.copy()
    for name, value in {"part": "", **changed}.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return query.urlencode()


def history(read: Callable[..., Page[TimelineRow]], size: int = HISTORY_SIZE, **of: Any) -> dict[str, Any]:
    """Return the template context with the newest entries about an object, which `read` returns, and the filter that
    shows all of them on the timeline (`jump`: from a time).
    """
    found = read(size=size)
    return {"entries": found.results, "more": urlencode(of) if found.next else "", "jump": of.items()}
