"""Read model of the detail page of one scheduled event."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.db.models import Q

from fleet.domain.approvals.conditions import unprepared_names
from fleet.domain.approvals.guards import EventFacts, Guard, start_candidates
from fleet.domain.events import advice
from fleet.domain.intake import Prepared
from fleet.domain.people import Place
from fleet.domain.reasons import Reason
from fleet.domain.shapes import InApi, from_row
from fleet.domain.states import Presence
from fleet.models import Drill, Machine, Preparation, ScheduledEvent, Sighting
from fleet.models.facts.events import machine_presence
from fleet.projections import orders
from fleet.projections.approvals import ApprovalRow, by_event, told_by
from fleet.projections.cards import DecisionCard, decision_cards
from fleet.projections.changes import with_changes
from fleet.projections.events import rows
from fleet.projections.events.rows import BlastRadius, EventRow, attention_of, event_row
from fleet.projections.machines import preparation
from fleet.projections.orders import ByHandRow
from fleet.projections.refs import MachineRef, count_presence, facts_ref, machine_ref, plain_name, runbook_of
from fleet.projections.visibility import facts_of, visible

# At most this many other open events of the set are named with an event.
MOST_OTHERS = 100


@dataclass(frozen=True, slots=True)
class SightingRow:
    """One machine's newest report of the event. `says` is `Scheduled`, `Started`, another status from Azure, or a
    reason.
    """

    machine: MachineRef
    presence: Annotated[Presence, "How present its agent is."]
    foreign: Annotated[bool, "From a machine of another set: kept, without a vote."]
    says: Annotated[Reason | str, "`Scheduled`, `Started`, `no longer listed`, or Azure's own other word."]
    first_at: datetime
    delay_seconds: Annotated[float, "After the first machine of all that saw it."]
    started_at: datetime | None
    listed_at: datetime
    gone_at: datetime | None
    incarnation: int | None
    differs: Annotated[tuple[Reason, ...], "In what this machine's listing differs from the event as computed."]


@dataclass(frozen=True, slots=True, kw_only=True)
class HitMachine:
    """A machine name in the event's Resources, with the machine if it is known."""

    name: Annotated[str, "As Azure states it in `Resources`."]
    machine: MachineRef | None
    node_name: Annotated[str, "The Kubernetes node that the machine is; may be empty."] = ""
    presence: Presence | None
    fault_domain: int | None = None
    update_domain: int | None = None
    zone: str = ""
    prepared: Prepared
    prepare_planned_at: Annotated[datetime | None, "When its hooks will begin; null unless `prepared` is `planned`."]
    # The first hook of the newest phase that did not succeed.
    failed_hook: Annotated[str, "The hook that did not succeed; may be empty."]


@dataclass(frozen=True, slots=True)
class EventDetail:
    """One event with all data of its page. `not_seen_by` are machines of the set that have not reported the event and
    are not gone; `asked` lists the machines in the order in which they would get the order.
    """

    event: Annotated[EventRow, InApi.FLATTENED]
    sightings: tuple[SightingRow, ...]
    approvals: Annotated[tuple[ApprovalRow, ...], "Newest first."]
    guards: Annotated[tuple[Guard, ...], "Guards that block an approval now, or warn about it."]
    hit: tuple[HitMachine, ...]
    blast: BlastRadius
    asked: Annotated[tuple[MachineRef, ...], "Who will be asked to start it, in this order."]
    seen_by: tuple[MachineRef, ...]
    not_seen_by: tuple[MachineRef, ...]
    other_open: Annotated[tuple[str, ...], "Other open events of the set, at most 100."]
    other_open_count: Annotated[int, "How many there are; `GET events/?set=` has all of them."]
    # The place of the event, for checking rights.
    place: Annotated[Place, InApi.OMITTED]
    not_ready: Annotated[tuple[str, ...], "Names in `resources` that are not prepared: `prepared` waits for them."]
    by_hand: Annotated[
        ByHandRow | None, "What can be done where no agent passes an approval on; null while agents do it."
    ]
    advice: Annotated[Reason | str, "What Microsoft advises for such an event; may be empty."]
    runbook: Annotated[str, "Link to the runbook of the set, or else of its service; may be empty."]
    card: Annotated[DecisionCard, InApi.OMITTED]
    # The drill that the event belongs to; None for real events.
    drill_id: Annotated[int | None, InApi.OMITTED]
    server_time: datetime

    @property
    def recommendation(
        self,
    ) -> Annotated[
        Reason | None,
        "What is recommended here, and why; null where there is nothing left to decide. Nothing acts on it.",
    ]:
        """Return the recommendation and its reason; None when nothing is left to decide."""
        return self.card.advised

    @property
    def only_one_can_ask(self) -> bool:
        """Return whether only one machine lists the event although the set has other agents. This happens in a scale
        set with one fault domain.
        """
        return len(self.asked) == 1 and len(self.seen_by) + len(self.not_seen_by) > 1

    @property
    def decide_by(self) -> Annotated[datetime | None, "Decided later than that, Azure may be asked too late."]:
        """Return the latest time for a decision so that Azure receives the approval before NotBefore."""
        return self.card.decide_by

    @property
    def seen_summary(self) -> Reason:
        """Return which machines have reported the event, as text such as `seen by 5 of 6, not by vm6`."""
        missing = [machine.resource_name for machine in self.not_seen_by]
        return Reason("seen-by", seen=len(self.seen_by), total=len(self.seen_by) + len(missing), not_seen_by=missing)


