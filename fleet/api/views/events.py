"""Scheduled events, their timeline and their documents."""

from functools import partial

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import Call, describe, filtered, filters_of
from fleet.api.problems import Problem
from fleet.api.shapes.events import Documents, EntryShape, EventDetailShape, EventShape
from fleet.projections import intake
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import event_detail
from fleet.projections.filters import EventFilter
from fleet.projections.timeline import entries

EVENT_FILTERS = filters_of(
    EventFilter,
    {
        "status": "`SCHEDULED`, `STARTED` or `ENDED`; may be repeated.",
        "type": "Such as `Reboot`, in any case.",
        "source": "`Platform` or `User`, in any case.",
        "set": "The id of a set.",
        "machine": "The id of a machine: the events that name it in `Resources`.",
        "needs_decision": "Before NotBefore, and nobody has decided or a second person has to agree.",
        "drill": "Only drills, or only real events.",
        "since": "First seen at or after this time.",
        "until": "First seen before this time.",
    },
)


class Events(Call):
    @describe(
        "list_events", "Scheduled events by time left, then newest first", page=EventShape, parameters=EVENT_FILTERS
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, EventFilter(request.query_params, now=self.now))
        return self.paged(request, EventShape, partial(event_rows.listing, now=self.now, events=found))


class Event(Call):
    @describe(
        "get_event",
        "One scheduled event: what it hits, who saw it, what speaks against approving it",
        answer=EventDetailShape,
        problems=(404,),
    )
    def get(self, request: Request, event_id: str) -> Response:
        found = event_detail(event_id=event_id, now=self.now)
        return self.shown(EventDetailShape, found, "unknown-event")


class EventTimeline(Call):
    @describe("list_event_entries", "The timeline of an event, oldest first", page=EntryShape, problems=(404,))
    def get(self, request: Request, event_id: str) -> Response:
        answer = self.paged(request, EntryShape, partial(entries.for_event, event_id=event_id))
        # Every event has entries; only a page without any may mean that there is no such event.
        if not answer.data["results"] and event_detail(event_id=event_id, now=self.now) is None:
            raise Problem("unknown-event")
        return answer


class EventDocuments(Call):
    @describe(
        "list_event_documents",
        "The raw documents behind an event, in the order in which they were first read",
        answer=Documents,
        problems=(404,),
    )
    def get(self, request: Request, event_id: str) -> Response:
        return self.shown(Documents, intake.for_event(event_id=event_id), "unknown-event")
