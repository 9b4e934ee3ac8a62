"""Bulk decisions about selected events. The user reviews the selection first; then each event is decided separately and
has its own result.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.db import OperationalError
from django.http import HttpResponse, QueryDict
from django.utils import timezone

from fleet.dashboard.forms import CommentForm, line, of_guards
from fleet.dashboard.pages import Asked, action_view, form_view, page, read_view, refused
from fleet.domain.approvals.conditions import When
from fleet.domain.db_timeouts import sqlstate
from fleet.domain.reasons import Reason, Refused
from fleet.domain.states import ApprovalState
from fleet.operations import clock, waves
from fleet.operations.approvals import approve, claims
from fleet.operations.approvals import conditions as taking_back
from fleet.operations.approvals.approve import LockedFacts, Plan
from fleet.projections.desk import selection
from fleet.projections.desk.selection import Choice
from fleet.projections.filters import EventFilter
from fleet.wording import approvals as words
from fleet.wording import events as event_words
from fleet.wording.card import together as together_words
from fleet.wording.problems import database_waits
from fleet.wording.times import page_reader

WAYS = ("approve", "claim", "leave", "wave")


class BulkForm(CommentForm):
    """Form of a bulk action. If `all` events of a list were selected, `of` names the list, and `count` and `digest`
    identify the events that the page showed.
    """

    do = forms.ChoiceField(choices=[(way, way) for way in WAYS])
    of = forms.ChoiceField(choices=[("queue", "queue"), ("events", "events")], required=False)
    all = forms.BooleanField(required=False)
    count = forms.IntegerField(required=False, min_value=0, max_value=2**31)
    digest = line(16)
    reason = line()


@dataclass(frozen=True, slots=True)
class Result:
    """Result for one event. `wave` is the wave to which the event was added, `approval` the approval that was given or
    withdrawn, `event` the event's row id if known.
    """

    event_id: str
    named: str
    done: bool
    said: str
    event: int | None = None
    approval: int | None = None
    wave: int | None = None


def _result(choice: Choice, said: str, *, done: bool = True, **made: int) -> Result:
    event = choice.card.event
    return Result(event.event_id, words.event_named(event), done, said, event.id, **made)


@form_view("bulk/", "bulk")
def bulk(request: Asked) -> HttpResponse:
    """Show the review page of the selected events with the fields of the action (GET), or perform the action (POST)."""
    sent = request.POST if request.method == "POST" else request.GET
    try:
        values = BulkForm(sent).values
        if request.method == "POST":
            return _done(request, values)
        return look(request, values, _chosen(request, sent, values))
    except Refused as error:
        context = refused(error)
        return page(request, "bulk/refused.html", query=_query(sent, error), **context)


def _query(sent: QueryDict, error: Refused) -> str:
    """Return the URL query of the same selection with the current number of events, after the number has changed."""
    query = sent.copy()
    for name in ("csrfmiddlewaretoken", "digest", "event", "comment", "reason"):
        query.pop(name, None)
    query["count"] = str(error.details.get("count", ""))
    return query.urlencode()


def _matching(request: Asked, sent: QueryDict, values: Mapping[str, Any]) -> list[str]:
    """Return the EventIds that match the list's filter now. Raises Refused with both numbers if the events differ from
    those on the page.
    """
    if values["of"] == "queue":
        rows = selection.in_queue(now=request.now, rights=request.rights)
    else:
        rows = selection.undecided(EventFilter(sent, now=request.now).qs, now=request.now, rights=request.rights)
    found = selection.ids_of(rows)
    expected = values["count"]
    if len(found) > selection.MOST:
        raise Refused("validation", Reason("bulk-of-many", most=selection.MOST))
    changed = values["digest"] and values["digest"] != selection.digest_of(found)
    if changed or (expected is not None and expected != len(found)):
        raise Refused("count-changed", Reason("bulk-changed", seen=expected, count=len(found)), count=len(found))
    return found


def _chosen(request: Asked, sent: QueryDict, values: Mapping[str, Any]) -> list[str]:
    if values["all"]:
        return _matching(request, sent, values)
    found = list(dict.fromkeys(sent.getlist("event")))
    if len(found) > selection.MOST:
        raise Refused("validation", Reason("bulk-of-many", most=selection.MOST))
    return found


def look(request: Asked, values: Mapping[str, Any], event_ids: Sequence[str], **context: Any) -> HttpResponse:
    """Return the review page, which shows each selected event with its impact and the time left. Nothing is changed."""
    found = selection.choices(event_ids, now=request.now)
    if values["do"] == "wave":
        found = tuple(choice for group in selection.by_fault_domain(found).values() for choice in group)
    sent = request.POST if request.method == "POST" else request.GET
    filters = [(name, text) for name in EventFilter.base_filters for text in sent.getlist(name)]
    digest = selection.digest_of(event_ids) if values["all"] else ""
    return page(
        request,
        "bulk/page.html",
        choices=found,
        way=words.BULK[values["do"]],
        do=values["do"],
        asks=_asks(found) if values["do"] in ("approve", "wave") else [],
        together=[
            together_words(one, values["do"], page_reader(request.now))
            for one in (selection.together(found, now=request.now) if values["do"] != "claim" else ())
        ],
        gone=len(event_ids) - len(found),
        all=values["all"],
        of=values["of"],
        filters=filters if values["all"] else [],
        count=len(event_ids),
        digest=digest,
        sent=sent,
        **context,
    )


def _asks(found: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return each guard that accepts a reason, with the number of events to which it applies and the digests of what it
    names.
    """
    counts = Counter(code for choice in found for code in choice.asks)
    digests: dict[str, dict[str, None]] = defaultdict(dict)
    for code, digest in (shown for choice in found for shown in choice.shown):
        digests[code][digest] = None
    return [
        {"code": code, "count": count, "said": words.ASKS[code], "shown": " ".join(digests[code])}
        for code, count in counts.items()
    ]


