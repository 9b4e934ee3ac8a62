"""The switch that stops all approvals: its page, and the banner on every page while it is on."""

from typing import Any

from django.http import HttpResponse

from fleet.dashboard.forms import CommentForm
from fleet.dashboard.pages import Asked, acts, done, page, shown
from fleet.operations.policy import rules
from fleet.projections.policy import rules as stops


def stop_answer(request: Asked, /, **context: Any) -> HttpResponse:
    return page(request, "policy/stop.html", state=stops.state(), **context)


stop_page = shown(stop_answer)


@shown
def banner(request: Asked) -> HttpResponse:
    """Asked for again when the stream tells of a change."""
    return page(request, "policy/stop_banner.html")


@acts(stop_answer)
def stop_all(request: Asked) -> HttpResponse:
    actor = request.actor.because(CommentForm(request.POST).values["comment"])
    rules.stop_all(actor=actor, now=request.now)
    return done(request, "All approvals are stopped. What Azure was asked already goes on.", "stop")


@acts(stop_answer)
def lift(request: Asked) -> HttpResponse:
    actor = request.actor.because(CommentForm(request.POST).values["comment"])
    rules.lift(actor=actor, now=request.now, expected=request.POST.getlist("version") or None)
    return done(request, "The stop is lifted: approvals go on.", "stop")
