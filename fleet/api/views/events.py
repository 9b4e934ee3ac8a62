"""Scheduled events with their timeline and documents, and the 404 problem of unknown URLs."""

from typing import NoReturn

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import Call
from fleet.api.problems import Problem
from fleet.api.schema import describe, detail_call, filters_of, list_call, ordering, page_parameters
from fleet.api.shapes.answers import Documents, DocumentShape
from fleet.projections import intake
from fleet.projections.archived import ARCHIVE
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import event_detail
from fleet.projections.filters import EventEntryFilter, EventFilter
from fleet.projections.pages import DEFAULT_PAGE_SIZE, Page
from fleet.projections.timeline import entries


@extend_schema(exclude=True)
class Elsewhere(Call):
    permission_classes = []

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        detail = "" if request.path.endswith("/") else f"`{request.path}` is no address here."
        raise Problem("not-found", detail)

    def get(self, request: Request) -> NoReturn:
        raise Problem("not-found")


@list_call("list_events", event_rows.listing, EventFilter, "events", orders=("first_seen_at", "not_before"))
class Events(Call):
    """Scheduled events by time left, then newest first

    All of them, open and ended, real ones and drills, unless a filter says otherwise. Each has its approval, its
    claim and its hold.
    """


@detail_call("get_event", event_detail, version="version")
class Event(Call):
    """One scheduled event: what it hits, who saw it, what speaks against approving it

    Every sighting, every guard that speaks against approving it now, who would be asked to start it, what is
    recommended, and its `version` for `expected_version`.
    """


class EventTimeline(Call):
    @describe(
        "list_event_entries",
        parameters=[*filters_of(EventEntryFilter), ordering("at")],
        problems=("unknown-event", "archive-away"),
    )
    def get(self, event_id: str) -> Page[entries.TimelineRow]:
        """The timeline of an event, oldest first

        Everything that was seen, decided and reported about this event, in the order in which it happened.
        """
        rows = self.filtered(EventEntryFilter)
        archived = ARCHIVE.entries_of(event_id)
        if archived.fault:
            raise Problem("archive-away")
        if archived:
            filters = EventEntryFilter(self.request.query_params)
            chosen = [entry for entry in archived.entries if filters.form.is_valid() and filters.keeps(entry)]
            return entries.complete_timeline(event_id=event_id, left=chosen, entries=rows, **self.place)
        page = entries.for_event(event_id=event_id, entries=rows, **self.place)
        # Every event has entries; only a page without any may mean that the event does not exist.
        if not page.results and event_detail(event_id=event_id, now=self.now) is None:
            raise Problem("unknown-event")
        return page


class EventDocuments(Call):
    @describe(
        "list_event_documents",
        answer=Documents,
        problems=("unknown-event",),
        parameters=page_parameters(DEFAULT_PAGE_SIZE),
    )
    def get(self, event_id: str) -> Response:
        """The raw documents behind an event, in the order in which they were first read

        What the metadata service said, byte for byte, who read it and when first, and how each document differs from
        the one before.
        """
        documents = intake.for_event(event_id=event_id)
        if documents is None:
            raise Problem("unknown-event")
        page = self.paged(DocumentShape, lambda: documents.page(**self.place))
        return Response({**page, "left_out": documents.left_out})
