"""Events: their list, and the page of one, which can be handed to a post-mortem."""

from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, JsonResponse

from fleet.dashboard.decision_panel import panel_of
from fleet.dashboard.export import exported
from fleet.dashboard.lanes.event import draw_event
from fleet.dashboard.pages import Asked, Panel, history, known, listed, loaded, page, read_view
from fleet.domain.people import Right
from fleet.projections import intake
from fleet.projections.archived import ARCHIVE
from fleet.projections.desk import selection
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import event_detail
from fleet.projections.filters import EventFilter
from fleet.projections.timeline import entries
from fleet.wording.events import effect_of

UNKNOWN = "No such event is known: check its EventId."
# Of annexes, in the head of an event's page and of its report; each loads what it shows for the event and the request.
HEAD_PANELS: list[Panel] = []
REPORT_PANELS: list[Panel] = []


@read_view
def event_list(request: Asked) -> HttpResponse:
    found = EventFilter(request.GET, now=request.now).qs
    read = partial(event_rows.listing, now=request.now, events=found)
    return listed(request, "events/list.html", "events/event_rows.html", read, pick=_pick(request, found))


def _pick(request: Asked, found: QuerySet[Any]) -> dict[str, Any] | None:
    """For selecting several of these: how many of them somebody may decide, and by which filter."""
    if not request.rights.may(Right.APPROVE):
        return None
    count = selection.count_of(selection.undecided(found, now=request.now, rights=request.rights))
    filters = [(name, text) for name in EventFilter.base_filters for text in request.GET.getlist(name)]
    return {"count": count, "filters": filters, "most": selection.MOST} if count else None


def event_answer(request: Asked, /, event_id: str, *, only: str = "", **context: Any) -> HttpResponse:
    """The event's page; also the answer to a form that was refused, which explains itself on it."""
    found = known(event_detail(event_id=event_id, now=request.now), UNKNOWN)

    def decision() -> dict[str, Any]:
        sent = {name: context.get(name) for name in ("refusal", "sent")}
        return {"me": panel_of(request.actor.name, request.rights, found, now=request.now, **sent)}

    def head() -> dict[str, Any]:
        return {"panels": loaded(HEAD_PANELS, found.event, request)}

    def body() -> dict[str, Any]:
        story = history(entries.for_event(event_id=event_id, size=200), event=event_id)
        beside = event_rows.named_events(found.other_open)
        left = ARCHIVE.archived_at(found.event.id)
        return {"lanes": draw_event(found, now=request.now), "beside": beside, "archived_at": left, **story}

    def raw() -> dict[str, Any]:
        # Made only when it is asked for: it is the largest part, far down the page.
        return {"raw": intake.for_event(event_id=event_id)} if request.GET.get("part") == "documents" else {}

    def left() -> dict[str, Any]:
        # Made only when it is asked for: the archive may have it wait.
        return _from_archive(event_id) if request.GET.get("part") == "archive" else {}

    return page(
        request,
        "events/page.html",
        {
            "events/event_head.html": head,
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


event_page = read_view(event_answer)


def _from_archive(event_id: str) -> dict[str, Any]:
    left = ARCHIVE.entries_of(event_id)
    return {"left": left, "left_entries": entries.rows_of(left.entries)}


@read_view
def event_archive(request: Asked, event_id: str) -> HttpResponse:
    """What of its timeline lies in the archive, on a page of its own."""
    known(event_detail(event_id=event_id, now=request.now), UNKNOWN)
    return page(request, "events/archive_page.html", event_id=event_id.upper(), **_from_archive(event_id))


@read_view
def event_documents(request: Asked, event_id: str) -> HttpResponse:
    """The raw documents on a page of their own."""
    raw = known(intake.for_event(event_id=event_id), UNKNOWN)
    return page(request, "events/documents_page.html", raw=raw, event_id=event_id.upper())


@read_view
def event_export(request: Asked, event_id: str) -> HttpResponse:
    """Everything about one event as a JSON file, for a post-mortem."""
    found = known(event_detail(event_id=event_id, now=request.now), UNKNOWN)
    raw = known(intake.for_event(event_id=event_id), UNKNOWN)
    left = ARCHIVE.entries_of(event_id)
    timeline = [*entries.rows_of(left.entries), *entries.for_event(event_id=event_id, size=500).results]
    known_type = effect_of(found.event)
    told = {"event": found, "type": known_type, "timeline": timeline, "documents": raw.documents}
    if left.fault or raw.fault:
        told["missing"] = left.fault or raw.fault
    answer = JsonResponse(exported(told), json_dumps_params={"indent": 2})
    answer["Content-Disposition"] = f'attachment; filename="{found.event.event_id}.json"'
    return answer
