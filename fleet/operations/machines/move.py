"""The move of a machine into another set by a person, or its return to the stated set."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.requirements import Requirements
from fleet.domain.sets import PROVISIONAL
from fleet.domain.texts import cleaned
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Machine
from fleet.operations.orders import advance
from fleet.operations.rights import require
from fleet.operations.sets import placement, requirements
from fleet.operations.timeline.entries import tell


@transaction.atomic
def move_machine(*, machine_id: int, set_id: int | None, actor: Actor, now: datetime) -> None:
    """Move a machine into this set and confine it there: other statements do not count. Without a set its confinement
    is lifted: the statements count again.

    The open events of both sets are recomputed. Raises Refused `not-permitted`, `validation`, `not-found` or
    `unknown-machine`.
    """
    require(actor, Right.ADMINISTER)
    actor = actor.because(cleaned(actor.why))
    rows = Machine.objects.select_for_update(of=("self",)).select_related("availability_set__merged_into")
    machine = require_found(rows.filter(pk=machine_id).first(), "unknown-machine", Reason("machine-unknown"))
    source = machine.availability_set
    before, required = _shown(machine, source), Requirements.of(source)
    target = _target(set_id) if set_id is not None else None
    machine.confined_to = asdict(placement.key_of(target)) if target is not None else None
    Machine.objects.filter(pk=machine_id).update(confined_to=machine.confined_to)
    claim = placement.claim_of(machine)
    # A provisional set in which no other machine is becomes the target set, with its history.
    placed = placement.place(claim, now=now, actor=actor if target is not None else DRYDOCK)
    if placed.home.pk != source.pk:
        requirements.raise_to(required, placed.home, now=now)
    placement.settle(claim, placed, now=now)
    after = _shown(machine, placed.home)
    if after == before:
        return
    tell(
        EntryKind.MACHINE_MOVED,
        actor,
        at=now,
        machine_id=machine_id,
        set_id=placed.home.pk,
        before=before,
        after=after,
        name=machine.resource_name,
        set=placed.home.name,
        because="person" if target is not None else "lifted",
    )
    advance.recompute_open(source.pk, placed.home.pk, now=now, via=actor.via)


def _shown(machine: Machine, home: AvailabilitySet) -> dict[str, Any]:
    return {"set": home.name, "confined": machine.confined_to is not None}


def _target(set_id: int) -> AvailabilitySet:
    found = AvailabilitySet.objects.select_related("merged_into").filter(pk=set_id).first()
    target = placement.final(require_found(found, "not-found", Reason("set-unknown")))
    if target.kind == PROVISIONAL:
        raise Refused("validation", Reason("move-into-provisional"))
    return target
