"""Drills: their list, the report of one, beginning and stopping it."""

from typing import Any

from django import forms
from django.http import HttpResponse

from fleet.dashboard.forms import CommentForm
from fleet.dashboard.pages import Asked, acts, done, known, listed, page, shown
from fleet.dashboard.sets import set_answer
from fleet.domain.drills import DURATION_SECONDS, KINDS, NOTICE_SECONDS
from fleet.operations.drills import begin as operations
from fleet.operations.drills.begin import Wanted
from fleet.projections import drills


class DrillForm(CommentForm):
    """What is rehearsed. Which machines the event names is read beside it: it depends on the set."""

    wrong = ""
    type = forms.ChoiceField(choices=[(kind, kind) for kind in KINDS])
    notice_seconds = forms.IntegerField(min_value=NOTICE_SECONDS[0], max_value=NOTICE_SECONDS[1])
    duration_seconds = forms.IntegerField(min_value=DURATION_SECONDS[0], max_value=DURATION_SECONDS[1])


@shown
def drill_list(request: Asked) -> HttpResponse:
    return listed(request, "drills/list.html", "drills/drill_rows.html", drills.listing)


def drill_answer(request: Asked, /, drill_id: int, **context: Any) -> HttpResponse:
    """The report; also the answer to a form that was refused, which explains itself on it."""
    found = known(drills.report(drill_id=drill_id, now=request.now), "No drill has this number.")
    return page(request, "drills/page.html", {"drills/drill_body.html": dict}, report=found, **context)


drill_page = shown(drill_answer)


@acts(set_answer)
def begin(request: Asked, set_id: int) -> HttpResponse:
    values = DrillForm(request.POST).values
    drill = operations.begin(
        set_id=set_id,
        actor=request.actor.because(values["comment"]),
        now=request.now,
        wanted=Wanted(
            event_type=values["type"],
            machines=request.POST.getlist("machines"),
            notice_seconds=values["notice_seconds"],
            duration_seconds=values["duration_seconds"],
        ),
    )
    said = "The drill has begun. Decide about its event as you would about a real one."
    return done(request, said, "drill", drill_id=drill.pk)


@acts(drill_answer)
def stop(request: Asked, drill_id: int) -> HttpResponse:
    actor = request.actor.because(CommentForm(request.POST).values["comment"])
    operations.stop(drill_id=drill_id, actor=actor, now=request.now)
    return done(request, "Stopped. The machines are told.", "drill", drill_id=drill_id)
