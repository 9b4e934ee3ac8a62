"""Facts from which event states are computed and guards and the relay decide, loaded with a fixed number of queries."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Case, Exists, OuterRef, Q, Subquery, When

from fleet.domain.approvals.guards import DecisionFacts, EventFacts, HoldFacts, MachineFacts, OtherEvent, WindowFacts
from fleet.domain.events import MachineBasics, MergedListing, Witness
from fleet.domain.intake import prepared_of, presence_of
from fleet.domain.orders.next_step import Timeouts
from fleet.domain.people import Place, lies_in
from fleet.domain.policy.hours import in_hours
from fleet.domain.reasons import Reason
from fleet.domain.requirements import KeptRequirements, Requirements
from fleet.domain.shapes import from_row, names_of, of_values
from fleet.domain.states import LIVE_APPROVALS, OPEN_EVENTS, RELAYED_APPROVALS, ApprovalState, EventStatus, Presence
from fleet.models.approvals import Approval, Hold
from fleet.models.events import ScheduledEvent, Sighting
from fleet.models.facts.machines import machine_rows, not_counted_since, presence_limits
from fleet.models.intake import Preparation
from fleet.models.machines import AvailabilitySet, Machine
from fleet.models.policy import NoApprovalWindow, stop_in_force

STARTED = EventStatus.STARTED.value


def order_timeouts() -> Timeouts:
    """Return the timeouts of orders, from the settings."""
    return Timeouts.of(timedelta(seconds=settings.ORDER_ANSWER_SECONDS))


def latest(*times: datetime | None) -> datetime | None:
    """Return the latest of the times that are not None; None if there is none."""
    known = [time for time in times if time is not None]
    return max(known) if known else None


def machine_presence(machine: Machine, *, now: datetime) -> Presence:
    """Return the presence of a machine. The query must have used select_related for `presence` and
    `latest_document`.
    """
    revoked = machine.revoked_at is not None
    return presence_of(*contact_times(machine), revoked=revoked, now=now, limits=presence_limits())


def contact_times(machine: Machine) -> tuple[datetime | None, datetime | None]:
    """Return when a machine last reported, and when it last polled Azure successfully.

    A document is a successful poll, too, and may be stored before the presence row is written.
    """
    row = getattr(machine, "presence", None)
    newest = getattr(machine, "latest_document", None)
    polled = latest(row.last_poll_at if row else None, newest.at if newest else None)
    return (row.last_heard_at if row else None), polled


def row_of(machine: Machine, *, now: datetime) -> MachineBasics:
    """Return basic facts from a machine's row. The query must have used select_related for `presence` and
    `latest_document`.
    """
    heard_at, polled_at = contact_times(machine)
    revoked_at = not_counted_since(machine.revoked_at, machine.discounted_at, heard_at)
    presence, domains = machine_presence(machine, now=now), (machine.fault_domain, machine.update_domain)
    return MachineBasics(machine.pk, machine.resource_name, presence, *domains, revoked_at, heard_at, polled_at)


@dataclass(frozen=True, slots=True)
class Standing:
    """Loaded data of several events: `machines` of their sets, by set; `listings` by event and machine. Keys are row
    ids.
    """

    machines: Mapping[int, list[MachineBasics]]
    listings: Mapping[int, Mapping[int, MergedListing]]


def load_standing(events: Collection[ScheduledEvent], *, now: datetime) -> Standing:
    """Load the machines and listings of these events. Runs two queries."""
    sets, ids = {event.availability_set_id for event in events}, [event.pk for event in events]
    machines = machine_rows(sets, now=now, listers_of=ids)
    listings: dict[int, dict[int, MergedListing]] = defaultdict(dict)
    sightings = Sighting.objects.filter(event_id__any=ids)
    for event_id, machine_id, *values in sightings.values_list("event_id", "machine_id", *names_of(MergedListing)):
        listings[event_id][machine_id] = of_values(MergedListing, values)
    return Standing(machines, listings)


def load_witnesses(
    events: Collection[ScheduledEvent], *, now: datetime, standing: Standing | None = None
) -> dict[int, list[Witness]]:
    """Return the machines of each event's set with their listings, by the event's row id.

    Runs two queries; none if `standing` is given.
    """
    known = standing or load_standing(events, now=now)
    found: dict[int, list[Witness]] = {}
    for event in events:
        of_set, of_event = known.machines.get(event.availability_set_id, []), known.listings.get(event.pk, {})
        witnesses = found[event.pk] = []
        for machine in of_set:
            listing = of_event.get(machine.machine_id)
            witness = Witness(**vars(machine), listing=listing)
            if not event.drill:
                witnesses.append(witness)
            elif listing is not None:
                # Its machines are those that take part. A machine's report counts until its next one, without polls.
                polled_at = now if listing.gone_at is not None else listing.listed_at
                witnesses.append(replace(witness, last_poll_at=polled_at))
    return found


def load_facts(event_ids: Collection[int], *, now: datetime) -> dict[int, EventFacts]:
    """Return the facts for guards, rules and the relay, by the event's row id. Runs nine queries."""
    events = list(ScheduledEvent.objects.filter(pk__any=event_ids).select_related("availability_set"))
    machines = machine_rows({event.availability_set_id for event in events}, now=now)
    standing = Sighting.objects.filter(event_id__any=event_ids, gone_at__isnull=True, foreign=False)
    spelled = {
        (event_id, machine_id): text
        for event_id, machine_id, text in standing.values_list("event_id", "machine_id", "spelled")
    }
    return _facts_of(events, machines, spelled, Preparation.objects.filter(event_id__any=event_ids), now=now)


