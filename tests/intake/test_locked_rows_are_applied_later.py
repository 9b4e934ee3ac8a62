"""Locked rows at intake: reports about a locked row are stored and applied later, and all others are applied now."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from uuid import uuid4

import pytest
from django.conf import settings
from drydock_agent import wire

from fleet.domain import db_timeouts
from fleet.domain.db_timeouts import ROLES
from fleet.models import Entry, Observation, QuarantinedRow, ScheduledEvent, Sighting, WaitingReport
from fleet.models.approvals import Approval, Order
from fleet.models.caches import Cache, Notification
from fleet.models.driver import query
from fleet.models.machines import AvailabilitySet, Machine
from fleet.operations import reconcile
from fleet.operations.orders import queue
from fleet.projections import blind_spots
from tests.caches.walking import line
from tests.factories import EVENT, Agent, Fleet, after, listing, open_order, seconds, the_event
from tests.holding import as_patient_as, held, session
from tests.policy.conftest import made
from tests.searches import searched
from tests.words import sentence

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "07E40000-0000-4000-8000-000000000001"
NEW = "2E000000-0000-4000-8000-000000000002"
# Without an end where it waits; a tenth of this on a quiet machine.
QUICKLY = 4.0


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer waits for a lock as it does, but less long: each of these tests waits several times."""
    monkeypatch.setitem(db_timeouts.ROLES, "writer", replace(ROLES["writer"], lock=0.1))


@pytest.fixture
def fleet(short_waits: None) -> Iterator[Fleet]:
    """Two sets of two machines, each with an event that all its machines list; and this thread is the writer."""
    fleet = Fleet()
    fleet.enrol_set(2)
    fleet.enrol_set(2, prefix="db", availability_set="db")
    fleet.later(1)
    fleet.all_say(listing(), names=["vm1", "vm2"])
    fleet.all_say(listing(OTHER, resources=["db1"]), names=["db1", "db2"])
    with as_patient_as("writer"):
        yield fleet


def quickly(call: Callable[[], object]) -> None:
    began = time.monotonic()
    call()
    assert time.monotonic() - began < QUICKLY


def hook(agent: Agent, fleet: Fleet, step: str = "begin") -> wire.Report:
    data = wire.HookData(
        event_id=EVENT, phase="prepare", step=step, outcome="running" if step == "begin" else "succeeded"
    )
    return agent.report(data, at=fleet.now)


def ordered(fleet: Fleet, event_id: str = EVENT) -> Order:
    approval = fleet.approve(event_id)
    fleet.advance()
    return open_order(approval)


def kinds(event_id: str = EVENT) -> list[str]:
    return list(Entry.objects.filter(event__event_id=event_id).order_by("pk").values_list("kind", flat=True))


def test_the_others_are_committed_at_once_and_the_event_has_all_that_was_said_afterwards(fleet: Fleet) -> None:
    order = ordered(fleet)
    vm1, vm2, db1 = (fleet.agents[name] for name in ("vm1", "vm2", "db1"))
    fleet.later(5)
    with held(the_event()):
        told = [
            vm1.delivery(vm1.document(listing(status="Started"), listing(NEW), at=fleet.now), hook(vm1, fleet)),
            vm2.delivery(hook(vm2, fleet), hook(vm2, fleet, "end")),
            db1.delivery(db1.document(at=fleet.now)),
        ]
        said = {}
        quickly(lambda: said.update(fleet.record(*told)))
        acknowledged = {key: one.acknowledged for key, one in said.items()}
        assert acknowledged == {one.key: max(one.numbers) for one in told}
        quickly(lambda: said.update(fleet.record(fleet.answer(order))))
        assert the_event().status == "SCHEDULED"
        assert the_event(NEW).version == 1
        assert Sighting.objects.get(event__event_id=OTHER, machine=db1.machine).gone_at == fleet.now
        assert set(WaitingReport.objects.values_list("about", flat=True)) == {EVENT}
        quickly(fleet.advance)
        assert Observation.objects.filter(kind="receipt").count() == 1
    fleet.tick(2)
    event = the_event()
    assert (event.status, event.started_at) == ("STARTED", fleet.now - seconds(2))
    assert not WaitingReport.objects.exists()
    assert (after(order).state, order.azure_status) == ("ANSWERED", 200)
    assert Approval.objects.get().state == "CONFIRMED"
    assert kinds().count("hooks_began") == 2
    assert kinds().count("hooks_ended") == 1
    assert not QuarantinedRow.objects.exists()


