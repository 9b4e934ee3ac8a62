"""Scheduled events, their timeline and their documents."""

from datetime import datetime
from functools import partial

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import PAGE_PARAMETERS, Call, filtered, names_of, problem_answers, query_parameters
from fleet.api.problems import Problem
from fleet.api.shapes.base import values_of
from fleet.api.shapes.events import DocumentsSerializer, EntrySerializer, EventDetailSerializer, EventSerializer
from fleet.api.shapes.pages import page_of
from fleet.projections import documents, events, timeline
from fleet.projections.filters import EventFilter

EVENT_PARAMETERS = query_parameters(
    ("status", str, "`SCHEDULED`, `STARTED` or `ENDED`; may be repeated."),
    ("type", str, "Such as `Reboot`, in any case."),
    ("source", str, "`Platform` or `User`, in any case."),
    ("set", int, "The id of a set."),
    ("machine", int, "The id of a machine: the events that name it in `Resources`."),
    ("needs_decision", bool, "Before NotBefore, and nobody has decided or a second person has to agree."),
    ("drill", bool, "Only drills, or only real events."),
    ("since", datetime, "First seen at or after this time."),
    ("until", datetime, "First seen before this time."),
    repeated=("status",),
)


class Events(Call):
    knows = names_of(EVENT_PARAMETERS)

    @extend_schema(
        operation_id="list_events",
        summary="Scheduled events by time left, then newest first",
        parameters=EVENT_PARAMETERS,
        responses={200: page_of(EventSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, EventFilter(request.query_params, now=self.now))
        return self.paged(request, EventSerializer, partial(events.listing, now=self.now, events=found))


class Event(Call):
    @extend_schema(
        operation_id="get_event",
        summary="One scheduled event: what it hits, who saw it, what speaks against approving it",
        responses={200: EventDetailSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, event_id: str) -> Response:
        found = events.detail(event_id=event_id, now=self.now)
        if found is None:
            raise Problem("unknown-event")
        return self.shown(EventDetailSerializer, values_of(found.event, found))


class EventTimeline(Call):
    knows = names_of(PAGE_PARAMETERS)

    @extend_schema(
        operation_id="list_event_entries",
        summary="The timeline of an event, oldest first",
        parameters=PAGE_PARAMETERS,
        responses={200: page_of(EntrySerializer), **problem_answers(404, 422)},
    )
    def get(self, request: Request, event_id: str) -> Response:
        answer = self.paged(request, EntrySerializer, partial(timeline.for_event, event_id=event_id))
        # Every event has entries; only a page without any may mean that there is no such event.
        if not answer.data["results"] and events.detail(event_id=event_id, now=self.now) is None:
            raise Problem("unknown-event")
        return answer


class EventDocuments(Call):
    @extend_schema(
        operation_id="list_event_documents",
        summary="The raw documents behind an event, in the order in which they were first read",
        responses={200: DocumentsSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, event_id: str) -> Response:
        found = documents.for_event(event_id=event_id)
        if found is None:
            raise Problem("unknown-event")
        return self.shown(DocumentsSerializer, {"next": None, "previous": None, **values_of(found)})
