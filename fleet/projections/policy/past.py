"""What is kept of the time at which events were first seen: the facts that rules and guards would have judged then."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db.models import Prefetch, Q

from fleet.domain.approvals.guards import EventFacts, MachineFacts, OtherEvent, WindowFacts
from fleet.domain.shapes import like
from fleet.domain.states import RELAYED_APPROVALS, ApprovalState, EventStatus, Presence
from fleet.models import Approval, Hold, Machine, NoApprovalWindow, ScheduledEvent
from fleet.models.facts.events import are_near, is_open, place_of, set_facts
from fleet.projections.sight import seen


class Past:
    """What is kept of the time of these events, loaded at once."""

    def __init__(self, events: Sequence[ScheduledEvent]) -> None:
        ids = [event.pk for event in events]
        sets = {event.availability_set_id for event in events}
        self.machines: dict[int, list[Machine]] = defaultdict(list)
        for machine in seen(Machine).filter(availability_set__in=sets).defer("compute").order_by("pk"):
            self.machines[machine.availability_set_id].append(machine)
        self.beside = _beside(events)
        self.approvals: Mapping[int, list[Approval]] = {event.pk: list(event.approvals.all()) for event in self.beside}
        self.holds: dict[int, Hold] = {}
        for hold in seen(Hold).filter(event_id__in=ids).select_related("by", "rule").order_by("pk"):
            self.holds[hold.event_id] = hold
        self.windows = list(seen(NoApprovalWindow).order_by("pk"))

    def facts_at(self, event: ScheduledEvent, at: datetime) -> EventFacts:
        """What guards and rules judge of an event, as it was at its first sighting, as far as that is known."""
        home = event.availability_set
        return like(
            EventFacts,
            event,
            status=EventStatus.STARTED if _began_started(event) else EventStatus.SCHEDULED,
            **set_facts(home),
            machines=tuple(
                MachineFacts(
                    machine_id=machine.pk,
                    name=machine.resource_name,
                    presence=Presence.LIVE,
                    lists_it=True,
                    fault_domain=machine.fault_domain,
                )
                for machine in self.machines[home.pk]
                if machine.enrolled_at <= at and (machine.revoked_at is None or machine.revoked_at > at)
            ),
            others=tuple(self._others_at(event, at)),
            started_at=None,
            drill=False,
            windows=tuple(
                like(WindowFacts, window)
                for window in self.windows
                if window.created_at <= at and (window.deleted_at is None or window.deleted_at > at)
                if is_open(window, place_of(home), now=at)
            ),
        )

    def _others_at(self, event: ScheduledEvent, at: datetime) -> Iterable[OtherEvent]:
        for other in self.beside:
            if other.pk != event.pk and are_near(event, other) and self._in_flight(other, at):
                home, begun = other.availability_set, other.started_at is not None and other.started_at <= at
                taken = tuple(other.resources) if begun else ()
                yield OtherEvent(other.event_id, home.pk, home.name, in_flight=True, taken=taken)

    def _in_flight(self, event: ScheduledEvent, at: datetime) -> bool:
        if event.ended_at is not None and event.ended_at <= at:
            return False
        if event.started_at is not None and event.started_at <= at:
            return True
        relayed = {ApprovalState.CONFIRMED, *RELAYED_APPROVALS}
        return any(
            approval.granted_at is not None
            and approval.granted_at <= at
            and (approval.closed_at is None or approval.closed_at > at or ApprovalState(approval.state) in relayed)
            for approval in self.approvals.get(event.pk, ())
        )


def _beside(events: Sequence[ScheduledEvent]) -> list[ScheduledEvent]:
    """These events, and those of their sets and services that were open at the same time, with their approvals."""
    if not events:
        return []
    times = [event.first_seen_at for event in events]
    services = {event.availability_set.service for event in events} - {""}
    near = Q(availability_set__in={event.availability_set_id for event in events}) | Q(
        availability_set__service__in=services
    )
    at_that_time = Q(ended_at__isnull=True) | Q(ended_at__gte=min(times))
    approvals = seen(Approval).select_related("decided_by", "rule").order_by("-pk")
    rows = seen(ScheduledEvent).filter(near, at_that_time, drill=False, first_seen_at__lte=max(times))
    return list(rows.select_related("availability_set").prefetch_related(Prefetch("approvals", approvals)))


def _began_started(event: ScheduledEvent) -> bool:
    return event.started_at is not None and event.started_at <= event.first_seen_at
