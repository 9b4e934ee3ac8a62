"""Views of events: the list, the page of one event with its decision panel and forms, and an export for a
post-mortem.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.http import HttpResponse, JsonResponse

from fleet.dashboard.export import exported, named
from fleet.dashboard.forms import CommentForm, Sent, commented, line, of_guards
from fleet.dashboard.lanes.timeline import draw_event
from fleet.dashboard.pages import Asked, Panel, action_view, done, history, known, listed, loaded, page, read_view
from fleet.dashboard.reauthentication import proved
from fleet.domain.approvals.conditions import LATER, When, uncovered
from fleet.domain.approvals.guards import TAKE_REASONS, Need
from fleet.domain.people import Right
from fleet.domain.reasons import Reason
from fleet.domain.shapes import grouped
from fleet.domain.states import ApprovalState
from fleet.operations.approvals import approve as operations
from fleet.operations.approvals import claims, conditions
from fleet.operations.approvals.approve import Plan
from fleet.operations.inputs import MomentField
from fleet.projections import approvals, intake
from fleet.projections.archived import ARCHIVE
from fleet.projections.desk import selection
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import EventDetail, event_detail
from fleet.projections.filters import EventFilter
from fleet.projections.people import deciders
from fleet.projections.timeline import entries
from fleet.wording.approvals import DONE, asks_for, given, standing
from fleet.wording.events import effect_of
from fleet.wording.say import say
from fleet.wording.times import page_reader

UNKNOWN = "No such event is known: check its EventId."
# At most this many other open events of the set are named.
MOST_OTHERS = 20
SILENCE_HOURS = (1, 4, 12, 24)
# Set by annexes, for the top of an event's page and of its report; each loads its value for the event and the request.
HEAD_PANELS: list[Panel] = []
REPORT_PANELS: list[Panel] = []


@read_view("history/", "events")
def event_list(request: Asked) -> HttpResponse:
    found = EventFilter(request.GET, now=request.now).qs
    read = partial(event_rows.listing, now=request.now, events=found)
    context: dict[str, Any] = {"orders": ("first_seen_at", "not_before"), "pick": None}
    # For bulk selection: how many events the user may decide, and the filters that match them.
    if request.rights.may(Right.APPROVE):
        undecided = selection.undecided(found, now=request.now, rights=request.rights)
        filters = [(name, text) for name in EventFilter.base_filters for text in request.GET.getlist(name)]
        if count := selection.count_of(undecided):
            context["pick"] = {"count": count, "filters": filters, "most": selection.MOST}
    return listed(request, "events/list.html", "events/event_rows.html", read, **context)


def event_answer(request: Asked, /, event_id: str, *, only: str = "", **context: Any) -> HttpResponse:
    """Return the event's page. It is also the response to a refused form, with the reason. `only` selects one part of
    the page.
    """
    found = known(event_detail(event_id=event_id, now=request.now), UNKNOWN)

    def decision() -> dict[str, Any]:
        me = panel_of(request, found, context.get("refusal"), context.get("sent"))
        notes = entries.notes_of_event(event_id=event_id, size=3)
        users = deciders(found.place) if me["may"] and found.event.open else []
        return {"me": me, "notes": notes.results, "more_notes": notes.next, "deciders": users, "hours": SILENCE_HOURS}

    def body() -> dict[str, Any]:
        story = history(partial(entries.for_event, event_id=event_id), size=200, event=event_id)
        open_in_set = event_rows.named_events(found.other_open[:MOST_OTHERS])
        return {
            "lanes": draw_event(found, now=request.now),
            "open_in_set": open_in_set,
            "more_open": found.other_open_count - len(open_in_set),
            "archived_at": ARCHIVE.archived_at(found.event.id),
            "panels": loaded(HEAD_PANELS, found.event, request),
            **story,
        }

    def raw() -> dict[str, Any]:
        # Built only on request: it is the largest part, far down the page.
        return {"raw": intake.for_event(event_id=event_id)} if request.GET.get("part") == "documents" else {}

    def left() -> dict[str, Any]:
        # Built only on request: the archive may be slow.
        return _from_archive(event_id) if request.GET.get("part") == "archive" else {}

    return page(
        request,
        "events/page.html",
        {
            "events/event_head.html": dict,
            "approvals/decision.html": decision,
            "events/event_body.html": body,
            "events/documents.html": raw,
            "events/archive.html": left,
        },
        lies_behind="queue" if found.event.open else "events",
        only=only,
        detail=found,
        **context,
    )


event_page = read_view("events/<event:event_id>/", "event")(event_answer)


def _from_archive(event_id: str) -> dict[str, Any]:
    left = ARCHIVE.entries_of(event_id)
    return {"left": left, "left_entries": entries.rows_of(left.entries)}


@read_view("events/<event:event_id>/archive/", "event-archive")
def event_archive(request: Asked, event_id: str) -> HttpResponse:
    """Show the archived part of an event's timeline."""
    known(event_detail(event_id=event_id, now=request.now), UNKNOWN)
    return page(request, "events/archive_page.html", event_id=event_id.upper(), **_from_archive(event_id))


