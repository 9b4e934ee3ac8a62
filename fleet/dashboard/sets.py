"""Views of availability sets: the list, the page of one set, and the forms to name it, merge it and change its
requirements. Views of drills, which rehearse an event of a set, and of waves, which take events one after the other.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

from django import forms
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from fleet.dashboard import pages, timeline
from fleet.dashboard.forms import CommentForm, Sent, commented, line, of_guards
from fleet.dashboard.pages import Asked, action_view, done, form_view, history, known, listed, page, read_view
from fleet.dashboard.reauthentication import proved
from fleet.domain import drills as rules
from fleet.domain.people import Right
from fleet.domain.reasons import Refused
from fleet.domain.sets import MAX_NEEDS, NAMED_KINDS
from fleet.operations import drills as drilling
from fleet.operations import waves as wave_operations
from fleet.operations.machines import admissions
from fleet.operations.sets import changes
from fleet.operations.sets.changes import RequirementForm, SetNameForm
from fleet.projections import drills, set_summaries, sets, waves
from fleet.projections.filters import SetFilter
from fleet.projections.pages import BadCursorError
from fleet.projections.timeline import entries
from fleet.wording import sets as wording

# Message when a second administrator must agree.
WAITS = "This lowers a requirement: it takes effect when another administrator makes the same change within a day."
KINDS = [(kind, wording.KINDS[kind]) for kind in NAMED_KINDS]
# How long a set admits returning machines, in hours, as the form offers it; 0 ends it.
ADMIT_HOURS = [(1, "1 hour"), (4, "4 hours"), (24, "1 day"), (168, "1 week")]
DRILL_FORM = {
    "kinds": rules.KINDS,
    "type": rules.DEFAULT_TYPE,
    "notice": rules.NOTICE_SECONDS,
    "duration": rules.DURATION_SECONDS,
    "notice_seconds": rules.DEFAULT_NOTICE_SECONDS,
    "duration_seconds": rules.DEFAULT_DURATION_SECONDS,
}


class MergeForm(Sent):
    wrong = "Choose the set that remains."
    into = forms.IntegerField(min_value=1)


class AdmissionRuleForm(CommentForm):
    wrong = "Choose a duration. The comment has up to 2,000 characters."
    hours = forms.TypedChoiceField(choices=[(0, ""), *ADMIT_HOURS], coerce=int)


@read_view("sets/", "sets")
def set_list(request: Asked) -> HttpResponse:
    filters = SetFilter(request.GET, now=request.now)
    read = partial(sets.lines, now=request.now, sets=filters.qs)
    return listed(request, "sets/list.html", "sets/set_rows.html", read, filters=filters)


def set_answer(request: Asked, /, set_id: int, **context: Any) -> HttpResponseBase:
    """Return the set's page. It is also the response to a refused form, with the reason."""
    found = sets.detail(set_id=set_id, now=request.now, most=sets.MOST_SHOWN)
    found = known(found, "No availability set has this number.")
    home = found.set.id
    drawn = cache(lambda: timeline.of_set(request, found.set))
    if timeline.wants_file(request):
        return timeline.as_file(request, drawn(), "set")
    if request.rights.may(Right.APPROVE):
        context["drill_form"] = DRILL_FORM
    if request.rights.may(Right.ADMINISTER):
        context |= {"admit_hours": ADMIT_HOURS, "kinds": KINDS, "max_needs": MAX_NEEDS}
        context["merge_targets"] = sets.merge_targets(set_id=home)
    parts: pages.Parts = {
        "sets/set_body.html": lambda: _agents(request, found),
        "sets/set_timeline.html": drawn,
        "timeline/history.html": lambda: history(partial(entries.for_set, set_id=home), set=home),
    }
    try:
        return page(request, "sets/page.html", parts, detail=found, query=timeline.query_of(request), **context)
    except BadCursorError:
        return redirect(request.path)


def _agents(request: Asked, found: sets.SetDetail) -> dict[str, Any]:
    """Return the template context of the table of machines. A large set has pages, with machines that need attention
    first.
    """
    if not found.set.omitted:
        return {"rows": found.set.machines}
    hit = {name for event in found.set.open_events for name in event.resources}
    rows = set_summaries.page(
        set_id=found.set.id, hit=hit, now=request.now, cursor=request.GET.get("cursor"), size=sets.MOST_SHOWN
    )
    return pages.pager(request, rows)


set_page = read_view("sets/<int:set_id>/", "set")(set_answer)


@action_view("sets/<int:set_id>/name/", "set-name", set_answer)
@proved
def name_set(request: Asked, set_id: int) -> HttpResponse:
    row = changes.change_set(SetNameForm(request.POST), set_id=set_id, actor=request.actor, now=request.now)
    return done(request, f"The set was named “{row.name}”.", "set", set_id=set_id)


