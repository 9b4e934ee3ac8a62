"""API calls about scheduled events with their timeline and documents, and the 404 problem for unknown URLs."""

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
class Events(Call, at="events/"):
    """List scheduled events: open ones by time left, then ended ones, newest first

    Real events and drills, unless a filter selects some. Each has its approval, claim and hold.
    """


@detail_call("get_event", event_detail, version="version")
class Event(Call, at="events/<str:event_id>/"):
    """Get a scheduled event: affected machines, sightings and guards

    Every sighting, every guard that blocks or warns about an approval now, the machine that would get the order, the
    recommendation, and the `version` to send as `expected_version`.
    """


class EventTimeline(Call, at="events/<str:event_id>/timeline/"):
    @describe(
        "list_event_entries",
        parameters=[*filters_of(EventEntryFilter), ordering("at")],
        problems=("unknown-event", "archive-away"),
    )
    def get(self, event_id: str) -> Page[entries.TimelineRow]:
        """List the timeline of an event, oldest first

        Every observation, decision and report about this event. The problem `archive-away` means that its archived
        entries cannot be read now.
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


class EventDocuments(Call, at="events/<str:event_id>/documents/"):
    @describe(
        "list_event_documents",
        answer=Documents,
        problems=("unknown-event",),
        parameters=page_parameters(DEFAULT_PAGE_SIZE),
    )
    def get(self, event_id: str) -> Response:
        """List the raw documents of an event, in the order in which they were first read

        Each is byte for byte what the metadata service answered, with the first machine that read it and the time, and
        how it differs from the one before.
        """
        documents = intake.for_event(event_id=event_id)
        if documents is None:
            raise Problem("unknown-event")
        page = self.paged(DocumentShape, lambda: documents.page(**self.place))
        return Response({**page, "left_out": documents.left_out})