@read_view("events/<event:event_id>/documents/", "event-documents")
def event_documents(request: Asked, event_id: str) -> HttpResponse:
    """Show the raw documents that listed an event."""
    raw = known(intake.for_event(event_id=event_id), UNKNOWN)
    return page(request, "events/documents_page.html", raw=raw, event_id=event_id.upper())


@read_view("events/<event:event_id>/export.json", "event-export")
def event_export(request: Asked, event_id: str) -> HttpResponse:
    """Return all data about one event as a JSON download, for a post-mortem."""
    found = known(event_detail(event_id=event_id, now=request.now), UNKNOWN)
    raw = known(intake.for_event(event_id=event_id), UNKNOWN)
    left = ARCHIVE.entries_of(event_id)
    timeline = [*entries.rows_of(left.entries), *entries.for_event(event_id=event_id, size=500).results]
    values = {"event": found, "type": effect_of(found.event), "timeline": timeline, "documents": raw.documents}
    if left.fault or raw.fault:
        values["missing"] = left.fault or raw.fault
    answer = JsonResponse(exported(values), json_dumps_params={"indent": 2})
    return named(answer, f"{found.event.event_id}.json")


def panel_of(
    request: Asked, detail: EventDetail, refusal: Mapping[str, Any] | None, sent: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the state of the decision panel for this user. After a refused form, `refusal` is the reason, `sent` are
    its values.

    `title` is the state of the decision. `missing` and `second_missing` name a right that the user lacks; empty if the
    user has it. `verb` is Approve or Propose, and `start_now` the beginning of the label of the button that starts the
    event at once; the template adds the event's name.

    Each of its `guards` has its `sentence`, what it `needs`, and `asks` with the same in words. `shown` are the digests
    of what it shows; the form sends them back. `takes_reason`: the form has a field for the reason of an override, with
    the submitted text `reason`. `waits` are the kinds of approvals that need no reason, because they wait instead.
    """
    refusal, sent, rights, words = refusal or {}, sent or {}, request.rights, page_reader(request.now)
    approval, standing_guards = detail.event.approval, detail.guards
    proposed = approval is not None and approval.state is ApprovalState.PROPOSED
    if approval is not None and proposed and approval.decision is not None:
        asked = {guard.code for guard in uncovered(approval.decision, detail.guards)}
        standing_guards = tuple(g for g in detail.guards if g.code in asked or g.needs is Need.NOTE)
    may_override = rights.may(Right.OVERRIDE, detail.place)
    found = {guard.code: (say(guard.sentence, words), guard.needs, guard.overridable) for guard in standing_guards}
    digests = grouped((guard.code, guard.shown) for guard in standing_guards)
    # The refusal may name a guard that applies only to the requested time.
    for one in refusal.get("guards", ()):
        known = digests.setdefault(one["code"], [])
        new = [digest for digest in refusal.get("shown", {}).get(one["code"], "").split() if digest not in known]
        if new or one["code"] not in found:
            found[one["code"]] = (one["sentence"], Need(one["needs"]), one["overridable"])
            known += new
    open_guards = [(code, *rest) for code, rest in found.items() if not (proposed and code == "already-decided")]
    stuck = {code for code, _, needs, past in open_guards if needs is Need.BLOCKS and not (past and may_override)}
    own = approval is not None and approval.by == request.actor.name
    lacks = Reason("consent-of-proposer") if own else rights.missing(Right.OVERRIDE, detail.place, doing="consent")
    is_proposal = any(needs is Need.SECOND for _, _, needs, _ in open_guards)
    return {
        "title": standing(detail.event),
        "may": rights.may(Right.APPROVE, detail.place),
        "may_override": may_override,
        "missing": say(rights.missing(Right.APPROVE, detail.place, doing="approve") or "", words),
        "second_missing": say(lacks or "", words),
        "guards": [
            {
                "code": code,
                "sentence": sentence,
                "needs": needs,
                "asks": asks_for(needs, overridable=past, may_override=may_override),
                "shown": " ".join(digests[code]),
                "takes_reason": code in TAKE_REASONS and code not in stuck,
                "reason": sent.get(f"reason-{code}", ""),
                "waits": [when.value for when, codes in LATER.items() if code in codes],
            }
            for code, sentence, needs, past in open_guards
        ],
        "blocked": bool(stuck),
        "verb": "Propose" if is_proposal else "Approve",
        "start_now": "Propose to start now" if is_proposal else "Start now",
    }


# Forms of the decision panel: approve, agree, withdraw, claim, hold. Each parses, calls one operation, and responds.

# Kind of an approval from the page, by the submitted value: an immediate one can be undone for some seconds.
WAYS = {When.NOW.value: When.UNDO, When.PREPARED.value: When.PREPARED, When.TIME.value: When.TIME}


class ApprovalForm(CommentForm):
    """Form of an approval. `expected_version` is the event's version that the user saw. `at` is in the user's time
    zone.
    """

    when = forms.ChoiceField(
        choices=[(way.value, way.value) for way in (When.NOW, When.PREPARED, When.TIME)], required=False
    )
    at = MomentField(required=False)
    expected_version = forms.IntegerField(required=False)

    def said(self) -> str:
        return "Enter a date and a time of day." if "at" in self.errors else self.wrong


class ConsentForm(CommentForm):
    expected_version = forms.IntegerField(required=False)


class ClaimForm(ConsentForm):
    take_over = forms.BooleanField(required=False)
    assign_to = line(150)


class SilenceForm(CommentForm):
    wrong = "Choose how long the silence lasts. The comment has up to 2,000 characters."
    hours = forms.TypedChoiceField(choices=[(hours, "") for hours in (0, *SILENCE_HOURS)], coerce=int)
    whole_set = forms.BooleanField(required=False)


class HoldForm(Sent):
    wrong = "Enter a reason of up to 2,000 characters for leaving the event to Azure."
    reason = line(required=True)
    expected_version = forms.IntegerField(required=False)


def panel(request: Asked, event_id: str, **context: Any) -> HttpResponse:
    """Return the decision panel: only the panel for an htmx request, else the whole page of the event."""
    return event_answer(request, event_id, only="decision" if request.htmx else "", **context)


def approval_panel(request: Asked, approval_id: int, **context: Any) -> HttpResponse:
    """Return the decision panel of the event that the approval (row id) belongs to."""
    return panel(request, event_of(request, approval_id), **context)


def event_of(request: Asked, approval_id: int) -> str:
    return known(approvals.event_of(approval_id), "No approval has this number.")


def decided(request: Asked, event_id: str, said: str) -> HttpResponse:
    """Return the current decision panel with the message `said` after an action: only the panel for htmx, else the
    whole page.
    """
    if request.htmx:
        return panel(request, event_id, said=said)
    return done(request, said, "event", event_id=event_id)


@action_view("events/<event:event_id>/approve/", "event-approve", panel)
@proved
def approve(request: Asked, event_id: str) -> HttpResponse:
    values = ApprovalForm(request.POST).values
    plan = Plan(
        when=WAYS[values["when"] or When.NOW],
        due_at=values["at"],
        overrides=of_guards("reason", request),
        shown=of_guards("shown", request),
        expected_version=values["expected_version"],
    )
    actor = request.actor.because(values["comment"])
    approval = operations.grant(event_id=event_id, actor=actor, now=request.now, plan=plan)
    return decided(request, event_id, given(approval.state, approval.when))


@action_view("approvals/<int:approval_id>/withdraw/", "approval-withdraw", approval_panel)
def withdraw(request: Asked, approval_id: int) -> HttpResponse:
    event_id = event_of(request, approval_id)
    approval = conditions.withdraw(approval_id=approval_id, actor=commented(request), now=request.now)
    return decided(request, event_id, DONE["undo" if approval.when == When.UNDO.value else "withdraw"])


@action_view("approvals/<int:approval_id>/consent/", "approval-consent", approval_panel)
@proved
def consent(request: Asked, approval_id: int) -> HttpResponse:
    event_id = event_of(request, approval_id)
    values = ConsentForm(request.POST).values
    approval = conditions.consent(
        approval_id=approval_id,
        actor=request.actor.because(values["comment"]),
        overrides=of_guards("reason", request),
        shown=of_guards("shown", request),
        expected_version=values["expected_version"],
        now=request.now,
        undo=True,
    )
    return decided(request, event_id, given(approval.state, approval.when, agreed=True))


@action_view("events/<event:event_id>/claim/", "event-claim", panel)
def claim(request: Asked, event_id: str) -> HttpResponse:
    values = ClaimForm(request.POST).values
    actor = request.actor.because(values.pop("comment"))
    row = claims.claim(event_id=event_id, actor=actor, now=request.now, **values)
    return decided(request, event_id, DONE["claim" if row.by_id == request.user.pk else "assign"])


@action_view("events/<event:event_id>/note/", "event-note", panel)
def note(request: Asked, event_id: str) -> HttpResponse:
    # The operation checks the length.
    claims.note(event_id=event_id, actor=request.actor.because(request.POST.get("note", "")), now=request.now)
    return decided(request, event_id, DONE["note"])


@action_view("events/<event:event_id>/silence/", "event-silence", panel)
def silence(request: Asked, event_id: str) -> HttpResponse:
    """Silence an event or its set for some hours; 0 ends the silence of both."""
    values = SilenceForm(request.POST).values
    hours, actor = values["hours"], request.actor.because(values["comment"])
    until = request.now + timedelta(hours=hours) if hours else None
    for whole_set in [values["whole_set"]] if hours else (False, True):
        claims.silence(event_id=event_id, whole_set=whole_set, until=until, actor=actor, now=request.now)
    return decided(request, event_id, DONE["silence" if hours else "silence-end"])


@action_view("events/<event:event_id>/give-back/", "event-give-back", panel)
def give_back(request: Asked, event_id: str) -> HttpResponse:
    claims.give_back(event_id=event_id, actor=request.actor, now=request.now)
    return decided(request, event_id, DONE["give-back"])


@action_view("events/<event:event_id>/hold/", "event-hold", panel)
def hold(request: Asked, event_id: str) -> HttpResponse:
    values = HoldForm(request.POST).values
    actor = request.actor.because(values["reason"])
    claims.hold(event_id=event_id, actor=actor, now=request.now, expected_version=values["expected_version"])
    return decided(request, event_id, DONE["hold"])


@action_view("events/<event:event_id>/lift/", "event-lift", panel)
def lift(request: Asked, event_id: str) -> HttpResponse:
    claims.lift(event_id=event_id, actor=request.actor, now=request.now)
    return decided(request, event_id, DONE["lift"])
