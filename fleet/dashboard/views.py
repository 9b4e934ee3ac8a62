"""Pages that read. Each parses, asks projections, answers."""

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from fleet.dashboard.export import exported
from fleet.dashboard.lanes import draw
from fleet.dashboard.pages import missing, page, part, reader
from fleet.domain import drills
from fleet.operations.rights import can_administer, can_approve
from fleet.projections import blind_spots, documents, events, fleet, machines, maintenances, queue, sets, timeline
from fleet.projections.filters import EntryFilter, EventFilter, MachineFilter, SetFilter
from fleet.projections.paging import BadCursorError, Page

PAGE_SIZE = 50
DRILL_FORM = {
    "kinds": drills.KINDS,
    "type": drills.DEFAULT_TYPE,
    "notice": drills.NOTICE_SECONDS,
    "duration": drills.DURATION_SECONDS,
    "notice_seconds": drills.DEFAULT_NOTICE_SECONDS,
    "duration_seconds": drills.DEFAULT_DURATION_SECONDS,
}
HISTORY_SIZE = 25


def asked_again(request: HttpRequest, rows: Page[Any]) -> dict[str, str]:
    """Links to the pages before and after, with the same filters."""
    links = {}
    for name, cursor in (("older", rows.next), ("newer", rows.previous)):
        if cursor:
            query = request.GET.copy()
            query.pop("part", None)
            query["cursor"] = cursor
            links[name] = f"?{query.urlencode()}"
    return links


@require_safe
@reader
def decision_queue(request: HttpRequest) -> HttpResponse:
    """The front page: what needs a decision, then the sets, then the fleet's timeline."""
    now = timezone.now()
    waiting = cache(lambda: queue.decision_queue(now=now))
    return page(
        request,
        "queue.html",
        {
            "queue": lambda: {"queue": waiting(), "pulse": waiting().pulse, "overview": fleet.overview(now=now)},
            "cards": lambda: {"cards": sets.cards(now=now, first=waiting().set_ids)},
            "under_maintenance": lambda: {"under_maintenance": maintenances.active()},
            "recent": lambda: {"entries": timeline.fleet(size=15)},
        },
        now=now,
    )


@require_safe
@reader
def pulse(request: HttpRequest) -> HttpResponse:
    """The count and the shortest time in the head of every page."""
    now = timezone.now()
    return part(request, "pulse", now=now, pulse=queue.pulse(now=now))


@require_safe
@reader
def event_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    filters = EventFilter(request.GET, now=now)

    def rows() -> dict[str, Any]:
        found = events.listing(now=now, events=filters.qs, cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"events": found, "links": asked_again(request, found)}

    return listed(request, "events.html", {"event_rows": rows}, now=now, filters=filters)


@require_safe
@reader
def set_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    filters = SetFilter(request.GET)

    def rows() -> dict[str, Any]:
        found = sets.listing(now=now, sets=filters.qs, cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"sets": found, "links": asked_again(request, found)}

    return listed(request, "sets.html", {"set_rows": rows}, now=now, filters=filters)


@require_safe
@reader
def machine_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    filters = MachineFilter(request.GET)

    def rows() -> dict[str, Any]:
        found = machines.listing(now=now, machines=filters.qs, cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"machines": found, "links": asked_again(request, found)}

    return listed(request, "machines.html", {"machine_rows": rows}, now=now, filters=filters)


