"""Views of availability sets: the list, the page of one set, and the forms to name it, merge it and change its
requirements.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

from django import forms
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from fleet.dashboard import timeline
from fleet.dashboard.forms import CommentForm, Sent
from fleet.dashboard.pages import HISTORY_SIZE, Asked, action_view, done, history, known, listed, page, pager, read_view
from fleet.dashboard.reauthentication import proved
from fleet.domain import drills
from fleet.domain.people import Right
from fleet.domain.sets import MAX_NEEDS, NAMED_KINDS
from fleet.operations.machines import admissions
from fleet.operations.sets import changes
from fleet.operations.sets.changes import RequirementForm, SetNameForm
from fleet.projections import set_summaries, sets
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
    "kinds": drills.KINDS,
    "type": drills.DEFAULT_TYPE,
    "notice": drills.NOTICE_SECONDS,
    "duration": drills.DURATION_SECONDS,
    "notice_seconds": drills.DEFAULT_NOTICE_SECONDS,
    "duration_seconds": drills.DEFAULT_DURATION_SECONDS,
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
    parts = {
        "sets/set_body.html": lambda: _agents(request, found),
        "sets/set_timeline.html": lambda: drawn().context,
        "timeline/history.html": lambda: history(
            entries.for_set(set_id=home, cursor=None, size=HISTORY_SIZE), set=home
        ),
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
    return pager(request, rows)


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