def _done(request: Asked, values: Mapping[str, Any]) -> HttpResponse:
    pairs = dict(one.upper().rpartition(":")[::2] for one in request.POST.getlist("event"))
    versions = {event_id: int(text) for event_id, text in pairs.items() if event_id and text.isdecimal()}
    if not versions:
        raise Refused("validation", Reason("bulk-of-none"))
    if values["all"] and values["of"]:
        _matching(request, request.POST, values)
    choices = selection.choices(list(versions), now=request.now)
    there = {choice.event_id for choice in choices}
    missing = [Result(event_id, event_id, False, words.BULK_GONE) for event_id in versions if event_id not in there]
    act = {"approve": _approve, "claim": _claim, "leave": _claim, "wave": _wave}[values["do"]]
    return outcome(request, [*act(request, values, choices, versions), *missing], do=values["do"])


def outcome(request: Asked, results: Sequence[Result], *, do: str) -> HttpResponse:
    """Return the result page with one line for each event, which is updated as the event's state changes. One *Undo*
    button withdraws all approvals that were not sent yet.
    """
    done = sum(result.done for result in results)
    events = [result.event for result in results if result.event is not None]
    approvals = [result.approval for result in results if result.approval is not None]
    found = _followed(events, approvals, now=clock.now())
    by_event = {one.event.id: one for one in found["lines"]}
    lines = [(result, by_event.get(result.event or 0)) for result in results]
    context: dict[str, Any] = {"results": lines, "done": done, "failed": len(results) - done, "way": words.BULK[do]}
    return page(request, "bulk/results.html", **context, **found)


def _followed(events: Sequence[int], approvals: Sequence[int], *, now: datetime) -> dict[str, Any]:
    """Return the current lines of these events (row ids), which of the approvals can still be undone, and until
    when.
    """
    lines = selection.followed_events(events, approvals, now=now)
    undo = [one.approval for one in lines if one.approval is not None and one.undoable]
    until = min((approval.due_at for approval in undo if approval.due_at is not None), default=None)
    followed = {"events": ",".join(map(str, events)), "approvals": ",".join(map(str, approvals))}
    query = urlencode(followed, safe=",")
    return {"lines": lines, "undo": [approval.id for approval in undo], "until": until, "query": query}


@read_view("bulk/state/", "bulk-state")
def bulk_state(request: Asked) -> HttpResponse:
    """Return the current state of the events of a bulk decision. The result page requests it repeatedly."""
    events, approvals = (_numbers(request.GET.get(name, "").split(",")) for name in ("events", "approvals"))
    return page(request, "bulk/state.html", **_followed(events, approvals, now=request.now))


def _numbers(texts: Iterable[str]) -> list[int]:
    found = [int(text) for text in texts if text.isdecimal() and len(text) < 19]
    return found[: selection.MOST]