def facts_standing(events: Collection[ScheduledEvent], standing: Standing, *, now: datetime) -> dict[int, EventFacts]:
    """Return the facts of events, by row id, from loaded data. Events must be loaded with their sets. Runs six
    queries.
    """
    spelled = {
        (event_id, machine_id): listing.spelled
        for event_id, of_event in standing.listings.items()
        for machine_id, listing in of_event.items()
        if listing.gone_at is None and not listing.foreign
    }
    preparations = Preparation.objects.filter(event_id__any=[event.pk for event in events])
    return _facts_of(events, standing.machines, spelled, preparations, now=now)


def facts_of(
    events: Collection[ScheduledEvent],
    machines: Mapping[int, Collection[Machine]],
    sightings: Iterable[Sighting],
    preparations: Iterable[Preparation],
    *,
    now: datetime,
) -> dict[int, EventFacts]:
    """Return the facts of events, by row id, from loaded rows. Runs five queries.

    Events must be loaded with their sets; `machines` are by set (row id).
    """
    rows = {set_id: [row_of(machine, now=now) for machine in of_set] for set_id, of_set in machines.items()}
    spelled = {
        (sighting.event_id, sighting.machine_id): sighting.spelled
        for sighting in sightings
        if sighting.gone_at is None and not sighting.foreign
    }
    return _facts_of(events, rows, spelled, preparations, now=now)


