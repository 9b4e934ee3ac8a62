"""Report delivery: the uploader loses no report while the backend is unavailable, drops answers, refuses or sheds."""

from datetime import timedelta
from random import Random

import pytest
from drydock_agent import wire
from drydock_agent.backoff import BACKEND_SECONDS, Backoff
from drydock_agent.clock import Clock, ServerClock, from_text, to_text
from drydock_agent.settings.load import load
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import VM_IDS, Agents, SteppedClock
from tests.agent.backend.conftest import Delivery
from tests.agent.fleet_double import eventually


def test_it_enrols_greets_and_delivers_in_order(delivery: Delivery) -> None:
    delivery.fill(450)
    assert delivery.until_idle() == 15.0
    assert [len(batch["reports"]) for batch in delivery.fleet.batches] == [0, 200, 200, 51]
    assert [report["seq"] for report in delivery.fleet.reports()] == list(range(1, 452))
    assert delivery.spool.pending() == 0
    [enrolment] = delivery.fleet.enrolments
    assert (enrolment["machine_id"], enrolment["machine_id_source"]) == (VM_IDS["web-vm1"], "imds")


def test_last_poll_is_reported_only_with_all_its_findings(delivery: Delivery) -> None:
    delivery.fill(450)
    first = delivery.uploader.status_report()
    delivery.until_idle()
    assert [batch["last_poll_at"] is None for batch in delivery.fleet.batches] == [True, True, True, False]
    status_report = delivery.uploader.status_report()
    assert first is None, "before the first contact the backend knows nothing of this spool"
    assert status_report is not None and status_report.last_poll_at == from_text(
        delivery.fleet.batches[-1]["last_poll_at"]
    )
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
    assert delivery.spool.pending() == 0


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


def test_a_state_folder_that_was_put_back_is_delivered_as_a_new_spool(delivery: Delivery) -> None:
    old = delivery.spool.id
    # What an earlier run had delivered, and the older copy of the folder does not know.
    delivery.fleet.acknowledged[old] = 500
    delivery.until_idle()
    assert delivery.spool.id != old and delivery.spool.pending() == 0
    assert [report["seq"] for report in delivery.fleet.committed[delivery.spool.id].values()] == [1]


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