def test_what_comes_next_about_it_takes_what_waits_before_itself(fleet: Fleet) -> None:
    with held(the_event()):
        fleet.later(5)
        fleet.say("vm1", listing(status="Started"))
        fleet.later(5)
        fleet.say("vm1")
    assert Sighting.objects.get(machine=fleet.agents["vm1"].machine).gone_at is None
    fleet.later(5)
    fleet.say("vm2")
    row = Sighting.objects.get(machine=fleet.agents["vm1"].machine)
    assert (row.started_at, row.gone_at) == (fleet.now - seconds(10), fleet.now - seconds(5))
    assert not WaitingReport.objects.exists()
    assert the_event().status == "ENDED"


def test_orders_of_other_events_go_out_and_rules_decide_about_them(fleet: Fleet) -> None:
    made()
    with held(the_event()):
        quickly(fleet.advance)
        assert Approval.objects.get().event.event_id == OTHER
        order = Order.objects.get()
        noted = queue.note_held(held=[(order.machine_id, order.pk, "look")], now=fleet.now)
        assert noted.moved == 1
        quickly(lambda: fleet.receipt(order))
        assert Approval.objects.get().state == "ACCEPTED"
    fleet.advance()
    assert Approval.objects.filter(event=the_event()).exists()


def test_an_agent_that_has_an_order_of_the_event_is_noted_later(fleet: Fleet) -> None:
    orders = [ordered(fleet), ordered(fleet, OTHER)]
    has = [(order.machine_id, order.pk, "look") for order in orders]
    with held(the_event()):
        began = time.monotonic()
        noted = queue.note_held(held=has, now=fleet.now)
        assert time.monotonic() - began < QUICKLY
        assert (noted.moved, noted.passed_by) == (1, (has[0],))
    assert queue.note_held(held=noted.passed_by, now=fleet.now).moved == 1


@pytest.mark.parametrize("what", ["approval", "order", "sighting"])
def test_a_receipt_about_a_locked_approval_or_order_is_not_lost(fleet: Fleet, what: str) -> None:
    order = ordered(fleet)
    asked = fleet.agents[order.machine.resource_name]
    row = {"approval": order.approval, "order": order, "sighting": Sighting.objects.filter(event=the_event()).first()}[
        what
    ]
    db1 = fleet.agents["db1"]
    with held(row):
        told = asked.delivery(*fleet.answer(order).reports, asked.document(listing(status="Started"), at=fleet.now))
        quickly(lambda: fleet.record(told, db1.delivery(db1.document(listing(NEW), at=fleet.now))))
        assert the_event(NEW).version == 1
        quickly(fleet.advance)
    fleet.tick(2)
    assert after(order).azure_status == 200
    assert the_event().status == "STARTED"
    assert not WaitingReport.objects.exists()


def test_uncommitted_event_of_another_session_delays_no_report(fleet: Fleet) -> None:
    home = AvailabilitySet.objects.get(name="web").pk
    db1 = fleet.agents["db1"]
    with session() as other:
        other.execute(
            "INSERT INTO fleet_scheduledevent (event_id, availability_set_id, created_at, first_seen_at, drill, status,"
            " version, ended_as, certainty, watched, approved_elsewhere, warnings, event_type, resource_type, source,"
            " description, resources) VALUES (%s, %s, now(), now(), false, 'SCHEDULED', 0, '', '', true, false, '[]',"
            " '', '', '', '', '[]')",
            [NEW, home],
        )
        vm1 = fleet.agents["vm1"]
        told = vm1.delivery(vm1.document(listing(), listing(NEW), at=fleet.now))
        quickly(lambda: fleet.record(told, db1.delivery(db1.document(at=fleet.now))))
        assert Sighting.objects.get(event__event_id=OTHER, machine=db1.machine).gone_at == fleet.now
        quickly(fleet.advance)
    fleet.advance()
    assert the_event(NEW).version == 1
    assert not WaitingReport.objects.exists()


def test_a_locked_set_or_machine_keeps_no_event_waiting(fleet: Fleet) -> None:
    vm1, db1 = fleet.agents["vm1"], fleet.agents["db1"]
    fleet.later(5)
    with held(AvailabilitySet.objects.get(name="web")):
        told = vm1.delivery(vm1.document(listing(status="Started"), at=fleet.now))
        quickly(lambda: fleet.record(told, db1.delivery(db1.document(listing(OTHER, status="Started"), at=fleet.now))))
        assert the_event(OTHER).status == "STARTED"
        quickly(fleet.advance)
        assert the_event().status == "STARTED"
    assert not QuarantinedRow.objects.exists()
    # Nor does a locked machine: it is acknowledged as all others.
    deliveries = [agent.delivery(agent.document(at=fleet.now)) for agent in (vm1, db1)]
    with held(Machine.objects.get(pk=vm1.machine.pk)):
        quickly(lambda: fleet.record(*deliveries))
    assert Observation.objects.filter(machine=vm1.machine).count() == 4


