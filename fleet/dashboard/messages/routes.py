"""One route: who is told what. It is tried on what happened before it is saved."""

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from fleet.dashboard.messages.forms import RouteForm
from fleet.dashboard.pages import Asked, acts, done, known, page, reader, refused
from fleet.domain.messages.faults import trying_faults_of
from fleet.domain.messages.routes import StandingRoute, changed_route
from fleet.domain.policy.faults import refuse
from fleet.domain.refusal import Refused
from fleet.operations.messages import routes as operations
from fleet.projections.messages import channels, dry_run
from fleet.projections.messages.channels import RouteRow

UNKNOWN = "No route has this number; it may have been deleted, or be somebody's own."


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def route_new(request: Asked) -> HttpResponse:
    """The form of a new route; `own`: for what comes to oneself. Trying it saves nothing."""
    own = bool(request.GET.get("own"))
    if request.method == "POST":
        return _sent(request, None, own=own)
    return _answer(request, _form(request, None, own=own), None, own=own)


def route_answer(request: Asked, /, route_id: int, **context: Any) -> HttpResponse:
    """One route; also the answer to a form on it that was refused."""
    found = known(channels.route(route_id=route_id, person=request.user), UNKNOWN)
    stands = channels.standing(route_id=route_id, person=request.user) or StandingRoute()
    if request.GET.get("try"):
        context["tried"] = _try(request, stands, own=found.own)
    initial = {name: getattr(stands, name) for name in RouteForm.base_fields}
    return _answer(request, _form(request, None, own=found.own, initial=initial), found, own=found.own, **context)


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def route_page(request: Asked, route_id: int) -> HttpResponse:
    """One route in words, its form for who may change it, and what it would have told."""
    if request.method != "POST":
        return route_answer(request, route_id)
    found = known(channels.route(route_id=route_id, person=request.user), UNKNOWN)
    return _sent(request, found, own=found.own)


def _form(request: Asked, data: Any, *, own: bool, **fields: Any) -> RouteForm:
    through = [one for one in channels.listing(person=request.user, now=request.now) if one.own == own and one.posts]
    return RouteForm(data, channels=through, own=own, **fields)


def _answer(request: Asked, form: RouteForm, found: RouteRow | None, *, own: bool, **context: Any) -> HttpResponse:
    may_change = found.may_change if found else True
    return page(request, "messages/route.html", form=form, route=found, own_only=own, may_change=may_change, **context)


def _sent(request: Asked, found: RouteRow | None, *, own: bool) -> HttpResponse:
    """What the form's two buttons do: try such a route on the past, or save it."""
    form = _form(request, request.POST, own=own)
    if not form.is_valid():
        return _answer(request, form, found, own=own, status=422)
    acting: dict[str, Any] = {"actor": request.actor, "now": request.now}
    try:
        if request.POST.get("do") == "try":
            stands = channels.standing(route_id=found.id, person=request.user) if found else None
            wanted = changed_route(stands or StandingRoute(), form.values())
            return _answer(request, form, found, own=own, tried=_try(request, wanted, own=own))
        if found:
            row = operations.change(route_id=found.id, fields=form.values(), **acting)
        else:
            row = operations.create(fields=form.values(), own=own, **acting)
    except Refused as error:
        context = refused(error)
        refusal = context.pop("refusal")
        form.refuse(refusal.get("errors", [{"field": "", "message": refusal["sentence"]}]))
        return _answer(request, form, found, own=own, **context)
    said = f"“{row.name}” is saved. What was told already keeps the wording that it was told by."
    return done(request, said, "you-messages" if row.owner_id else "messages")


def _try(request: Asked, route: StandingRoute, *, own: bool) -> dry_run.RouteDryRun:
    """What such a route would have told. Raises Refused."""
    refuse(trying_faults_of(route))
    return dry_run.dry_run(route=route, now=request.now, person=request.user if own else None)


@acts(route_answer)
def route_switch(request: Asked, route_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled") == "on"
    row = operations.change(route_id=route_id, actor=request.actor, now=request.now, enabled=enabled)
    said = f"“{row.name}” is {'on' if row.enabled else 'off'}."
    return done(request, said, "you-messages" if row.owner_id else "messages")


@acts(route_answer)
def route_delete(request: Asked, route_id: int) -> HttpResponse:
    row = operations.delete(route_id=route_id, actor=request.actor, now=request.now)
    said = f"“{row.name}” is deleted. What it told stays in the log."
    return done(request, said, "you-messages" if row.owner_id else "messages")
