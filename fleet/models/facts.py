"""Loading the facts that the fold, the guards and the relay judge, each in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from django.conf import settings

from fleet.domain.guards import DecisionFacts, EventFacts, MachineFacts
from fleet.domain.presence import Limits, presence_of
from fleet.domain.sightings import Witness, Word
from fleet.domain.states import LIVE_APPROVALS, EventStatus, Presence
from fleet.models.approvals import Approval
from fleet.models.events import ScheduledEvent, Sighting
from fleet.models.machines import Machine


def presence_limits() -> Limits:
    """The ages that make a machine live, late or silent, out of the settings."""
    return Limits(live=settings.LIVE_SECONDS, late=settings.LATE_SECONDS, gone=settings.GONE_SECONDS)


def latest(*times: datetime | None) -> datetime | None:
    """The latest of the times that are known; None when none is."""
    known = [time for time in times if time is not None]
    return max(known) if known else None


def machine_presence(machine: Machine, *, now: datetime, limits: Limits) -> Presence:
    """How present a machine is; wants `presence` and `head` selected with it."""
    heard, polled = contact_times(machine)
    return presence_of(
        last_heard_at=heard, last_poll_at=polled, revoked=machine.revoked_at is not None, now=now, limits=limits
    )


def contact_times(machine: Machine) -> tuple[datetime | None, datetime | None]:
    """(last heard, last good poll). A document is a good poll, too, and may be here before the presence map is
    flushed.
    """
    row = getattr(machine, "presence", None)
    head = getattr(machine, "head", None)
    polled = latest(row.last_poll_at if row else None, head.at if head else None)
    return (row.last_heard_at if row else None), polled


def _machines_of(set_ids: Collection[int]) -> dict[int, list[Machine]]:
    found: dict[int, list[Machine]] = defaultdict(list)
    machines = Machine.objects.filter(availability_set_id__in=set_ids).select_related("presence", "head")
    for machine in machines.defer("compute").order_by("resource_name", "id"):
        found[machine.availability_set_id].append(machine)
    return found


def word_of(sighting: Sighting) -> Word:
    """A sighting's row as the fold reads it."""
    return Word(
        first_at=sighting.first_at,
        listed_at=sighting.listed_at,
        started_at=sighting.started_at,
        listed_incarnation=sighting.listed_incarnation,
        spelled=sighting.spelled,
        status=sighting.status,
        event_type=sighting.event_type,
        resource_type=sighting.resource_type,
        source=sighting.source,
        description=sighting.description,
        duration_seconds=sighting.duration_seconds,
        not_before=sighting.not_before,
        resources=tuple(sighting.resources),
        gone_at=sighting.gone_at,
        gone_incarnation=sighting.gone_incarnation,
        foreign=sighting.foreign,
    )


def load_witnesses(events: Collection[ScheduledEvent], *, now: datetime) -> dict[int, list[Witness]]:
    """The machines of each event's set with their words, by the event's row id. Two queries."""
    limits = presence_limits()
    machines = _machines_of({event.availability_set_id for event in events})
    words: dict[int, dict[int, Sighting]] = defaultdict(dict)
    for sighting in Sighting.objects.filter(event_id__in=[event.pk for event in events]):
        words[sighting.event_id][sighting.machine_id] = sighting
    found: dict[int, list[Witness]] = {}
    for event in events:
        of_event = words[event.pk]
        found[event.pk] = [
            Witness(
                machine_id=machine.pk,
                name=machine.resource_name,
                presence=machine_presence(machine, now=now, limits=limits),
                last_poll_at=contact_times(machine)[1],
                word=word_of(of_event[machine.pk]) if machine.pk in of_event else None,
                update_domain=machine.update_domain,
            )
            for machine in machines[event.availability_set_id]
        ]
    return found


def load_facts(event_ids: Collection[int], *, now: datetime) -> dict[int, EventFacts]:
    """What guards and the relay judge, by the event's row id. Five queries, however many events."""
    events = list(ScheduledEvent.objects.filter(pk__in=event_ids).select_related("availability_set"))
    machines = _machines_of({event.availability_set_id for event in events})
    standing = Sighting.objects.filter(event_id__in=event_ids, gone_at__isnull=True, foreign=False)
    return facts_of(events, machines, standing, now=now)


def facts_of(
    events: Collection[ScheduledEvent],
    machines: Mapping[int, Collection[Machine]],
    sightings: Iterable[Sighting],
    *,
    now: datetime,
) -> dict[int, EventFacts]:
    """The same for rows loaded already: events with their set, machines by set, sightings. Two queries."""
    event_ids = [event.pk for event in events]
    set_ids = {event.availability_set_id for event in events}
    limits = presence_limits()
    listed: dict[int, dict[int, str]] = defaultdict(dict)
    for sighting in sightings:
        if sighting.gone_at is None and not sighting.foreign:
            listed[sighting.event_id][sighting.machine_id] = sighting.spelled
    decisions = {}
    live = [state.value for state in LIVE_APPROVALS]
    for approval in Approval.objects.filter(event_id__in=event_ids, state__in=live).select_related("decided_by"):
        decisions[approval.event_id] = DecisionFacts(
            approval_id=approval.pk,
            state=approval.state,
            by=approval.decided_by.get_username() if approval.decided_by else "a rule",
            at=approval.granted_at,
        )
    open_events: dict[int, list[tuple[int, str]]] = defaultdict(list)
    still_open = ScheduledEvent.objects.filter(availability_set_id__in=set_ids).exclude(status=EventStatus.ENDED.value)
    for pk, event_id, set_id in still_open.values_list("pk", "event_id", "availability_set_id").order_by("pk"):
        open_events[set_id].append((pk, event_id))
    return {
        event.pk: EventFacts(
            event_id=event.event_id,
            status=EventStatus(event.status),
            event_type=event.event_type,
            version=event.version,
            not_before=event.not_before,
            resources=tuple(event.resources),
            set_id=event.availability_set_id,
            set_kind=event.availability_set.kind,
            set_name=event.availability_set.name,
            machines=tuple(
                MachineFacts(
                    machine_id=machine.pk,
                    name=machine.resource_name,
                    presence=machine_presence(machine, now=now, limits=limits),
                    lists_it=machine.pk in listed[event.pk],
                    spelled=listed[event.pk].get(machine.pk, ""),
                    last_heard_at=contact_times(machine)[0],
                )
                for machine in machines[event.availability_set_id]
                if machine.revoked_at is None
            ),
            decision=decisions.get(event.pk),
            other_open=tuple(eid for pk, eid in open_events[event.availability_set_id] if pk != event.pk),
        )
        for event in events
    }
