"""Lowering of a set's requirements, by a person who has just verified, or by two persons if the set requires two.

Each lowering sends a notification. Open events retain the requirements that applied when they were announced.
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
    """Return the names of requirements that are lower than before.

    `service` is included if the set leaves its service, because guards then no longer count events there.
    """
    names = Requirements.of(before).lowered(Requirements.of(after))
    return [*names, "service"] if before.service and after.service != before.service else names


def agreed(
    row: AvailabilitySet, before: AvailabilitySet, wanted: dict[str, Any], *, actor: Actor, now: datetime
) -> bool:
    """Return whether these requirements (values by column) may be lowered now.

    If the set required two persons, the request is stored on the locked `row`, which the caller saves, until another
    administrator requests the same. Raises Refused: `not-permitted` for a token, or a person who cannot be the second
    one; `guarded` for a person who has not just verified their identity.
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
    """Return the requirements that open events retain when those in `lower` (names) are lowered.

    Whether service accounts are exempt is retained, too.
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
    """Record a lowering, which sends a notification. `did` is `proposed`, `lowered`, or `left` if a machine left the
    set.
    """
    data: dict[str, Any] = {"did": did, "set": row.name, "lowered": list(names), "name": machine}
    tell(EntryKind.SET_LOWERED, DRYDOCK, at=now, set_id=row.pk, **data)


def keep(set_id: int, was: Requirements, home: FormerSet, *, event_pks: Collection[int] | None = None) -> None:
    """Let the open events of a set, or those in `event_pks`, retain these requirements until they end, and their former
    set.
    """
    rows = ScheduledEvent.objects.filter(availability_set=set_id, status__in=OPEN_EVENTS)
    if event_pks is not None:
        rows = rows.filter(pk__in=event_pks)
    for event in rows.select_for_update(of=("self",)).order_by("pk"):
        before = KeptRequirements.read(event.kept)
        kept = before.and_also(was, [home] if home.kind != PROVISIONAL else [])
        if kept != before:
            ScheduledEvent.objects.filter(pk=event.pk).update(kept=kept.as_json)


def home_of(row: AvailabilitySet) -> FormerSet:
    """Return the set with its current values, for events that retain it as a former set."""
    return FormerSet(row.kind, row.name, row.service, row.resource_group, set_id=row.pk)


def keep_before_move(machine: Machine, home: AvailabilitySet, *, now: datetime) -> None:
    """Before a machine moves, let open events of both sets that need a second person now retain this requirement.

    The number of live machines in the sets changes with the move, and so could the guard. `machine` is its current row.
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
    """Record that a machine left its set for one with lower requirements. `machine` is its row before the move."""
    source = machine.availability_set
    lower = Requirements.of(source).lowered(replace(Requirements.of(home), min_live=source.min_live))
    if lower:
        record_lowering(source, "left", lower, now=now, machine=machine.resource_name)


def raise_to(source: Requirements, target: AvailabilitySet, *, now: datetime) -> None:
    """Raise the requirements of a set to those of `source`, from which a user has moved a machine into it."""
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