def _each(
    found: Iterable[Choice], act: Callable[[Choice, LockedFacts | None], Result], *, ahead: bool = False
) -> list[Result]:
    """Call `act` for each event separately and return the results. A refusal does not stop the other events, and a
    locked event is refused instead of waited for.
    """
    choices = {choice.event_id: choice for choice in found}

    def one(event_id: str, judged: LockedFacts | None) -> Result:
        try:
            return act(choices[event_id], judged)
        except Refused as error:
            return _result(choices[event_id], refused(error)["refusal"]["sentence"], done=False)

    def held(event_id: str, error: OperationalError) -> Result:
        return _result(choices[event_id], database_waits(sqlstate(error)), done=False)

    return approve.each(list(choices), one, held, clock=timezone.now, ahead=ahead)


def _approve(
    request: Asked, values: Mapping[str, Any], found: Sequence[Choice], versions: Mapping[str, int]
) -> list[Result]:
    until: datetime | None = None
    if settings.APPROVAL_UNDO_SECONDS:
        until = selection.undo_at(len(found), now=request.now, seconds=settings.APPROVAL_UNDO_SECONDS)
    actor, digests = request.actor.because(values["comment"]), of_guards("shown", request)
    reasons = of_guards("reason", request)

    def act(choice: Choice, ahead: LockedFacts | None) -> Result:
        version = versions[choice.event_id]
        plan = Plan(when=When.UNDO, due_at=until, overrides=reasons, shown=digests, expected_version=version)
        approval = approve.grant(event_id=choice.event_id, actor=actor, now=clock.now(), plan=plan, ahead=ahead)
        # The result line follows the approval and shows its state.
        proposed = approval.state == ApprovalState.PROPOSED.value
        said = words.given(approval.state, approval.when) if proposed else ""
        return _result(choice, said, approval=approval.pk)

    return _each(found, act, ahead=True)


def _claim(
    request: Asked, values: Mapping[str, Any], found: Sequence[Choice], versions: Mapping[str, int]
) -> list[Result]:
    """Claim each event, or leave each to Azure, as the form requests."""
    done, why, said = (claims.hold, "reason", "hold") if values["do"] == "leave" else (claims.claim, "comment", "claim")
    actor = request.actor.because(values[why])

    def act(choice: Choice, _: LockedFacts | None) -> Result:
        version = versions[choice.event_id]
        done(event_id=choice.event_id, actor=actor, now=request.now, expected_version=version)
        return _result(choice, words.DONE[said])

    return _each(found, act)


def _wave(
    request: Asked, values: Mapping[str, Any], found: Sequence[Choice], versions: Mapping[str, int]
) -> list[Result]:
    """Begin one wave for each service. It contains all selected events of the service; if one is refused, no wave
    begins there.
    """
    actor = request.actor.because(values["comment"])
    results: list[Result] = []
    for group in selection.by_fault_domain(found).values():
        ids = [choice.event_id for choice in group]
        try:
            wave = waves.begin(
                actor=actor,
                events=ids,
                overrides=of_guards("reason", request),
                shown=of_guards("shown", request),
                versions=versions,
                now=request.now,
            )
        except Refused as error:
            refusal = refused(error)["refusal"]
            against = {one["event_id"]: one["sentence"] for one in refusal.get("events", [])}
            other = words.WAVE_STANDS if against else refusal["sentence"]
            results += [_result(choice, against.get(choice.event_id, other), done=False) for choice in group]
        else:
            turns = enumerate(group, 1)
            results += [_result(choice, words.in_wave(turn, len(ids)), wave=wave.pk) for turn, choice in turns]
    return results


@action_view("bulk/undo/", "bulk-undo", lambda request, **context: page(request, "bulk/refused.html", **context))
def undo(request: Asked) -> HttpResponse:
    """Withdraw the approvals of a bulk decision that were not sent yet. Each of the others is listed with the
    reason.
    """
    results = []
    for text in request.POST.getlist("approval")[: selection.MOST]:
        # No approval has the number 0: the result states that.
        approval_id = next(iter(_numbers([text])), 0)
        try:
            approval = taking_back.withdraw(approval_id=approval_id, actor=request.actor, now=clock.now())
        except Refused as error:
            said = refused(error)["refusal"]["sentence"]
            results.append(Result("", f"approval {approval_id}", done=False, said=said))
            continue
        event = approval.event
        named, said = event_words.named(event.event_type, event.resources), words.DONE["undo"]
        results.append(Result(event.event_id, named, True, said, approval.event_id, approval.pk))
    return outcome(request, results, do="undo")
