"""`/metrics` says what is watched and what is not: sets, caches, clocks, machines without an agent."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain import gauges
from fleet.domain.gauges import Gauge
from fleet.models import InventoryMachine, PresenceRow
from fleet.projections.desk.gauges import measure
from tests.caches.walking import Listeners
from tests.factories import Fleet, the_set

pytestmark = pytest.mark.django_db


def numbers(fleet: Fleet, gauge: Gauge) -> dict[Any, float]:
    """What a gauge says, by its one label, or by nothing."""
    found = next(sample for sample in measure(now=fleet.now) if sample.gauge is gauge)
    return {labels[0] if labels else None: value for labels, value in found.values.items()}


def listed(fleet: Fleet, name: str, **fields: Any) -> InventoryMachine:
    return InventoryMachine.objects.create(resource_id=f"/{name}", name=name, imported_at=fleet.now, **fields)


def test_a_fleet_without_machines_has_no_clock_to_tell_of() -> None:
    fleet = Fleet()
    assert numbers(fleet, gauges.CLOCK_OFFSET) == {}
    assert numbers(fleet, gauges.CLOCKS_OFF) == {None: 0}
    assert numbers(fleet, gauges.SETS) == {"full": 0, "partial": 0, "none": 0}
    assert numbers(fleet, gauges.CACHES) == {"covered": 0, "uncovered": 0, "unsupported": 0}


def test_clocks_are_quantiles_in_either_direction_and_those_too_far_off_are_counted() -> None:
    fleet = Fleet()
    fleet.enrol_set(10)
    fleet.heard()
    for number, row in enumerate(PresenceRow.objects.order_by("pk")):
        PresenceRow.objects.filter(pk=row.pk).update(clock_offset=-60.0 if number == 9 else number / 10)
    assert numbers(fleet, gauges.CLOCK_OFFSET) == {"0.5": 0.4, "0.9": 0.8, "0.99": 60.0, "1": 60.0}
    assert numbers(fleet, gauges.CLOCKS_OFF) == {None: 1}


def test_a_machine_that_is_silent_tells_nothing_of_its_clock() -> None:
    fleet = Fleet()
    fleet.enrol("vm1")
    fleet.heard("vm1")
    PresenceRow.objects.update(clock_offset=60.0)
    fleet.later(3600)
    assert numbers(fleet, gauges.CLOCKS_OFF) == {None: 0}


def test_sets_are_watched_whole_partly_or_not() -> None:
    fleet = Fleet()
    fleet.enrol_set(2, prefix="a", availability_set="whole")
    fleet.enrol_set(2, prefix="b", availability_set="partly")
    fleet.enrol_set(2, prefix="c", availability_set="not")
    fleet.later(3600)
    fleet.all_say(names=["a1", "a2", "b1"])
    assert numbers(fleet, gauges.SETS) == {"full": 1, "partial": 1, "none": 1}
    # A machine that the inventory lists and that has no agent is not watched, however well the others are.
    listed(fleet, "a3", availability_set=the_set("whole"))
    assert numbers(fleet, gauges.SETS) == {"full": 0, "partial": 2, "none": 1}
    assert numbers(fleet, gauges.WITHOUT_AGENT) == {None: 1}


def test_set_without_an_agent_is_not_watched() -> None:
    fleet = Fleet()
    gone = fleet.enrol("db1", availability_set="db").machine
    type(gone).objects.update(revoked_at=fleet.now)
    for name in ("db2", "db3"):
        listed(fleet, name, availability_set=the_set("db"))
    listed(fleet, "db1", availability_set=the_set("db"), machine=gone)
    assert numbers(fleet, gauges.SETS) == {"full": 0, "partial": 0, "none": 1}
    assert numbers(fleet, gauges.WITHOUT_AGENT) == {None: 3}


def test_a_cache_is_listened_to_by_a_live_machine_or_it_is_not() -> None:
    fleet = Listeners()
    fleet.enrol_set(3)
    fleet.all_say()
    for host, name, state in (("a", "vm1", "subscribed"), ("b", "vm2", "subscribed"), ("c", "vm3", "lost")):
        fleet.cover(name, state, host=f"{host}.redis.cache.windows.net")
    fleet.cover("vm3", "unsupported", host="d.redis.azure.net")
    assert numbers(fleet, gauges.CACHES) == {"covered": 2, "uncovered": 1, "unsupported": 1}
    fleet.later(3600)
    fleet.all_say(names=["vm1"])
    assert numbers(fleet, gauges.CACHES) == {"covered": 1, "uncovered": 2, "unsupported": 1}
