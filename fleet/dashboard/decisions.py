"""Pages that decide. Each parses, calls one operation, answers."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from fleet.dashboard.forms import ApprovalForm, ClaimForm, HoldForm, WithdrawalForm
from fleet.dashboard.pages import is_htmx, missing, page, part, person, reader
from fleet.dashboard.views import event_answer
from fleet.domain.conditions import When
from fleet.domain.guards import TAKE_REASONS
from fleet.domain.states import ApprovalState
from fleet.operations import claiming, deciding, reconsidering
from fleet.operations.errors import Refused
from fleet.projections import approvals, events

STATUS = {"unknown-event": 404, "unknown-approval": 404, "not-permitted": 403, "validation": 422}


def refused(request: HttpRequest, event_id: str, refusal: Refused) -> HttpResponse:
    """The decision panel with the reason and what was sent, alone or on the event's page."""
    status = STATUS.get(refusal.code, 409)
    context: dict[str, Any] = {
        "refusal": {"code": refusal.code, "sentence": refusal.sentence, **refusal.details},
        "sent": request.POST,
        "comment": request.POST.get("comment", ""),
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


def reasons_in(request: HttpRequest) -> dict[str, str]:
    """The reasons that were typed, by guard code."""
    return {code: request.POST.get(f"reason-{code}", "") for code in TAKE_REASONS if f"reason-{code}" in request.POST}


SAID = {
    ApprovalState.PROPOSED: "Proposed. A second person, an approver, has to agree.",
    ApprovalState.WAITING: "Approved. It goes to Azure once its condition is met.",
}


@require_POST
@reader
def approve(request: HttpRequest, event_id: str) -> HttpResponse:
    form = ApprovalForm(request.POST)
    try:
        if not form.is_valid():
            sentence = "The comment may have up to 2,000 characters, and the version is a number."
            raise Refused("validation", "Say a time as a date and a time of day." if "at" in form.errors else sentence)
        approval = deciding.grant(
            event_id=event_id,
            by=person(request),
            via="page",
            comment=form.cleaned_data["comment"],
            when=When(form.cleaned_data["when"] or When.NOW),
            due_at=form.cleaned_data["at"],
            overrides=reasons_in(request),
            now=timezone.now(),
            expected_version=form.cleaned_data["expected_version"],
        )
    except Refused as refusal:
        return refused(request, event_id, refusal)
    said = SAID.get(ApprovalState(approval.state), "Approved. It is on its way to Azure.")
    return decided(request, event_id, said)


@require_POST
@reader
def withdraw(request: HttpRequest, approval_id: int) -> HttpResponse:
    found = approvals.detail(approval_id=approval_id, now=timezone.now())
    if found is None:
        return missing(request, "There is no such approval.")
    form = WithdrawalForm(request.POST)
    comment = form.cleaned_data["comment"] if form.is_valid() else ""
    try:
        reconsidering.withdraw(
            approval_id=approval_id, by=person(request), via="page", comment=comment, now=timezone.now()
        )
    except Refused as refusal:
        return refused(request, found.event_id, refusal)
    return decided(request, found.event_id, "Withdrawn. The event waits for a decision again.")


@require_POST
@reader
def consent(request: HttpRequest, approval_id: int) -> HttpResponse:
    found = approvals.detail(approval_id=approval_id, now=timezone.now())
    if found is None:
        return missing(request, "There is no such approval.")
    form = WithdrawalForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "The comment may have up to 2,000 characters.")
        approval = reconsidering.consent(
            approval_id=approval_id,
            by=person(request),
            via="page",
            comment=form.cleaned_data["comment"],
            overrides=reasons_in(request),
            now=timezone.now(),
        )
    except Refused as refusal:
        return refused(request, found.event_id, refusal)
    said = SAID.get(ApprovalState(approval.state), "Agreed. It is on its way to Azure.")
    return decided(request, found.event_id, said.replace("Approved", "Agreed"))


@require_POST
@reader
def claim(request: HttpRequest, event_id: str) -> HttpResponse:
    form = ClaimForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "What you write may have up to 2,000 characters.")
        claiming.claim(event_id=event_id, by=person(request), via="page", now=timezone.now(), **form.cleaned_data)
    except Refused as refusal:
        return refused(request, event_id, refusal)
    return decided(request, event_id, "Claimed: the others see that you are on it.")


@require_POST
@reader
def give_back(request: HttpRequest, event_id: str) -> HttpResponse:
    try:
        claiming.give_back(event_id=event_id, by=person(request), via="page", now=timezone.now())
    except Refused as refusal:
        return refused(request, event_id, refusal)
    return decided(request, event_id, "Given back: nobody is on it now.")


@require_POST
@reader
def hold(request: HttpRequest, event_id: str) -> HttpResponse:
    form = HoldForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "Say why it is held, in up to 2,000 characters: others will ask.")
        reason = form.cleaned_data["reason"]
        claiming.hold(event_id=event_id, by=person(request), via="page", now=timezone.now(), reason=reason)
    except Refused as refusal:
        return refused(request, event_id, refusal)
    return decided(request, event_id, "Held: no rule approves it. Azure may still start it from NotBefore on.")


@require_POST
@reader
def lift(request: HttpRequest, event_id: str) -> HttpResponse:
    try:
        claiming.lift(event_id=event_id, by=person(request), via="page", now=timezone.now())
    except Refused as refusal:
        return refused(request, event_id, refusal)
    return decided(request, event_id, "The hold is lifted: it may be decided again, by people and by rules.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The 404 of addresses that lead nowhere."""
    if not request.user.is_authenticated:
        return redirect("login")
    return page(request, "404.html", {}, now=timezone.now(), status=404, reason="There is no page at this address.")