def test_a_locked_cache_keeps_its_own_lines_waiting(fleet: Fleet) -> None:
    vm1 = fleet.agents["vm1"]
    hosts = ["a.redis.cache.windows.net", "b.redis.cache.windows.net"]

    def heard(text: str) -> None:
        lines = [wire.RedisData(cache=host, raw=line("NodeMaintenanceStarting") + f"|{text}|{host}") for host in hosts]
        reports = [vm1.report(one, at=fleet.now) for one in lines]
        fleet.record(vm1.delivery(*reports, vm1.document(listing(NEW), at=fleet.now)))

    heard("first")
    with held(Cache.objects.get(host=hosts[0])):
        quickly(lambda: heard("second"))
        assert the_event(NEW).version == 1
        assert [Notification.objects.filter(cache__host=host).count() for host in hosts] == [1, 2]
        quickly(fleet.advance)
    fleet.advance()
    assert [Notification.objects.filter(cache__host=host).count() for host in hosts] == [2, 2]


def test_long_lock_is_shown_and_removed_afterwards(fleet: Fleet) -> None:
    with held(the_event()):
        fleet.say("vm1", listing(status="Started"))
        for _ in range(8):
            fleet.later(2)
            fleet.advance()
        (spot,) = [spot for spot in blind_spots.overview(now=fleet.now).spots if spot.code == "set-aside"]
        assert EVENT in sentence(spot.reason)
    fleet.later(2)
    fleet.advance()
    assert the_event().status == "STARTED"
    assert not QuarantinedRow.objects.exists()


@searched("seeds", share=2, whole=8, variable="DRYDOCK_HELD_SEEDS")
def test_locked_events_do_not_change_the_result(short_waits: None, seeds: int) -> None:
    """Play random stories twice, without locks and with one event locked: both end the same."""
    names = ["vm1", "vm2", "vm3"]
    for seed in range(seeds):
        ends = []
        for holds in (False, True):
            dice = random.Random(seed)
            fleet = Fleet()
            ids = [str(uuid4()).upper() for _ in range(2)]
            for name in names:
                fleet.enrol(name, availability_set=f"web{seed}{holds}", vm_id=str(uuid4()))
            fleet.all_say(*(listing(event_id) for event_id in ids))
            with as_patient_as("writer"):
                for _ in range(8):
                    with ExitStack() as stack:
                        if dice.random() < 0.6 and holds:
                            stack.enter_context(held(the_event(dice.choice(ids))))
                        elif not holds:
                            # As many throws as in the other story.
                            dice.random()
                        _one_step(fleet, random.Random(f"{seed} {fleet.now}"), names, ids)
                fleet.later(2)
                reconcile.advance(now=fleet.now, via="beat")
            assert not WaitingReport.objects.exists()
            ends.append([_end(event_id) for event_id in ids])
        assert ends[0] == ends[1], seed


def _one_step(fleet: Fleet, dice: random.Random, names: list[str], ids: list[str]) -> None:
    fleet.later(dice.randint(1, 20))
    told = []
    for name in dice.sample(names, dice.randint(1, 3)):
        agent = fleet.agents[name]
        documents = []
        for _ in range(dice.randint(1, 2)):
            chosen = [event_id for event_id in ids if dice.random() < 0.7]
            statuses = [dice.choice(["Scheduled", "Started"]) for _ in chosen]
            documents.append(
                agent.document(
                    *(listing(one, status=status) for one, status in zip(chosen, statuses, strict=True)), at=fleet.now
                )
            )
        told.append(agent.delivery(*documents))
    fleet.record(*told)
    if dice.random() < 0.4:
        reconcile.advance(now=fleet.now, via="beat")


def _end(event_id: str) -> object:
    event = ScheduledEvent.objects.get(event_id=event_id)
    rows = Sighting.objects.filter(event=event).order_by("machine__resource_name")
    return (
        event.status, event.started_at, event.not_before, event.first_seen_at,
        list(rows.values_list("status", "first_at", "started_at", "listed_at", "listed_seq", "gone_at", "gone_seq")),
    )  # fmt: skip


def test_how_long_each_part_waits_is_what_the_documentation_says() -> None:
    page = (settings.BASE_DIR / "docs" / "admin" / "monitoring.md").read_text(encoding="utf-8")
    for name, role in ROLES.items():
        assert f"| {name} | {role.statement:g} | {role.lock:g} | {role.idle:g} |" in page
        with as_patient_as(name):
            shown = f"{role.lock:g}s" if role.lock >= 1 else f"{role.lock * 1000:g}ms"
            assert query("SHOW lock_timeout") == [(shown,)]
