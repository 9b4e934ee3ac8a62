"""Pages that decide. Each parses, calls one operation, answers."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from fleet.dashboard.forms import ApprovalForm, WithdrawalForm
from fleet.dashboard.pages import is_htmx, missing, page, part, person, reader
from fleet.dashboard.views import event_answer
from fleet.operations import deciding
from fleet.operations.errors import Refused
from fleet.projections import approvals, events

STATUS = {"unknown-event": 404, "unknown-approval": 404, "not-permitted": 403, "validation": 422}


def refused(request: HttpRequest, event_id: str, refusal: Refused, *, comment: str = "") -> HttpResponse:
    """The decision panel with the reason, alone or on the event's page."""
    status = STATUS.get(refusal.code, 409)
    context: dict[str, Any] = {
        "refusal": {"code": refusal.code, "sentence": refusal.sentence, **refusal.details},
        "comment": comment,
    }
    if not is_htmx(request):
        return event_answer(request, event_id, status=status, **context)
    now = timezone.now()
    detail = events.detail(event_id=event_id, now=now)
    if detail is None:
        return missing(request, "No such event is known: check its EventId.")
    return part(request, "decision", now=now, status=status, detail=detail, **context)


def decided(request: HttpRequest, event_id: str, said: str) -> HttpResponse:
    """The decision panel as it is now, alone or on the event's page."""
    if not is_htmx(request):
        messages.success(request, said)
        return redirect("event", event_id=event_id)
    now = timezone.now()
    detail = events.detail(event_id=event_id, now=now)
    return part(request, "decision", now=now, detail=detail, said=said)


@require_POST
@reader
def approve(request: HttpRequest, event_id: str) -> HttpResponse:
    form = ApprovalForm(request.POST)
    if not form.is_valid():
        sentence = "The comment may have up to 2,000 characters, and the version is a number."
        return refused(request, event_id, Refused("validation", sentence), comment=request.POST.get("comment", ""))
    comment = form.cleaned_data["comment"]
    try:
        deciding.grant(
            event_id=event_id,
            by=person(request),
            via="page",
            comment=comment,
            now=timezone.now(),
            expected_version=form.cleaned_data["expected_version"],
        )
    except Refused as refusal:
        return refused(request, event_id, refusal, comment=comment)
    return decided(request, event_id, "Approved. It is on its way to Azure.")


@require_POST
@reader
def withdraw(request: HttpRequest, approval_id: int) -> HttpResponse:
    found = approvals.detail(approval_id=approval_id, now=timezone.now())
    if found is None:
        return missing(request, "There is no such approval.")
    form = WithdrawalForm(request.POST)
    comment = form.cleaned_data["comment"] if form.is_valid() else ""
    try:
        deciding.withdraw(approval_id=approval_id, by=person(request), via="page", comment=comment, now=timezone.now())
    except Refused as refusal:
        return refused(request, found.event_id, refusal)
    return decided(request, found.event_id, "Withdrawn. The event waits for a decision again.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The 404 of addresses that lead nowhere."""
    if not request.user.is_authenticated:
        return redirect("login")
    return page(request, "404.html", {}, now=timezone.now(), status=404, reason="There is no page at this address.")