def _facts_of(
    events: Collection[ScheduledEvent],
    machines: Mapping[int, Collection[MachineBasics]],
    spelled: Mapping[tuple[int, int], str],
    preparations: Iterable[Preparation],
    *,
    now: datetime,
) -> dict[int, EventFacts]:
    event_ids = [event.pk for event in events]
    prepared = {(row.event_id, row.machine_id): row for row in preparations}
    decisions, holds, others = _decisions(event_ids), _holds(event_ids), _others(events)
    stop = stop_in_force() if events else None
    windows = list(NoApprovalWindow.objects.filter(deleted_at__isnull=True).order_by("pk")) if events else []
    found = {}
    for event in events:
        home = event.availability_set
        of_set = [machine for machine in machines.get(home.pk, ()) if machine.revoked_at is None]
        found[event.pk] = from_row(
            EventFacts,
            event,
            **(set_facts(home) | kept_facts(event)),
            machines=tuple(
                _machine_facts(m, spelled.get((event.pk, m.machine_id)), prepared.get((event.pk, m.machine_id)))
                for m in of_set
            ),
            decision=decisions.get(event.pk),
            other_open=tuple(other.event_id for other in others[event.pk] if other.set_id == home.pk),
            others=tuple(others[event.pk]),
            hold=holds.get(event.pk),
            stop=stop,
            windows=tuple(
                from_row(WindowFacts, one, window_id=one.pk)
                for one in windows
                if any(is_open(one, place, now=now) for place in _places(event))
            ),
        )
    return found


def _machine_facts(machine: MachineBasics, spelled: str | None, word: Preparation | None) -> MachineFacts:
    """Return the facts of a machine. `spelled` is the EventId as the machine spells it; None if it does not list the
    event.

    `word` is what it reported about hooks, if anything.
    """
    return MachineFacts(
        **vars(machine),
        lists_it=spelled is not None,
        spelled=spelled or "",
        prepared=prepared_of(word),
        failed_hook=word.prepare_failed_hook if word else "",
    )


def _places(event: ScheduledEvent) -> list[Place]:
    """Return the current place of an event, and earlier ones while it was open."""
    return [place_of(event.availability_set), *KeptRequirements.read(event.kept).homes]


def set_facts(row: AvailabilitySet) -> dict[str, Any]:
    """Return the fields of `EventFacts` that come from the event's set."""
    return {
        "set_id": row.pk,
        "set_kind": row.kind,
        "set_name": row.name,
        "set_service": row.service,
        "set_resource_group": row.resource_group,
        **asdict(Requirements.of(row)),
    }


def kept_facts(event: ScheduledEvent) -> dict[str, Any]:
    """Return the fields of `EventFacts` with requirements that the event keeps although its set changed; else empty."""
    if event.kept is None:
        return {}
    kept = KeptRequirements.read(event.kept)
    found = kept.requirements.stricter(Requirements.of(event.availability_set))
    return {**asdict(found), "earlier_homes": kept.homes}


def are_near(one: ScheduledEvent, other: ScheduledEvent) -> bool:
    """Return whether two events are in the same set or the same service."""
    home, mine = other.availability_set, one.availability_set
    return home.pk == mine.pk or (bool(mine.service) and home.service == mine.service)


def name_of(decision: Approval | Hold) -> Reason | str:
    """Return who decided: the username, or a reason that names the rule.

    The query must have used select_related for `rule` and for `decided_by` or `by`.
    """
    person = decision.decided_by if isinstance(decision, Approval) else decision.by
    return decider(person.get_username() if person else None, decision.rule.name if decision.rule else None)


def decider(person: str | None, rule: str | None) -> Reason | str:
    """Return who decided: the username `person`, or a reason that names the rule."""
    return person or Reason("decided-by-rule", rule=rule)


def hold_reason(written: str) -> Reason | str:
    """Return the stated reason of a hold; a standard one if it is empty, as after the withdrawal of a rule's
    decision.
    """
    return written or Reason("hold-after-withdrawal")


def place_of(row: AvailabilitySet) -> Place:
    """Return the place of a set, with which patterns of scopes, rules and windows are compared."""
    return Place(row.kind, row.name, row.service, row.resource_group)


def is_open(window: NoApprovalWindow, place: Place, *, now: datetime) -> bool:
    """Return whether a no-approval window applies to this place now."""
    return lies_in(place, window) and is_open_at(window, now=now)


def is_open_at(window: NoApprovalWindow, *, now: datetime) -> bool:
    """Return whether a no-approval window is open now, for any place."""
    if window.starts_at is not None or window.ends_at is not None:
        begun = window.starts_at is None or window.starts_at <= now
        return begun and (window.ends_at is None or now < window.ends_at)
    return in_hours(window, now)


