"""First steps: a checklist that creates a join token, shows the first agent, and ends with a drill."""

from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters

from fleet.dashboard.forms import Sent, line
from fleet.dashboard.machines import created_token
from fleet.dashboard.pages import Asked, action_view, done, page, read_view
from fleet.dashboard.sets import KINDS
from fleet.domain.machines.enrolment import CHOICES
from fleet.domain.people import Right
from fleet.operations import profile
from fleet.operations.machines import entrance
from fleet.operations.sets import changes
from fleet.operations.sets.changes import SetNameForm
from fleet.projections.desk import readiness

# For the first machines; the page of join tokens offers other times.
FIRST_TOKEN_SECONDS = 86_400
FIRST_USES = 20
POLICIES = {
    "join": "A join token admits machines",
    "auto": "Azure attested documents admit machines of your subscriptions; an administrator admits the others",
    "attested": "Azure attested documents admit machines of your subscriptions; all others are refused",
    "admit": "An administrator admits each machine",
}
# The first drill is short: the user is waiting for it.
FIRST_DRILL = {"type": "Freeze", "notice_seconds": 120, "duration_seconds": 10}


def parts(request: Asked) -> dict[str, Any]:
    """Return the context of the checklist, for every page that shows it."""
    return {
        "steps": readiness.first_steps(now=request.now),
        "kinds": KINDS,
        "first_drill": FIRST_DRILL,
        "first_uses": FIRST_USES,
        "policies": POLICIES,
    }


def wanted(request: Asked) -> bool:
    """Return whether the front page begins with the checklist: for administrators of an installation without events."""
    return request.rights.may(Right.ADMINISTER) and request.own.first_steps and readiness.is_new()


def steps_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the checklist, also in response to its forms, refused or with a new join token."""
    context.pop("set_id", None)
    if not request.rights.may(Right.ADMINISTER):
        reason = "You need the role admin to see the first steps."
        return render(request, "403.html", {"reason": reason}, status=403)
    return page(request, "desk/first_steps_page.html", {"desk/first_steps.html": lambda: parts(request)}, **context)


steps_page = read_view(steps_answer)


class EntranceForm(Sent):
    wrong = "Choose how machines enrol."
    policy = forms.ChoiceField(choices=[(one.value, "") for one in CHOICES])
    subscriptions = line(4000)


@action_view(steps_answer)
def choose_entrance(request: Asked) -> HttpResponse:
    sent = EntranceForm(request.POST).values
    named = sent["subscriptions"].replace(",", " ").split()
    entrance.choose(policy=sent["policy"], subscriptions=named, actor=request.actor, now=request.now)
    return done(request, "Enrolment policy saved.", "first-steps")


@sensitive_post_parameters()
@action_view(steps_answer)
def make_token(request: Asked) -> HttpResponse:
    stated = {"comment": "the first machines", "expires_in_seconds": FIRST_TOKEN_SECONDS, "max_uses": FIRST_USES}
    sent = {name: text for name, text in request.POST.items() if text}
    return steps_answer(request, **created_token(request, entrance.JoinTokenForm(stated | sent)))


@action_view(steps_answer)
def name_set(request: Asked, set_id: int) -> HttpResponse:
    row = changes.change_set(SetNameForm(request.POST), set_id=set_id, actor=request.actor, now=request.now)
    return done(request, f"The set was named “{row.name}”.", "first-steps")


@action_view(steps_answer)
def dismiss(request: Asked) -> HttpResponse:
    profile.choose(profile.ChoicesSerializer(data={"first_steps": False}), actor=request.actor, now=request.now)
    return done(request, "First steps hidden. You find them under Admin.", "queue")
