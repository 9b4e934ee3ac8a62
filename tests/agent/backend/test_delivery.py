"""Report delivery: no report is lost if the backend is unavailable, drops answers, refuses, sheds or lost its data."""

import itertools
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import Acknowledgement
from drydock_agent.backend.loss_recovery import PAUSE_SECONDS, LossRecovery
from drydock_agent.backoff import BACKEND_SECONDS, Backoff
from drydock_agent.clock import Clock, ServerClock, from_text, to_text
from drydock_agent.settings.load import load
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import VM_IDS, Agents, Parts, SteppedClock, executable
from tests.agent.backend.conftest import Delivery
from tests.agent.fleet_double import FleetDouble, eventually


def test_it_enrols_greets_delivers_in_order_and_reports_a_poll_with_all_its_findings(delivery: Delivery) -> None:
    delivery.fill(450)
    first = delivery.uploader.status_report()
    assert delivery.until_idle() == 15.0
    assert [len(batch["reports"]) for batch in delivery.fleet.batches] == [0, 200, 200, 51]
    assert [report["seq"] for report in delivery.fleet.reports()] == list(range(1, 452))
    assert delivery.spool.pending() == 0
    [enrolment] = delivery.fleet.enrolments
    assert (enrolment["machine_id"], enrolment["machine_id_source"]) == (VM_IDS["web-vm1"], "imds")
    assert [batch["last_poll_at"] is None for batch in delivery.fleet.batches] == [True, True, True, False]
    status_report = delivery.uploader.status_report()
    assert first is None, "before the first contact the backend knows nothing of this spool"
    polled = from_text(delivery.fleet.batches[-1]["last_poll_at"])
    assert status_report is not None and status_report.last_poll_at == polled
    delivery.fill(1)
    status_report = delivery.uploader.status_report()
    assert status_report is not None and (status_report.last_poll_at, status_report.document) == (None, None)


def test_a_quiet_machine_is_heard_every_fifteen_seconds(delivery: Delivery) -> None:
    delivery.until_idle()
    before = len(delivery.fleet.batches)
    for _ in range(60):
        delivery.clock.advance(1)
        delivery.step()
    assert len(delivery.fleet.batches) - before == 4