@require_safe
@reader
def fleet_timeline(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    filters = EntryFilter(request.GET)

    def rows() -> dict[str, Any]:
        found = timeline.fleet(entries=filters.qs, cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"entries": found, "links": asked_again(request, found)}

    return listed(request, "timeline.html", {"entry_rows": rows}, now=now, filters=filters)


def listed(request: HttpRequest, template: str, parts: Any, **context: Any) -> HttpResponse:
    """A list's page; an unreadable cursor leads to its beginning."""
    try:
        return page(request, template, parts, query=query_of(request), **context)
    except BadCursorError:
        answer = HttpResponse(status=302)
        answer["Location"] = request.path
        return answer


def query_of(request: HttpRequest) -> str:
    """The page's own filters, for asking for a part of it."""
    query = request.GET.copy()
    query.pop("part", None)
    return query.urlencode()


@require_safe
@reader
def set_page(request: HttpRequest, set_id: int) -> HttpResponse:
    return set_answer(request, set_id)


def set_answer(request: HttpRequest, set_id: int, *, status: int = 200, **context: Any) -> HttpResponse:
    """The set's page; also the answer to a form that was refused, which explains itself on it."""
    now = timezone.now()
    found = sets.detail(set_id=set_id, now=now)
    if found is None:
        return missing(request, "There is no such availability set.")

    def history() -> dict[str, Any]:
        rows = timeline.for_set(set_id=found.set.id, cursor=None, size=HISTORY_SIZE)
        return {"entries": rows, "more": f"set={found.set.id}" if rows.next else ""}

    if can_approve(request.user):
        context["drill_form"] = DRILL_FORM
    if can_administer(request.user):
        context["merge_targets"] = sets.merge_targets(set_id=found.set.id)
    return page(
        request,
        "set.html",
        {"set_body": lambda: {"detail": found}, "history": history},
        now=now,
        status=status,
        detail=found,
        **context,
    )


@require_safe
@reader
def blind_spot_page(request: HttpRequest) -> HttpResponse:
    """Where Drydock would not see what Azure announces."""
    now = timezone.now()
    return page(
        request, "blind_spots.html", {"blind_spot_rows": lambda: {"found": blind_spots.overview(now=now)}}, now=now
    )


@require_safe
@reader
def machine_page(request: HttpRequest, machine_id: int) -> HttpResponse:
    now = timezone.now()
    found = machines.detail(machine_id=machine_id, now=now)
    if found is None:
        return missing(request, "There is no such machine.")

    def history() -> dict[str, Any]:
        rows = timeline.for_machine(machine_id=machine_id, cursor=None, size=HISTORY_SIZE)
        return {"entries": rows, "more": f"machine={machine_id}" if rows.next else ""}

    return page(
        request, "machine.html", {"machine_body": lambda: {"detail": found}, "history": history}, now=now, detail=found
    )


@require_safe
@reader
def event_page(request: HttpRequest, event_id: str) -> HttpResponse:
    return event_answer(request, event_id)


def event_answer(request: HttpRequest, event_id: str, *, status: int = 200, **context: Any) -> HttpResponse:
    """The event's page; also the answer to a form that was refused, which explains itself on it."""
    now = timezone.now()
    found = events.detail(event_id=event_id, now=now)
    if found is None:
        return missing(request, "No such event is known: check its EventId.")

    def body() -> dict[str, Any]:
        story = timeline.for_event(event_id=event_id, size=200)
        return {"lanes": draw(found, now=now), "entries": story, "more": f"event={event_id}" if story.next else ""}

    def raw() -> dict[str, Any]:
        # Made only when it is asked for: it is the largest part, far down the page.
        return {"raw": documents.for_event(event_id=event_id)} if request.GET.get("part") == "documents" else {}

    return page(
        request,
        "event.html",
        {"event_head": dict, "decision": dict, "event_body": body, "documents": raw},
        now=now,
        status=status,
        detail=found,
        **context,
    )


@require_safe
@reader
def event_documents(request: HttpRequest, event_id: str) -> HttpResponse:
    """The raw documents on a page of their own."""
    now = timezone.now()
    found = documents.for_event(event_id=event_id)
    if found is None:
        return missing(request, "No such event is known: check its EventId.")
    return page(request, "documents.html", {}, now=now, raw=found, event_id=event_id.upper())


@require_safe
@reader
def event_export(request: HttpRequest, event_id: str) -> HttpResponse:
    """Everything about one event as a JSON file, for a post-mortem."""
    now = timezone.now()
    found = events.detail(event_id=event_id, now=now)
    raw = documents.for_event(event_id=event_id)
    if found is None or raw is None:
        return missing(request, "No such event is known: check its EventId.")
    answer = JsonResponse(
        {
            "event": exported(found),
            "timeline": exported(timeline.for_event(event_id=event_id, size=500).results),
            "documents": exported(raw.documents),
        },
        json_dumps_params={"indent": 2},
    )
    answer["Content-Disposition"] = f'attachment; filename="{found.event.event_id}.json"'
    return answer
