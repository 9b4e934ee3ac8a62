"""Data loss at the backend: after its database was restored to an older state, the agent resends the current state."""

import itertools
import stat
from pathlib import Path

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import Acknowledgement
from drydock_agent.backend.loss_recovery import PAUSE_SECONDS, LossRecovery
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import VM_IDS, Agents, Parts, SteppedClock
from tests.agent.backend.conftest import Delivery
from tests.agent.fleet_double import FleetDouble, eventually


def put_back(fleet: FleetDouble, spool: str, upto: int) -> None:
    """The backend's database is that of a backup: it has this spool's reports up to a number."""
    with fleet.lock:
        fleet.acknowledged[spool] = upto
        fleet.committed[spool] = {seq: one for seq, one in fleet.committed[spool].items() if seq <= upto}


@pytest.mark.parametrize("waiting", [0, 3])
@pytest.mark.parametrize("release_before", [False, True])
def test_an_acknowledgement_that_falls_is_noticed_once(delivery: Delivery, waiting: int, release_before: bool) -> None:
    delivery.fleet.release_before = release_before
    delivery.fill(4)
    delivery.until_idle()
    put_back(delivery.fleet, delivery.spool.id, 2)
    # What waits raises the acknowledgement again: only a newer backend says what it had before.
    delivery.fill(waiting)
    for _ in range(20):
        delivery.clock.advance(15)
        delivery.until_idle()
    assert delivery.resends[:1] == ([] if release_before and waiting else [2])
    # A backend of release 0.1.0 stays behind until a new report arrives; then the agent resends only a few times.
    assert len(delivery.resends) <= (3 if release_before else 1)
    assert [batch["acknowledged"] for batch in delivery.fleet.batches[-2:]] == [5 + waiting] * 2


def test_lost_or_repeated_answers_cause_no_resend(delivery: Delivery) -> None:
    for _ in range(5):
        delivery.fill(2)
        delivery.fleet.lose_answers = 1
        delivery.clock.advance(delivery.until_idle())
        delivery.clock.advance(delivery.until_idle())
    assert delivery.spool.pending() == 0
    assert delivery.resends == []


def answer(acknowledged: int, before: int | None, *wanted: str) -> Acknowledgement:
    return Acknowledgement(acknowledged, {}, [], 0, before=before, wanted=wanted)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.integers(1, 400)), max_size=200))
def test_hostile_backend_cannot_force_resends_in_a_loop(answers: list[tuple[int, int, bool, int]]) -> None:
    clock, told = SteppedClock(), [float("-inf")]

    def tell() -> bool:
        assert clock.monotonic() - told[-1] >= PAUSE_SECONDS
        told.append(clock.monotonic())
        return True

    loss = LossRecovery(clock, resend_document=lambda _: tell(), resend_all=lambda _: tell() and None)
    for known, before, wanted, seconds in answers:
        loss.check_answer(known, answer(known, before, *(["0" * 64] if wanted else [])))
        clock.advance(seconds)
    # Twice as long each time: of a whole day a handful.
    assert len(told) - 1 <= 7 + (clock.monotonic() - 1000) / 3600


def test_a_hostile_backend_has_a_new_spool_begun_at_most_once_a_minute(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(3)
    begun: list[tuple[str, float]] = []
    for _ in range(300):
        delivery.fleet.acknowledged[delivery.spool.id] = wire.RENUMBER_SPOOL
        delivery.step()
        if not begun or begun[-1][0] != delivery.spool.id:
            begun.append((delivery.spool.id, delivery.clock.monotonic()))
        delivery.clock.advance(1)
    assert 2 < len(begun) <= 6
    assert all(later - earlier >= PAUSE_SECONDS for (_, earlier), (_, later) in itertools.pairwise(begun[1:]))
    assert delivery.spool.pending() == 3
    delivery.fleet.acknowledged.clear()
    delivery.clock.advance(60)
    delivery.until_idle()
    assert delivery.spool.pending() == 0


def test_a_loss_that_comes_too_early_is_made_good_later() -> None:
    clock = SteppedClock()
    told: list[int] = []
    loss = LossRecovery(clock, resend_document=lambda _: False, resend_all=told.append)
    loss.check_answer(10, answer(10, 4))
    loss.check_answer(12, answer(12, 8))
    clock.advance(500)
    loss.check_answer(12, answer(12, 12))
    assert told == [4, 8]


def test_document_unknown_to_the_backend_is_resent_whole(parts: Parts) -> None:
    parts.poller.step()
    (whole,) = parts.waiting(wire.DOCUMENT)
    loss = LossRecovery(parts.clock, resend_document=parts.poller.resend_if_wanted, resend_all=lambda _: None)
    loss.check_answer(1, answer(1, 1, "f" * 64))
    parts.clock.advance(1)
    parts.poller.step()
    assert len(parts.waiting(wire.DOCUMENT)) == 1, "what it never had it cannot tell"
    loss.check_answer(1, answer(1, 1, "f" * 64, whole["hash"]))
    for _ in range(3):
        parts.clock.advance(1)
        parts.poller.step()
    assert parts.waiting(wire.DOCUMENT) == [whole, whole]


@pytest.mark.real_time
@pytest.mark.flow
def test_a_whole_agent_tells_all_that_is_still_so(agents: Agents, tmp_path: Path) -> None:
    hook = tmp_path / "hooks" / "prepare.d" / "10-drain"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\nexit 3\n")
    hook.chmod(stat.S_IRWXU)
    event_id = agents.announce("Reboot")
    agents.run(
        DRYDOCK_HOOKS_DIR=str(tmp_path / "hooks"),
        DRYDOCK_REDIS_CACHES="redis://shop.redis.cache.windows.net?connect=127.0.0.1:1&tls=false&tier=premium",
    )
    eventually(lambda: any(report["data"]["step"] == "end" for report in agents.fleet.reports(wire.HOOK)))
    agents.fleet.order(VM_IDS["web-vm1"], event_id)
    eventually(agents.fleet.receipts)
    eventually(lambda: agents.fleet.reports(wire.COVERAGE) and agents.fleet.reports(wire.INSTANCE))
    (spool,) = agents.fleet.committed
    before = {report["seq"]: report for report in agents.fleet.reports()}
    put_back(agents.fleet, spool, 0)
    # Whatever it says next is answered with the loss.
    agents.announce(resource="web-vm2")

    def again() -> set[str]:
        return {report["kind"] for seq, report in agents.fleet.committed[spool].items() if seq not in before}

    whole = {wire.DOCUMENT, wire.INSTANCE, wire.HOOK, wire.RECEIPT, wire.COVERAGE}
    eventually(lambda: again() >= whole)
    eventually(lambda: len(agents.fleet.reports(wire.HOOK)) == 3)
    hooks = {report["data"]["step"]: report for report in agents.fleet.reports(wire.HOOK)}
    first = {report["data"]["step"]: report for report in before.values() if report["kind"] == wire.HOOK}
    assert all(report["data"]["again"] for report in hooks.values())
    assert [hooks[step]["data"]["outcome"] for step in ("begin", "hook", "end")] == ["running", "failed", "failed"]
    assert hooks["end"]["at"][:19] == first["end"]["at"][:19]
    (receipt,) = agents.fleet.receipts()
    assert (receipt["azure_status"], receipt["event_id"]) == (200, event_id)
    listed = {event["EventId"] for event in agents.fleet.documents()[-1]["Events"]}
    assert event_id in listed
