"""Stored set summaries, which spare pages a scan of the fleet: they equal a fresh computation. This holds after any
events, in any order, and under concurrent writes.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.orders.series import SignatureCheck
from fleet.models import AvailabilitySet, InventoryMachine, LastRun, Machine, SetBlindSpot, SetCount, StaleSet
from fleet.models.facts.blind_spots import load_findings
from fleet.operations.intake import presence
from fleet.operations.machines import decommission
from fleet.operations.sets import changes
from fleet.operations.sets import coverage as keeping
from fleet.projections import blind_spots
from fleet.projections.counts import counts_of_sets
from tests import factories
from tests.factories import Fleet, acting, admin
from tests.holding import session

pytestmark = pytest.mark.django_db


def looked_at(fleet: Fleet) -> tuple[Any, Any]:
    """What looking at every set finds: numbers and blind spots."""
    found = load_findings(list(AvailabilitySet.objects.values_list("pk", flat=True)), now=fleet.now)
    numbers = {
        each.facts.set_id: ({state.value: count for state, count in each.counts.items()}, len(each.facts.missing))
        for each in found
        if each.counts or each.facts.missing
    }
    spots = {(each.facts.set_id, spot.code, spot.part, spot.machine_ids) for each in found for spot in each.spots}
    return numbers, spots


def kept() -> tuple[Any, Any]:
    """What the tables hold."""
    states = ("live", "late", "silent", "gone", "expected")
    numbers = {
        row.pk: ({state: getattr(row, state) for state in states if getattr(row, state)}, row.without_agent)
        for row in SetCount.objects.all()
    }
    spots = {
        (row.availability_set_id, row.code, row.part, tuple(row.machine_ids)) for row in SetBlindSpot.objects.all()
    }
    return {pk: of_set for pk, of_set in numbers.items() if of_set != ({}, 0)}, spots


def read(fleet: Fleet) -> tuple[Any, Any]:
    """What pages tell, however much of it is kept."""
    numbers = {
        set_id: ({state.value: count for state, count in of_set.presence.parts()}, of_set.without_agent)
        for set_id, of_set in counts_of_sets({}, now=fleet.now).items()
    }
    rows = blind_spots.page(now=fleet.now, size=500).results
    spots = {(row.set.id, row.code, row.part, tuple(one.id for one in row.machines)) for row in rows if row.set}
    return {pk: of_set for pk, of_set in numbers.items() if of_set != ({}, 0)}, spots


def reconciled(fleet: Fleet, chance: random.Random) -> None:
    """Note changed presence as a reconciliation tick does, or leave the last tick long ago."""
    LastRun.objects.filter(name=LastRun.RECONCILE).delete()
    if chance.random() < 0.7:
        presence.turned(now=fleet.now)
        LastRun.objects.create(name=LastRun.RECONCILE, ran_at=fleet.now, via="beat")


def enrol(fleet: Fleet, chance: random.Random) -> None:
    name = f"vm{chance.randrange(12)}"
    fleet.enrol(name, availability_set=chance.choice(("web", "db", "")), heard=chance.random() < 0.8)


def some_machine(chance: random.Random) -> Machine | None:
    rows = list(Machine.objects.order_by("pk"))
    return chance.choice(rows) if rows else None


def revoke(fleet: Fleet, chance: random.Random) -> None:
    if (machine := some_machine(chance)) is not None and machine.revoked_at is None:
        decommission.revoke(machine_id=machine.pk, actor=acting(admin()), now=fleet.now)


def be_heard(fleet: Fleet, chance: random.Random) -> None:
    if (machine := some_machine(chance)) is not None:
        signed = chance.choice([check.value for check in SignatureCheck])
        off = chance.choice((0.0, 9.0))
        presence.flush(contacts=[presence.Contact(machine.pk, fleet.now, fleet.now, off, signed)])
        keeping.note_clocks()


def pass_time(fleet: Fleet, chance: random.Random) -> None:
    fleet.later(chance.choice((30, 300, 4_000, 80_000)))


def list_in_inventory(fleet: Fleet, chance: random.Random) -> None:
    home = chance.choice([None, *AvailabilitySet.objects.filter(merged_into=None)])
    machine = chance.choice([None, *Machine.objects.filter(inventory=None)])
    name = f"listed{InventoryMachine.objects.count()}"
    InventoryMachine.objects.create(
        resource_id=name, name=name, availability_set=home, machine=machine, imported_at=fleet.now
    )


def merge(fleet: Fleet, chance: random.Random) -> None:
    sets = list(AvailabilitySet.objects.filter(merged_into=None).order_by("pk"))
    if len(sets) > 2 and (own := chance.choice(sets)).kind == "provisional":
        into = chance.choice([row for row in sets if row != own])
        changes.merge_sets(set_id=own.pk, into=into.pk, actor=acting(admin()), now=fleet.now)


def change_a_set(fleet: Fleet, chance: random.Random) -> None:
    for row in AvailabilitySet.objects.order_by("pk")[:1]:
        AvailabilitySet.objects.filter(pk=row.pk).update(
            kind=chance.choice(("scale_set", "availability_set")),
            upgrade_notices=chance.choice((None, True, False)),
            admits_until=chance.choice((None, fleet.now + timedelta(minutes=3))),
        )


def announce(fleet: Fleet, chance: random.Random) -> None:
    if len(fleet.agents) > 1:
        first, second = chance.sample(sorted(fleet.agents), 2)
        one = factories.listing(resources=(first,), not_before=fleet.now + timedelta(hours=1))
        fleet.say(first, one)
        fleet.say(second, *chance.choice(((one,), ())))


STEPS: tuple[Callable[[Fleet, random.Random], None], ...] = (
    enrol, enrol, enrol, revoke, be_heard, be_heard, pass_time, list_in_inventory, merge, change_a_set, announce,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_pages_and_stored_rows_equal_a_fresh_computation(seed: int) -> None:
    fleet, chance = Fleet(), random.Random(seed)
    for _ in range(18):
        fleet.later(1)
        chance.choice(STEPS)(fleet, chance)
        reconciled(fleet, chance)
        assert read(fleet) == looked_at(fleet)
        if chance.random() < 0.4:
            keeping.renew(now=fleet.now)
            assert read(fleet) == looked_at(fleet)
    keeping.renew_all(now=fleet.now)
    assert not StaleSet.objects.exists()
    assert kept() == looked_at(fleet)
    # Nothing that differs was left to be found by the way.
    assert keeping.look_again(now=fleet.now) == []


def test_wrong_stored_rows_are_corrected_and_reported(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    keeping.renew_all(now=fleet.now)
    home = AvailabilitySet.objects.get()
    SetCount.objects.update(live=1)
    SetBlindSpot.objects.create(
        availability_set=home, rank=3, code="unnamed-set", set_name="web", certainty="possible", count=1
    )
    assert keeping.look_again(now=fleet.now) == [home.pk]
    assert kept() == looked_at(fleet)
    assert keeping.look_again(now=fleet.now) == []


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_committed_while_a_set_is_looked_at_is_not_lost(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    keeping.renew_all(now=fleet.now)
    machine = Machine.objects.order_by("pk")[0]
    # Not yet committed while the set is looked at: its row is added and not seen.
    with session() as other:
        other.execute("UPDATE fleet_machine SET agent_version = '0.0.1' WHERE id = %s", [machine.pk])
        Machine.objects.filter(pk=fleet.agents["vm2"].machine.pk).update(zone="2")
        assert keeping.renew(now=fleet.now) == 1
        assert not StaleSet.objects.exists()
        other.commit()
    assert StaleSet.objects.count() == 1
    assert [spot.code for spot in blind_spots.overview(now=fleet.now).spots] == ["agent-too-old"]
    keeping.renew(now=fleet.now)
    assert SetBlindSpot.objects.get().code == "agent-too-old"
