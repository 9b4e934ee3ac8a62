"""Views of drills and waves: lists, reports, and the forms that begin and stop them."""

from functools import partial
from typing import Any

from django import forms
from django.http import HttpResponse

from fleet.dashboard.forms import CommentForm, commented, line, of_guards
from fleet.dashboard.pages import Asked, action_view, done, form_view, known, listed, page, read_view, refused
from fleet.dashboard.sets import set_answer
from fleet.domain.drills import DURATION_SECONDS, KINDS, NOTICE_SECONDS
from fleet.domain.reasons import Refused
from fleet.operations import waves as wave_operations
from fleet.operations.drills import begin as operations
from fleet.operations.drills.begin import Wanted
from fleet.projections import drills, waves


class DrillForm(CommentForm):
    """Form of a drill. The machines are validated separately, because they depend on the set."""

    wrong = ""
    type = forms.ChoiceField(choices=[(kind, kind) for kind in KINDS])
    notice_seconds = forms.IntegerField(min_value=NOTICE_SECONDS[0], max_value=NOTICE_SECONDS[1])
    duration_seconds = forms.IntegerField(min_value=DURATION_SECONDS[0], max_value=DURATION_SECONDS[1])


@read_view("drills/", "drills")
def drill_list(request: Asked) -> HttpResponse:
    return listed(request, "drills/list.html", "drills/drill_rows.html", drills.listing)


def drill_answer(request: Asked, /, drill_id: int, **context: Any) -> HttpResponse:
    """Return the report page of a drill. It is also the response to a refused form, with the reason."""
    found = known(drills.report(drill_id=drill_id, now=request.now), "No drill has this number.")
    return page(request, "drills/page.html", {"drills/drill_body.html": dict}, report=found, **context)


drill_page = read_view("drills/<int:drill_id>/", "drill")(drill_answer)


@action_view("sets/<int:set_id>/drill/", "set-drill", set_answer)
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
    said = "The drill was started. Decide its event as you would decide a real one."
    return done(request, said, "drill", drill_id=drill.pk)


@action_view("drills/<int:drill_id>/stop/", "drill-stop", drill_answer)
def stop(request: Asked, drill_id: int) -> HttpResponse:
    operations.stop(drill_id=drill_id, actor=commented(request), now=request.now)
    return done(request, "Drill stopped. Drydock notifies the machines.", "drill", drill_id=drill_id)


# Waves: the list, the page of one, and the forms to begin and stop one.


class BeginWaveForm(CommentForm):
    """Form of a new wave: the service or set of the events, the comment and the reason. The selected events are read
    separately from the checkboxes.
    """

    wrong = "The comment and the reason may have up to 2,000 characters."
    service = line(200)
    set = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    reason = line()


@read_view("waves/", "waves")
def wave_list(request: Asked) -> HttpResponse:
    read = partial(waves.listing, now=request.now, size=25)
    return listed(request, "waves/list.html", "waves/wave_rows.html", read)


def wave_answer(request: Asked, /, wave_id: int, **context: Any) -> HttpResponse:
    """Return the page of a wave. It is also the response to a refused request to stop it."""
    found = known(waves.detail(wave_id=wave_id, now=request.now), "No wave has this number.")
    return page(request, "waves/page.html", {"waves/wave_body.html": dict}, wave=found, **context)


wave_page = read_view("waves/<int:wave_id>/", "wave")(wave_answer)


@form_view("waves/begin/", "wave-begin")
def begin_wave(request: Asked) -> HttpResponse:
    """Show the events of a service (`?service=`) or a set (`?set=`) for selection (GET), or begin the wave (POST)."""
    sent = request.POST if request.method == "POST" else request.GET
    form = BeginWaveForm(sent)
    context: dict[str, Any] = {"sent": sent}
    # The versions of the events on the submitted page, each as `ID:version`.
    pairs = [one.partition(":")[::2] for one in request.POST.getlist("version")]
    if request.method == "POST":
        try:
            reason = form.values["reason"]
            wave = wave_operations.begin(
                actor=request.actor.because(form.values["comment"]),
                events=request.POST.getlist("events"),
                shown=of_guards("shown", request),
                versions={event_id: int(version) for event_id, version in pairs if version.isdecimal()},
                overrides=dict.fromkeys(request.POST.getlist("override"), reason) if reason else {},
                now=request.now,
            )
        except Refused as error:
            context |= refused(error) | {"takes_reason": _takes_reason(error)}
        else:
            return done(request, "The wave was started.", "wave", wave_id=wave.pk)
    place = form.cleaned_data if form.is_valid() else {}
    service, set_id = str(place.get("service", "")), place.get("set")
    candidates = waves.candidates(now=request.now, service=service, set_id=set_id)
    chosen = {candidate.event_id for candidate in candidates if not candidate.far_ahead}
    if request.method == "POST":
        chosen = set(request.POST.getlist("events"))
    context |= {"candidates": candidates, "chosen": chosen, "service": service, "set_id": set_id}
    return page(request, "waves/begin.html", **context)


def _takes_reason(refusal: Refused) -> list[dict[str, Any]]:
    """Return each guard of the refused events that a reason can override. One reason applies to all of these events."""
    guards: dict[str, dict[str, Any]] = {}
    for event in refusal.details.get("events", []):
        for guard in event.get("guards", []):
            if guard["needs"] == "reason" or guard["overridable"]:
                before = guards.get(guard["code"], {"shown": ""})["shown"]
                shown = event.get("shown", {}).get(guard["code"], "")
                guards[guard["code"]] = {**guard, "shown": f"{before} {shown}".strip()}
    return list(guards.values())


@action_view("waves/<int:wave_id>/stop/", "wave-stop", wave_answer)
def stop_wave(request: Asked, wave_id: int) -> HttpResponse:
    wave_operations.stop(wave_id=wave_id, actor=commented(request), now=request.now)
    message = "Wave stopped. Waiting approvals are withdrawn; approvals already sent continue."
    return done(request, message, "wave", wave_id=wave_id)
