"""`/metrics`: the fleet counted from the database, never waited for, and every name documented."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fleet.domain import gauges
from fleet.domain.gauges import GAUGES, Gauge, Sample
from fleet.gateway.metrics import Collected, Figures
from fleet.management.documentation import metrics
from fleet.models import Entry, InventoryMachine, PresenceRow, Wave
from fleet.projections.desk import gauges as fleet_gauges
from tests.caches.walking import Listeners
from tests.factories import Fleet, announced, open_order, operator, seconds, the_set
from tests.loops import in_a_loop

DOCS = Path(__file__).parents[2] / "docs" / "admin" / "monitoring.md"


def numbers(fleet: Fleet) -> dict[str, float]:
    """Every number as Prometheus reads it, by its name with labels."""
    registry = CollectorRegistry()
    registry.register(Collected(fleet_gauges.measure(now=fleet.now)))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


@pytest.mark.django_db
def test_an_idle_fleet_and_one_with_an_approval_that_hangs() -> None:
    fleet = Fleet()
    idle = numbers(fleet)
    assert "drydock_next_not_before_seconds" not in idle
    assert (idle["drydock_up"], idle["drydock_events_waiting"], idle["drydock_open_orders"]) == (1, 0, 0)

    announced(fleet, not_before=fleet.now + seconds(901))
    fleet.advance()
    waiting = numbers(fleet)
    assert waiting['drydock_events{status="SCHEDULED"}'] == 1
    assert (waiting["drydock_events_waiting"], waiting["drydock_next_not_before_seconds"]) == (1, 900)
    assert waiting['drydock_machines{presence="live"}'] == 6
    assert waiting["drydock_sweep_age_seconds"] == 0

    approval = fleet.approve()
    fleet.advance()
    fleet.later(2)
    fleet.advance()
    on_its_way = numbers(fleet)
    assert on_its_way["drydock_events_waiting"] == 0
    assert on_its_way['drydock_approvals{state="RELAYING"}'] == 1
    assert (on_its_way["drydock_open_orders"], on_its_way["drydock_oldest_open_order_seconds"]) == (1, 2)
    assert on_its_way["drydock_approvals_overdue"] == 0
    fleet.later(10)
    hangs = numbers(fleet)
    assert hangs["drydock_approvals_overdue"] == 1
    assert (hangs['drydock_steps_overdue{step="sent"}'], hangs['drydock_steps_overdue{step="answered"}']) == (1, 0)
    fleet.delivered(open_order(approval))
    fleet.later(11)
    assert numbers(fleet)['drydock_steps_overdue{step="answered"}'] == 1


@pytest.mark.django_db
def test_what_is_not_sealed_and_waves() -> None:
    fleet = Fleet()
    announced(fleet)
    Wave.objects.create(state="STOPPED", created_by=operator(), via="page", created_at=fleet.now, closed_at=fleet.now)
    recorded = Entry.objects.order_by("xid", "id")[0].recorded_at
    found = {sample.gauge.name: sample.values for sample in fleet_gauges.measure(now=recorded + timedelta(seconds=40))}
    assert found["drydock_unsealed_seconds"] == {(): 40.0}
    fleet.later(60)
    assert numbers(fleet)["drydock_waves_stopped"] == 1
    fleet.later(3600)
    assert numbers(fleet)["drydock_waves_stopped"] == 0


@in_a_loop
async def asked(measure: Callable[[], Sequence[Sample]], times: int = 1) -> list[tuple[Sequence[Sample] | None, float]]:
    """What so many scrapes get one after the other, each with the seconds that it took."""
    figures = Figures(measure, asyncio.get_running_loop())
    figures.loop.start()
    found = []
    for _ in range(times):
        began = time.monotonic()
        found.append((await figures.current(), time.monotonic() - began))
    figures.loop.stop()
    return found


def test_numbers_are_counted_once_for_scrapes_close_together() -> None:
    calls: list[int] = []

    def measure() -> Sequence[Sample]:
        calls.append(1)
        return [Sample(GAUGES[1], {("SCHEDULED",): 1.0})]

    first, second = asked(measure, times=2)
    assert first[0] == second[0] and first[0] is not None
    assert len(calls) == 1


def test_unavailable_or_hanging_database_delays_no_scrape() -> None:
    def away() -> Sequence[Sample]:
        raise OSError("away")

    released = threading.Event()

    def hangs() -> Sequence[Sample]:
        released.wait(30)
        return []

    try:
        for measure in (away, hangs):
            for found, took in asked(measure, times=2):
                assert found is None
                assert took < 10
    finally:
        released.set()
    registry = CollectorRegistry()
    registry.register(Collected(None))
    assert "\ndrydock_up 0.0\n" in generate_latest(registry).decode()


def test_every_metric_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert metrics() in page
    assert len({gauge.name for gauge in GAUGES}) == len(GAUGES)
    known = set(re.findall(r"`(drydock_\w+)`", metrics()))
    assert set(re.findall(r"drydock_[a-z_]+", page)) <= known


def values_of(fleet: Fleet, gauge: Gauge) -> dict[Any, float]:
    """What a gauge says, by its one label, or by nothing."""
    found = next(sample for sample in fleet_gauges.measure(now=fleet.now) if sample.gauge is gauge)
    return {labels[0] if labels else None: value for labels, value in found.values.items()}


def listed(fleet: Fleet, name: str, **fields: Any) -> InventoryMachine:
    return InventoryMachine.objects.create(resource_id=f"/{name}", name=name, imported_at=fleet.now, **fields)


@pytest.mark.django_db
def test_clocks_are_quantiles_in_either_direction_and_those_too_far_off_are_counted() -> None:
    fleet = Fleet()
    assert values_of(fleet, gauges.CLOCK_OFFSET) == {}
    assert values_of(fleet, gauges.CLOCKS_OFF) == {None: 0}
    fleet.enrol_set(10)
    fleet.heard()
    for number, row in enumerate(PresenceRow.objects.order_by("pk")):
        PresenceRow.objects.filter(pk=row.pk).update(clock_offset=-60.0 if number == 9 else number / 10)
    assert values_of(fleet, gauges.CLOCK_OFFSET) == {"0.5": 0.4, "0.9": 0.8, "0.99": 60.0, "1": 60.0}
    assert values_of(fleet, gauges.CLOCKS_OFF) == {None: 1}
    # A machine that is silent tells nothing of its clock.
    fleet.later(3600)
    assert values_of(fleet, gauges.CLOCKS_OFF) == {None: 0}


@pytest.mark.django_db
def test_sets_are_watched_whole_partly_or_not() -> None:
    fleet = Fleet()
    assert values_of(fleet, gauges.SETS) == {"full": 0, "partial": 0, "none": 0}
    fleet.enrol_set(2, prefix="a", availability_set="whole")
    fleet.enrol_set(2, prefix="b", availability_set="partly")
    fleet.enrol_set(2, prefix="c", availability_set="not")
    fleet.later(3600)
    fleet.all_say(names=["a1", "a2", "b1"])
    assert values_of(fleet, gauges.SETS) == {"full": 1, "partial": 1, "none": 1}
    # A machine that the inventory lists and that has no agent is not watched, however well the others are.
    listed(fleet, "a3", availability_set=the_set("whole"))
    assert values_of(fleet, gauges.SETS) == {"full": 0, "partial": 2, "none": 1}
    assert values_of(fleet, gauges.WITHOUT_AGENT) == {None: 1}
    # Nor is a set without an agent.
    gone = fleet.enrol("db1", availability_set="db").machine
    type(gone).objects.filter(pk=gone.pk).update(revoked_at=fleet.now)
    for name, machine in (("db1", gone), ("db2", None), ("db3", None)):
        listed(fleet, name, availability_set=the_set("db"), machine=machine)
    assert values_of(fleet, gauges.SETS) == {"full": 0, "partial": 2, "none": 2}
    assert values_of(fleet, gauges.WITHOUT_AGENT) == {None: 4}


@pytest.mark.django_db
def test_a_cache_is_listened_to_by_a_live_machine_or_it_is_not() -> None:
    fleet = Listeners()
    assert values_of(fleet, gauges.CACHES) == {"covered": 0, "uncovered": 0, "unsupported": 0}
    fleet.enrol_set(3)
    fleet.all_say()
    for host, name, state in (("a", "vm1", "subscribed"), ("b", "vm2", "subscribed"), ("c", "vm3", "lost")):
        fleet.cover(name, state, host=f"{host}.redis.cache.windows.net")
    fleet.cover("vm3", "unsupported", host="d.redis.azure.net")
    assert values_of(fleet, gauges.CACHES) == {"covered": 2, "uncovered": 1, "unsupported": 1}
    fleet.later(3600)
    fleet.all_say(names=["vm1"])
    assert values_of(fleet, gauges.CACHES) == {"covered": 1, "uncovered": 2, "unsupported": 1}