def _decisions(event_ids: Collection[int]) -> dict[int, DecisionFacts]:
    rows = Approval.objects.filter(event_id__any=event_ids, state__in=LIVE_APPROVALS)
    return {
        row.event_id: DecisionFacts(
            approval_id=row.pk,
            state=row.state,
            by=name_of(row),
            at=row.decided_at,
            by_rule=row.decided_by_id is None and row.consented_by_id is None,
        )
        for row in rows.select_related("decided_by", "rule")
    }


def _holds(event_ids: Collection[int]) -> dict[int, HoldFacts]:
    rows = Hold.objects.filter(event_id__any=event_ids, ended_at__isnull=True).select_related("by", "rule")
    return {row.event_id: HoldFacts(by=name_of(row), at=row.at, reason=hold_reason(row.reason)) for row in rows}


def _others(events: Collection[ScheduledEvent]) -> dict[int, Sequence[OtherEvent]]:
    """Return the other open events of each event's set and service, by the event's row id. Runs one query."""
    earlier = {event.pk: KeptRequirements.read(event.kept).homes for event in events}
    were = [home for homes in earlier.values() for home in homes]
    sets = {event.availability_set_id for event in events} | {home.set_id for home in were}
    services = ({event.availability_set.service for event in events} | {home.service for home in were}) - {""}
    relayed = Approval.objects.filter(event=OuterRef("pk"), state__in=RELAYED_APPROVALS)
    # A later one of an event that was reopened counts.
    approved = Approval.objects.filter(
        event=OuterRef("pk"), state__in=[*map(str, RELAYED_APPROVALS), ApprovalState.CONFIRMED.value]
    ).order_by("-granted_at")
    # Named by their sets, they are found by index; as a condition on the joined rows every open event would be read.
    homes = AvailabilitySet.objects.filter(Q(pk__in=sets) | Q(service__in=services)).order_by().values("pk")
    rows = (
        ScheduledEvent.objects.filter(availability_set__in=homes)
        .filter(status__in=OPEN_EVENTS)
        .annotate(
            relayed=Exists(relayed),
            granted_at=Subquery(approved.values("granted_at")[:1]),
            # Of others they are not needed, and a set may have thousands.
            taken=Case(When(status=STARTED, then="resources")),
        )
        .order_by("pk")
        .values_list(
            "pk", "event_id", "status", "drill", "availability_set_id", "availability_set__name",
            "availability_set__service", "relayed", "taken", "granted_at",
        )
    )  # fmt: skip
    near: dict[tuple[str | int, bool], list[OtherEvent]] = defaultdict(list)
    places: dict[int, int] = {}
    for pk, event_id, status, drill, set_id, name, service, is_relayed, taken, granted_at in rows if events else ():
        others_in_service = near[service or set_id, drill]
        places[pk] = len(others_in_service)
        others_in_service.append(
            OtherEvent(
                event_id,
                set_id,
                name,
                in_flight=is_relayed or status == STARTED,
                taken=tuple(taken or ()),
                granted_at=granted_at,
            )
        )
    found: dict[int, Sequence[OtherEvent]] = {}
    for event in events:
        others_in_service = near[event.availability_set.service or event.availability_set_id, event.drill]
        place = places.get(event.pk)
        found[event.pk] = (
            others_in_service if place is None else [*others_in_service[:place], *others_in_service[place + 1 :]]
        )
        if earlier[event.pk]:
            keys = {key for home in earlier[event.pk] for key in (home.service or home.set_id, home.set_id)}
            also = {other.event_id: other for key in keys for other in near.get((key, event.drill), ())}
            known = {event.event_id, *(other.event_id for other in found[event.pk])}
            found[event.pk] = [*found[event.pk], *(other for name, other in also.items() if name not in known)]
    return found
