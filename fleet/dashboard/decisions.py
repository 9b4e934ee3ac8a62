"""Forms of the decision panel: approve, agree, withdraw, claim, hold. Each parses, calls one operation, and
responds.
"""

from typing import Any

from django import forms
from django.http import HttpResponse

from fleet.dashboard.events import event_answer
from fleet.dashboard.forms import CommentForm, Sent, commented, line, of_guards
from fleet.dashboard.pages import Asked, action_view, done, known
from fleet.dashboard.reauthentication import proved
from fleet.domain.approvals.conditions import When
from fleet.operations.approvals import approve as operations
from fleet.operations.approvals import claims
from fleet.operations.approvals import conditions as second
from fleet.operations.approvals import conditions as taking_back
from fleet.operations.approvals.approve import Plan
from fleet.operations.inputs import MomentField
from fleet.projections import approvals
from fleet.wording.approvals import DONE, given

# Kind of an approval from the page, by the submitted value: an immediate one can be undone for some seconds.
WAYS = {When.NOW.value: When.UNDO, When.PREPARED.value: When.PREPARED, When.TIME.value: When.TIME}


class ApprovalForm(CommentForm):
    """Form of an approval. `expected_version` is the event's version on the submitted page. `at` is in the user's time
    zone.
    """

    when = forms.ChoiceField(
        choices=[(way.value, way.value) for way in (When.NOW, When.PREPARED, When.TIME)], required=False
    )
    at = MomentField(required=False)
    expected_version = forms.IntegerField(required=False)

    def said(self) -> str:
        if "at" in self.errors:
            return "Enter a date and a time of day."
        return self.wrong


class ConsentForm(CommentForm):
    expected_version = forms.IntegerField(required=False)


class ClaimForm(ConsentForm):
    take_over = forms.BooleanField(required=False)


class HoldForm(Sent):
    wrong = "Enter a reason of up to 2,000 characters for leaving the event to Azure."
    reason = line(required=True)
    expected_version = forms.IntegerField(required=False)


def panel(request: Asked, event_id: str, **context: Any) -> HttpResponse:
    """Return the decision panel: alone for a form sent by htmx, else on the event's page."""
    return event_answer(request, event_id, only="decision" if request.htmx else "", **context)


def panel_of(request: Asked, approval_id: int, **context: Any) -> HttpResponse:
    """Return the decision panel of an approval's event."""
    return panel(request, event_of(request, approval_id), **context)


def event_of(request: Asked, approval_id: int) -> str:
    return known(approvals.event_of(approval_id), "No approval has this number.")


def decided(request: Asked, event_id: str, said: str) -> HttpResponse:
    """Return the current decision panel, alone or on the event's page."""
    if request.htmx:
        return panel(request, event_id, said=said)
    return done(request, said, "event", event_id=event_id)


@action_view(panel)
@proved
def approve(request: Asked, event_id: str) -> HttpResponse:
    values = ApprovalForm(request.POST).values
    approval = operations.grant(
        event_id=event_id,
        actor=request.actor.because(values["comment"]),
        now=request.now,
        plan=Plan(
            when=WAYS[values["when"] or When.NOW],
            due_at=values["at"],
            overrides=of_guards("reason", request),
            shown=of_guards("shown", request),
            expected_version=values["expected_version"],
        ),
    )
    return decided(request, event_id, given(approval.state, approval.when))


@action_view(panel_of)
def withdraw(request: Asked, approval_id: int) -> HttpResponse:
    event_id = event_of(request, approval_id)
    approval = taking_back.withdraw(approval_id=approval_id, actor=commented(request), now=request.now)
    return decided(request, event_id, DONE["undo" if approval.when == When.UNDO.value else "withdraw"])


@action_view(panel_of)
@proved
def consent(request: Asked, approval_id: int) -> HttpResponse:
    event_id = event_of(request, approval_id)
    values = ConsentForm(request.POST).values
    approval = second.consent(
        approval_id=approval_id,
        actor=request.actor.because(values["comment"]),
        overrides=of_guards("reason", request),
        shown=of_guards("shown", request),
        expected_version=values["expected_version"],
        now=request.now,
        undo=True,
    )
    return decided(request, event_id, given(approval.state, approval.when, agreed=True))


@action_view(panel)
def claim(request: Asked, event_id: str) -> HttpResponse:
    values = ClaimForm(request.POST).values
    actor = request.actor.because(values["comment"])
    claims.claim(
        event_id=event_id,
        actor=actor,
        now=request.now,
        take_over=values["take_over"],
        expected_version=values["expected_version"],
    )
    return decided(request, event_id, DONE["claim"])


@action_view(panel)
def give_back(request: Asked, event_id: str) -> HttpResponse:
    claims.give_back(event_id=event_id, actor=request.actor, now=request.now)
    return decided(request, event_id, DONE["give-back"])


@action_view(panel)
def hold(request: Asked, event_id: str) -> HttpResponse:
    values = HoldForm(request.POST).values
    actor = request.actor.because(values["reason"])
    claims.hold(event_id=event_id, actor=actor, now=request.now, expected_version=values["expected_version"])
    return decided(request, event_id, DONE["hold"])


@action_view(panel)
def lift(request: Asked, event_id: str) -> HttpResponse:
    claims.lift(event_id=event_id, actor=request.actor, now=request.now)
    return decided(request, event_id, DONE["lift"])