@action_view("sets/<int:set_id>/merge/", "set-merge", set_answer)
def merge_set(request: Asked, set_id: int) -> HttpResponse:
    into = MergeForm(request.POST).values["into"]
    row = changes.merge_sets(set_id=set_id, into=into, actor=request.actor, now=request.now)
    return done(request, f"Merged: “{row.name}” remains.", "set", set_id=row.pk)


def requirement_view(word: str, column: str, off: str, on: str) -> Callable[..., HttpResponseBase]:
    """Return the view of a form that changes one requirement of a set, or its runbook (`column`). `word` is the end of
    its address, `off` and `on` are the messages after it.
    """

    @action_view(f"sets/<int:set_id>/{word}/", f"set-{word}", set_answer)
    @proved
    def change(request: Asked, set_id: int) -> HttpResponse:
        sent = RequirementForm(column, request.POST)
        row = changes.change_set(sent, set_id=set_id, actor=request.actor, now=request.now)
        wanted = sent.cleaned_data[column] or None
        # Lowering it takes two administrators.
        said = on.format(wanted) if wanted else off
        return done(request, said if (getattr(row, column) or None) == wanted else WAITS, "set", set_id=set_id)

    return change


ask_for_second = requirement_view(
    "second-person",
    "second_person",
    "Approvals in this set need one person.",
    "Approvals in this set always need a second person.",
)
ask_again = requirement_view(
    "step-up",
    "step_up",
    "Approvers need not confirm their identity.",
    "Approvers must confirm their identity.",
)
exempt_services = requirement_view(
    "spares",
    "exempt_service_accounts",
    "Service accounts cannot approve in this set.",
    "Service accounts can approve in this set without confirmation.",
)
set_min_live = requirement_view(
    "needs",
    "min_live",
    "No minimum of live machines is set.",
    "Minimum number of live machines: {}.",
)
set_runbook = requirement_view("runbook", "runbook", "This set has no runbook of its own.", "Runbook saved.")


@action_view("sets/<int:set_id>/admissions/", "set-admissions", set_answer)
def admit_by_rule(request: Asked, set_id: int) -> HttpResponse:
    sent = AdmissionRuleForm(request.POST).values
    until = request.now + timedelta(hours=sent["hours"]) if sent["hours"] else None
    actor = request.actor.because(sent["comment"])
    admissions.set_rule(set_id=set_id, until=until, actor=actor, now=request.now)
    who = "are admitted automatically" if until else "wait for admission"
    return done(request, f"Machines of this set that enrol again {who}.", "set", set_id=set_id)


# Drills: the list, the report of one, and the forms to begin and stop one.


class DrillForm(CommentForm):
    """Form of a drill. The machines are validated separately, because they depend on the set."""

    wrong = ""
    type = forms.ChoiceField(choices=[(kind, kind) for kind in rules.KINDS])
    notice_seconds = forms.IntegerField(min_value=rules.NOTICE_SECONDS[0], max_value=rules.NOTICE_SECONDS[1])
    duration_seconds = forms.IntegerField(min_value=rules.DURATION_SECONDS[0], max_value=rules.DURATION_SECONDS[1])


@read_view("drills/", "drills")
def drill_list(request: Asked) -> HttpResponse:
    return listed(request, "drills/list.html", "drills/drill_rows.html", drills.listing)


def drill_answer(request: Asked, /, drill_id: int, **context: Any) -> HttpResponse:
    """Return the report page of a drill. It is also the response to a refused form, with the reason."""
    found = known(drills.report(drill_id=drill_id, now=request.now), "No drill has this number.")
    return page(request, "drills/page.html", {"drills/drill_body.html": dict}, report=found, **context)


drill_page = read_view("drills/<int:drill_id>/", "drill")(drill_answer)


@action_view("sets/<int:set_id>/drill/", "set-drill", set_answer)
def begin_drill(request: Asked, set_id: int) -> HttpResponse:
    values = DrillForm(request.POST).values
    drill = drilling.begin(
        set_id=set_id,
        actor=request.actor.because(values["comment"]),
        now=request.now,
        wanted=drilling.Wanted(
            event_type=values["type"],
            machines=request.POST.getlist("machines"),
            notice_seconds=values["notice_seconds"],
            duration_seconds=values["duration_seconds"],
        ),
    )
    said = "The drill was started. Decide its event as you would decide a real one."
    return done(request, said, "drill", drill_id=drill.pk)


@action_view("drills/<int:drill_id>/stop/", "drill-stop", drill_answer)
def stop_drill(request: Asked, drill_id: int) -> HttpResponse:
    drilling.stop(drill_id=drill_id, actor=commented(request), now=request.now)
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
            context |= pages.refused(error) | {"takes_reason": _takes_reason(error)}
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