def _sighting_row(sighting: Sighting, event: ScheduledEvent, *, now: datetime) -> SightingRow:
    differs = []
    if sighting.gone_at is None:
        if sighting.event_type and sighting.event_type != event.event_type:
            differs.append(Reason("differs-in-type", event_type=sighting.event_type))
        if sighting.not_before and event.not_before and sighting.not_before != event.not_before:
            differs.append(Reason("differs-in-time", not_before=sighting.not_before))
        if sighting.resources and sighting.resources != event.resources:
            differs.append(Reason("differs-in-resources", resources=sighting.resources))
    return from_row(
        SightingRow,
        sighting,
        machine=machine_ref(sighting.machine),
        presence=machine_presence(sighting.machine, now=now),
        says=Reason("sighting-gone") if sighting.gone_at else sighting.status or Reason("sighting-listed"),
        delay_seconds=max(0.0, (sighting.first_at - event.first_seen_at).total_seconds()),
        incarnation=sighting.gone_incarnation if sighting.gone_at else sighting.listed_incarnation,
        differs=tuple(differs),
    )


def _hit(
    event: ScheduledEvent, name: str, machines: Sequence[Machine], hooks: Mapping[int, Preparation], now: datetime
) -> HitMachine:
    known = [machine for machine in machines if plain_name(machine.resource_name) == plain_name(name)]
    # Of several machines with one name, use the one with the best presence.
    order = list(Presence)
    machine = min(known, key=lambda machine: order.index(machine_presence(machine, now=now)), default=None)
    row = hooks.get(machine.pk) if machine else None
    prepared, planned_at = preparation(event, row)
    return from_row(
        HitMachine,
        machine,
        name=name,
        machine=machine_ref(machine) if machine else None,
        presence=machine_presence(machine, now=now) if machine else None,
        prepared=prepared,
        prepare_planned_at=planned_at,
        failed_hook=(row.recover_failed_hook or row.prepare_failed_hook) if row else "",
    )


def _machines_of(event: ScheduledEvent, sightings: Sequence[Sighting]) -> list[Machine]:
    """Return the machines of the event's set by name; decommissioned ones only if the event concerns them."""
    listed, named = Q(pk__in=[one.machine_id for one in sightings]), Q(resource_name__named=list(event.resources))
    rows = visible(Machine, every=True).filter(availability_set_id=event.availability_set_id)
    rows = rows.filter(Q(decommissioned_at=None) | listed | named).select_related("presence", "latest_document")
    return list(rows.defer("compute").order_by("resource_name", "pk"))


def event_detail(*, event_id: str, now: datetime) -> EventDetail | None:
    """Return one event by EventId in any case; None if it does not exist. A fixed number of queries."""
    events = with_changes(visible(ScheduledEvent)).select_related("availability_set")
    event = events.filter(event_id=event_id.upper()).first()
    if event is None:
        return None
    approval_rows = by_event([event], now=now).get(event.pk, ())
    seen = visible(Sighting).filter(event=event).select_related("machine__presence", "machine__latest_document")
    sightings = list(seen.defer("machine__compute").order_by("first_at", "pk"))
    machines = _machines_of(event, sightings)
    preparing = list(visible(Preparation).filter(event=event))
    of_set = {event.availability_set_id: machines}
    facts: EventFacts = facts_of([event], of_set, sightings, preparing, now=now)[event.pk]
    followed = (orders.followed(row, facts, now=now) if row.live else row for row in approval_rows)
    approval_rows = tuple(told_by(row, facts, now=now) for row in followed)
    presences = {machine.pk: machine_presence(machine, now=now) for machine in machines}
    there = [machine for machine in machines if presences[machine.pk] is not Presence.GONE]
    witnesses = {sighting.machine_id for sighting in sightings if not sighting.foreign}
    preparations = {row.machine_id: row for row in preparing}
    row = event_row(event, approval_rows, now=now, **attention_of([event.pk])[event.pk])
    blast = rows.blast_radius(
        event.availability_set,
        event.resources,
        count_presence(list(presences.values())),
        Counter(plain_name(each.resource_name) for each in machines if presences[each.pk] is Presence.LIVE),
        rows.taken_by_others([event])[event.pk],
    )
    card = decision_cards([row], {event.pk: blast}, {event.pk: facts}, now=now)[event.pk]
    return EventDetail(
        event=row,
        sightings=tuple(_sighting_row(sighting, event, now=now) for sighting in sightings),
        approvals=approval_rows,
        guards=card.guards,
        hit=tuple(_hit(event, name, machines, preparations, now) for name in event.resources),
        blast=blast,
        card=card,
        asked=tuple(facts_ref(machine) for machine in start_candidates(facts)),
        seen_by=tuple(machine_ref(machine) for machine in machines if machine.pk in witnesses),
        not_seen_by=tuple(machine_ref(machine) for machine in there if machine.pk not in witnesses),
        other_open=facts.other_open[:MOST_OTHERS],
        other_open_count=len(facts.other_open),
        place=facts.place,
        not_ready=tuple(unprepared_names(facts)),
        by_hand=orders.by_hand(facts, rows.current(approval_rows), machines, now=now),
        advice=advice(row, now=now),
        runbook=runbook_of(event.availability_set.service, event.availability_set),
        drill_id=visible(Drill).filter(event=event).values_list("pk", flat=True).first() if event.drill else None,
        server_time=now,
    )
