"""Lowering of a set's requirements: by a person who has just verified, or by two where the set requires two persons.
Each lowering is notified, and an open event keeps the requirements from its announcement.
"""

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from fleet.domain.actor import DRYDOCK, Actor, ActorKind
from fleet.domain.approvals.guards import Need, guards
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused
from fleet.domain.requirements import LOWERING_WAITS, FormerSet, KeptRequirements, Requirements
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import OPEN_EVENTS, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Machine, ScheduledEvent
from fleet.models.facts.events import load_facts
from fleet.models.people import rights_of
from fleet.operations.control import one_person
from fleet.operations.rights import require_person
from fleet.operations.timeline.entries import tell

OF_DECISIONS = ("second_person", "step_up", "exempt_service_accounts")


def lowered(before: AvailabilitySet, after: AvailabilitySet) -> list[str]:
    """Return the columns of a set that are lower than before. A set that leaves its service leaves the guards that
    count what happens there.
    """
    names = Requirements.of(before).lowered(Requirements.of(after))
    return [*names, "service"] if before.service and after.service != before.service else names


def agreed(
    row: AvailabilitySet, before: AvailabilitySet, wanted: dict[str, Any], *, actor: Actor, now: datetime
) -> bool:
    """Whether these requirements (values by column) may be lowered now. Where the set required two persons `before`,
    they wait on its row, which the caller has locked and saves, until another administrator requests the same.

    Raises Refused: `not-permitted` for a token, and for a person who cannot be the second one; `guarded` for a person
    who has not just verified.
    """
    require_person(actor)
    if actor.kind is ActorKind.COMMAND:
        return True
    if not actor.proved:
        asks = Reason("lowering-wants-step-up")
        guard = {"code": asks.code, "sentence": asks, "needs": Need.STEP_UP.value, "overridable": False}
        raise Refused("guarded", asks, guards=[guard])
    if not before.second_person:
        return True
    first, at = row.lowering_by, row.lowering_at
    waits = row.lowering == wanted and at is not None and now - at < LOWERING_WAITS
    if waits and first is not None and at is not None and rights_of(first).may(Right.ADMINISTER):
        if first.pk == actor.person.pk:
            return False
        if reason := one_person(first, actor.person, at=at):
            raise Refused("not-permitted", reason)
        row.lowering, row.lowering_by, row.lowering_at = None, None, None
        return True
    row.lowering, row.lowering_by, row.lowering_at = wanted, actor.person, now
    return False


def kept_of(was: Requirements, lower: Collection[str]) -> Requirements:
    """Return the requirements that open events keep when some of them (by name) are lowered. The exemption of service
    accounts is kept as it was at the announcement.
    """
    return Requirements(
        second_person=was.second_person and "second_person" in lower,
        step_up=was.step_up and "step_up" in lower,
        exempt_service_accounts=was.exempt_service_accounts and "step_up" in lower,
        min_live=was.min_live if "min_live" in lower else None,
    )


def record_lowering(
    row: AvailabilitySet, did: str, names: Collection[str], *, now: datetime, machine: str = ""
) -> None:
    """Record a lowering, which is notified: `proposed`, `lowered`, or `left` where a machine left the set."""
    data: dict[str, Any] = {"did": did, "set": row.name, "lowered": list(names), "name": machine}
    tell(EntryKind.SET_LOWERED, DRYDOCK, at=now, set_id=row.pk, **data)


def keep(set_id: int, was: Requirements, home: FormerSet, *, event_pks: Collection[int] | None = None) -> None:
    """Let the open events of a set (or these of them) keep requirements until they are over, with where they were."""
    rows = ScheduledEvent.objects.filter(availability_set=set_id, status__in=OPEN_EVENTS)
    if event_pks is not None:
        rows = rows.filter(pk__in=event_pks)
    for event in rows.select_for_update(of=("self",)).order_by("pk"):
        before = KeptRequirements.read(event.kept)
        kept = before.and_also(was, [home] if home.kind != PROVISIONAL else [])
        if kept != before:
            ScheduledEvent.objects.filter(pk=event.pk).update(kept=kept.as_json)


def home_of(row: AvailabilitySet) -> FormerSet:
    """Return the present home of a set's events."""
    return FormerSet(row.pk, row.kind, row.name, row.service, row.resource_group)


def keep_before_move(machine: Machine, home: AvailabilitySet, *, now: datetime) -> None:
    """Before a machine leaves its set for another, let open events of both sets that take two persons, because of the
    machines that are live, keep that requirement. `machine` is its row as it is.
    """
    source = machine.availability_set
    scheduled = ScheduledEvent.objects.filter(
        availability_set__in=[source.pk, home.pk], status=EventStatus.SCHEDULED.value, drill=False
    )
    pks = list(scheduled.order_by("pk").values_list("pk", flat=True))
    if not pks:
        return
    for pk, facts in load_facts(pks, now=now).items():
        if any(guard.needs is Need.SECOND for guard in guards(facts, now=now)):
            where = source if facts.set_id == source.pk else home
            keep(where.pk, Requirements(second_person=True), home_of(where), event_pks=[pk])


def record_leaving(machine: Machine, home: AvailabilitySet, *, now: datetime) -> None:
    """Record that a machine left its set for one that requires less; `machine` is its former row."""
    source = machine.availability_set
    lower = Requirements.of(source).lowered(replace(Requirements.of(home), min_live=source.min_live))
    if lower:
        record_lowering(source, "left", lower, now=now, machine=machine.resource_name)


def raise_to(source: Requirements, target: AvailabilitySet, *, now: datetime) -> None:
    """Let a set require as much as `source`, out of which a person has moved a machine into it."""
    was = Requirements.of(target)
    after = was.stricter(replace(source, min_live=None))
    changed = [name for name in OF_DECISIONS if getattr(was, name) != getattr(after, name)]
    if not changed:
        return
    AvailabilitySet.objects.filter(pk=target.pk).update(**asdict(after))
    for name, value in asdict(after).items():
        setattr(target, name, value)
    before, now_so = ({name: getattr(each, name) for name in changed} for each in (was, after))
    names: dict[str, Any] = {"was": target.name, "name": target.name}
    tell(EntryKind.SET_CHANGED, DRYDOCK, at=now, set_id=target.pk, before=before, after=now_so, **names)
