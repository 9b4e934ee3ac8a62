"""No-approval windows: they stand on the rules' page."""

from typing import Any

from django.http import HttpResponse
from django.urls import reverse

from fleet.dashboard.pages import Asked, acts, done
from fleet.dashboard.policy.forms import WindowForm
from fleet.dashboard.policy.rules import list_answer
from fleet.domain.reasons import Refused
from fleet.operations.policy import rules


def form_answer(request: Asked, *, refusal: dict[str, Any], **context: Any) -> HttpResponse:
    """The rules' page with the window's form, which shows what is wrong in it."""
    form = WindowForm(request.POST)
    if form.is_valid():
        form.refuse(refusal.get("errors", []))
    return list_answer(request, refusal=refusal, window_form=form, **context)


@acts(form_answer)
def window_new(request: Asked) -> HttpResponse:
    form = WindowForm(request.POST)
    if not form.is_valid():
        raise Refused("validation", "Something in the window is wrong.")
    row = rules.create_window(actor=request.actor, now=request.now, values=form.values())
    return done(request, f"“{row.name}” has been created.", f"{reverse('rules')}#windows")


@acts(list_answer)
def window_delete(request: Asked, window_id: int) -> HttpResponse:
    row = rules.delete_window(window_id=window_id, actor=request.actor, now=request.now)
    return done(request, f"“{row.name}” is deleted.", "rules")