def test_a_lost_answer_is_sent_again_and_nothing_doubles(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(3)
    delivery.fleet.lose_answers = 1
    wait = delivery.step()
    assert 0 < wait <= 1.0 and delivery.spool.pending() == 3
    delivery.clock.advance(wait)
    delivery.until_idle()
    assert [report["seq"] for report in delivery.fleet.reports()] == [1, 2, 3, 4]
    assert delivery.fleet.batches[-1]["reports"] == delivery.fleet.batches[-2]["reports"]
    for _ in range(5):
        delivery.fill(2)
        delivery.fleet.lose_answers = 1
        delivery.clock.advance(delivery.until_idle())
        delivery.clock.advance(delivery.until_idle())
    assert delivery.spool.pending() == 0
    assert delivery.resends == [], "a lost or repeated answer is no lost report"


def test_refused_reports_are_quarantined_and_the_rest_is_delivered(delivery: Delivery) -> None:
    delivery.fill(2, "strange")
    delivery.fleet.refuse["strange"] = "not understood"
    delivery.until_idle()
    assert [report["kind"] for report in delivery.fleet.reports()] == ["document"]
    assert [(report.seq, reason) for report, reason in delivery.spool.quarantined()] == [
        (2, "not understood"),
        (3, "not understood"),
    ]
    assert delivery.spool.pending() == 0


def test_a_batch_that_is_too_large_is_halved(delivery: Delivery) -> None:
    delivery.fleet.too_large = 30
    delivery.fill(100)
    delivery.until_idle()
    assert [report["seq"] for report in delivery.fleet.reports()] == list(range(1, 102))
    assert delivery.spool.quarantined() == []


def test_undeliverable_report_is_quarantined(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(2)
    delivery.fleet.statuses = [(wire.REPORTS_PATH, 422)] * 2
    delivery.until_idle()
    assert [report.seq for report, _ in delivery.spool.quarantined()] == [2]
    assert [report["seq"] for report in delivery.fleet.reports()] == [1, 3]


def test_a_backend_that_can_read_nothing_costs_no_report(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(1)
    delivery.fleet.statuses = [(wire.REPORTS_PATH, 422)] * 2
    assert delivery.step() > 0
    assert delivery.spool.quarantined() == []
    delivery.clock.advance(2)
    delivery.until_idle()
    assert len(delivery.fleet.reports()) == 2


def test_a_revoked_credential_is_replaced_once_it_is_admitted(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.clock.advance(600)
    delivery.fleet.revoke()
    delivery.fleet.admission_pending = True
    wait = delivery.step()
    assert 0 < wait <= 1.0
    delivery.clock.advance(wait)
    for _ in range(3):
        wait = delivery.step()
        assert 30.0 <= wait <= 35.0
        delivery.clock.advance(wait)
    delivery.fleet.admission_pending = False
    assert delivery.until_idle() == 15.0
    first, *again = delivery.fleet.enrolments
    assert first["credential"] == ""
    assert [one["credential"] for one in again] == ["credential-1"] * 4
    assert len({one["ask"] for one in delivery.fleet.enrolments}) == 1 and len(first["ask"]) > 30


def test_two_machines_with_one_id_do_not_hurry_to_revoke_each_other(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(1)
    delivery.fleet.revoke()
    assert delivery.step() >= 30.0


def test_without_a_join_token_a_refused_credential_is_tried_again(delivery: Delivery) -> None:
    delivery.until_idle()
    credentials = dict(delivery.fleet.credentials)
    delivery.uploader._enrolment._settings = load({"DRYDOCK_FLEET_URL": delivery.fleet.url})
    delivery.clock.advance(600)
    delivery.fleet.revoke()
    delivery.clock.advance(delivery.step())
    delivery.fleet.credentials.update(credentials)
    # The agent tries to enrol with Azure's attested document, is refused, and continues with its credential.
    delivery.clock.advance(delivery.until_idle())
    assert delivery.until_idle() == 15.0
    assert len(delivery.fleet.enrolments) == 1


def test_retry_after_is_honoured(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(1)
    delivery.fleet.statuses, delivery.fleet.retry_after = [(wire.REPORTS_PATH, 503)], "7"
    assert 7.0 <= delivery.step() <= 8.0
    delivery.fill(1)
    sent = len(delivery.fleet.batches)
    delivery.clock.advance(6.9)
    assert delivery.step() > 0 and len(delivery.fleet.batches) == sent, "a wake does not cut the wait short"


def test_a_foreign_server_acknowledges_nothing(delivery: Delivery) -> None:
    delivery.until_idle()
    delivery.fill(1)
    # 200 without the backend's time: a portal that answers everything, say.
    delivery.fleet.statuses = [(wire.REPORTS_PATH, 200)]
    assert delivery.step() > 0
    assert delivery.spool.pending() == 1


@given(st.integers(0, 2**32), st.floats(0, 100))
def test_waits_are_jittered_fully_and_grow_to_a_minute_or_to_five_seconds(seed: int, retry_after: float) -> None:
    backoff = Backoff(Random(seed))
    limits = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert all(0 <= backoff.failed() <= limit for limit in limits)
    assert retry_after <= backoff.failed(retry_after) <= retry_after + 60
    backoff.succeeded()
    assert backoff.failed() <= 1
    backend = Backoff(Random(seed), most=BACKEND_SECONDS)
    assert all(0 <= backend.failed() <= limit for limit in [1, 2, 4, 5, 5, 5, 5, 5, 5, 5])


def test_a_fleet_that_was_cut_at_once_spreads() -> None:
    waits = sorted(Backoff(Random(seed)).failed() for seed in range(1000))
    assert waits[100] < 0.2 and waits[900] > 0.8


@given(st.datetimes().map(lambda at: at.replace(tzinfo=Clock().now().tzinfo)))
def test_times_survive_the_wire(at: object) -> None:
    assert from_text(to_text(at)) == at  # type: ignore[arg-type]


def test_the_backends_clock_is_carried_forward_by_monotonic_time(clock: SteppedClock) -> None:
    server = ServerClock(clock)
    assert server.offset() is None and server.now() == clock.now()
    server.contact(clock.now() + timedelta(hours=1), clock.monotonic())
    clock.wall -= timedelta(days=1)
    clock.seconds += 10
    assert server.offset() == pytest.approx(86400 + 3600 + 10)


@pytest.mark.real_time
@pytest.mark.flow
def test_cloned_disk_enrols_again_with_a_new_spool(agents: Agents) -> None:
    first = agents.at_work("web-vm1")
    eventually(lambda: agents.fleet.reports(wire.INSTANCE))
    first.stop()
    agents.at_work("web-vm2")
    eventually(lambda: len(agents.fleet.reports(wire.INSTANCE)) == 2)
    assert [enrolment["machine_id"] for enrolment in agents.fleet.enrolments] == list(VM_IDS.values())
    assert len(agents.fleet.committed) == 2
    assert len(list((agents.folder / "state").glob(f"spool-{VM_IDS['web-vm1']}-*.sqlite3"))) == 1
    assert [report["data"]["resource_name"] for report in agents.fleet.reports(wire.INSTANCE)] == ["web-vm1", "web-vm2"]


# An agent waits up to a minute before it enrols again, so that not all agents enrol at once.
@pytest.mark.long
@pytest.mark.real_time
@pytest.mark.flow
def test_a_backend_that_forgot_the_machine_gets_the_whole_document_again(agents: Agents) -> None:
    agents.at_work()
    agents.fleet.revoke()
    with agents.fleet.lock:
        agents.fleet.statuses.append(("/orders", 401))
    agents.fleet.ring()
    eventually(lambda: len(agents.fleet.enrolments) == 2, seconds=60)
    eventually(lambda: len(agents.fleet.documents()) == 2)


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
    executable(tmp_path / "hooks" / "prepare.d" / "10-drain", "exit 3")
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
