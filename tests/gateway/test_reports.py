"""Reports at a real gateway: answered after their commit, refused alone, with times inside bounds."""

import base64
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection

from fleet.domain.times import EARLIEST, LATEST
from fleet.embedded import Urls
from fleet.gateway.decoder import Batch, read_batch
from fleet.gateway.readers import Clock
from fleet.models import DocumentBody, Entry, LatestDocument, Observation
from fleet.operations.intake.keep import WRONG_CLOCK
from tests.gateway_process import Agent, Gateway, document, running_gateway


def observed(agent: Agent) -> list[int]:
    rows = Observation.objects.filter(machine__vm_id=agent.vm_id).order_by("epoch", "seq")
    return list(rows.values_list("seq", flat=True))


def test_what_is_acknowledged_is_in_the_database_and_an_empty_batch_is_a_heartbeat(gateway: Gateway) -> None:
    agent = gateway.agent()
    assert agent.post().json()["acknowledged"] == 0
    content = agent.post(agent.document(incarnation=1), agent.document(incarnation=2)).json()
    assert (content["acknowledged"], content["refused"], content["orders"]) == (2, [], [])
    assert observed(agent) == [1, 2]
    assert agent.post().json()["acknowledged"] == 2
    # Its body is stored once for all machines.
    other = gateway.agent()
    assert other.post(other.document(incarnation=2)).json()["refused"] == []
    assert DocumentBody.objects.filter(hash=document(2)["hash"]).count() == 1
    assert LatestDocument.objects.get(machine__vm_id=agent.vm_id).incarnation == 2


def deliver_until_cut(agent: Agent) -> int:
    """Deliver one document after the other until the gateway is gone; the last number it acknowledged."""
    acknowledged = 0
    while True:
        try:
            answer = agent.post(agent.document(incarnation=agent.seq))
        except requests.RequestException:
            return acknowledged
        if answer.status_code == 200:
            acknowledged = answer.json()["acknowledged"]


@pytest.mark.real_time
def test_kill_9_loses_nothing_that_was_acknowledged(servers: Urls, folder: Path) -> None:
    with running_gateway(servers, folder) as gateway, ThreadPoolExecutor(8) as pool:
        agents = [gateway.agent() for _ in range(8)]
        calls = [pool.submit(deliver_until_cut, agent) for agent in agents]
        while sum(agent.seq for agent in agents) < 400:
            assert not any(call.done() for call in calls)
        os.kill(gateway.worker, signal.SIGKILL)
        gateway.process.kill()
        acknowledged = [call.result(30) for call in calls]
    assert min(acknowledged) > 0
    for agent, upto in zip(agents, acknowledged, strict=True):
        assert observed(agent)[:upto] == list(range(1, upto + 1))
    with running_gateway(servers, folder) as again:
        for agent, upto in zip(agents, acknowledged, strict=True):
            agent.url = again.url
            lost = [{**agent.document(incarnation=seq), "seq": seq} for seq in range(upto + 1, upto + 4)]
            assert agent.post(*lost).json()["acknowledged"] == upto + 3
            assert observed(agent) == list(range(1, upto + 4))


def kept(agent: Agent) -> dict[int, Observation]:
    return {row.seq: row for row in Observation.objects.filter(machine__vm_id=agent.vm_id)}


# Kind, data and other fields of reports that cannot be read, each with a word of the reason.
UNREADABLE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("document", {"hash": "0" * 64}, {}, "body"),
    ("document", {**document(1), "hash": "0" * 64}, {}, "damaged"),
    ("document", {**document(1), "encoding": "rot13"}, {}, "encoding"),
    ("document", {**document(1), "encoding": "base64", "body": "%%%"}, {}, "base64"),
    ("document", {**document(1), "incarnation": 2**63}, {}, "range"),
    ("document", {"body": "x" * (1024 * 1024 + 1), "hash": "0" * 64}, {}, "damaged"),
    ("reminder", {"hash": "short"}, {}, "hash"),
    ("receipt", {"order_id": "7", "event_id": "E", "outcome": "answered"}, {}, "UUID"),
    ("document", document(1), {"at": "yesterday"}, "RFC3339"),
    ("document", "text", {}, "object"),
    ("weather", {"deep": json.loads("[" * 40 + "]" * 40)}, {}, "deeper than 32 levels"),
    ("", {}, {}, "kind"),
]


def test_unreadable_reports_are_refused_alone(gateway: Gateway) -> None:
    agent = gateway.agent()
    batch = [agent.document()]
    for number, (kind, data, changes, _) in enumerate(UNREADABLE, start=2):
        batch += [agent.report(kind, data, **changes), agent.document(incarnation=number)]
    answer = agent.post(*batch)
    content, seqs = answer.json(), [2 * (number + 1) for number in range(len(UNREADABLE))]
    assert (answer.status_code, content["acknowledged"]) == (200, len(batch))
    assert [refusal["seq"] for refusal in content["refused"]] == seqs
    for refusal, (*_, word) in zip(content["refused"], UNREADABLE, strict=True):
        assert word in refusal["reason"]
    assert sorted(kept(agent)) == list(range(1, len(batch) + 1, 2))
    entries = Entry.objects.filter(machine__vm_id=agent.vm_id, kind="report_refused").order_by("pk")
    assert [entry.data["seq"] for entry in entries] == seqs


def test_unknown_kinds_and_data_of_another_protocol_are_kept_and_flagged(gateway: Gateway) -> None:
    agent = gateway.agent()
    content = agent.post(agent.report("weather", {"wind": ["north", 4.5]})).json()
    assert (content["acknowledged"], content["refused"]) == (1, [])
    other = agent.post(agent.report("reminder", {"digest": "newer"}), protocol=2, surprise=[1])
    assert other.json()["refused"] == []
    rows = kept(agent)
    assert (rows[1].kind, rows[1].data) == ("weather", {"wind": ["north", 4.5]})
    assert "unknown kind" in rows[1].flag and "protocol 2" in rows[2].flag


def test_bytes_that_are_no_text_and_texts_that_postgres_cannot_keep_arrive(gateway: Gateway) -> None:
    agent = gateway.agent()
    body = b'{"DocumentIncarnation": 3, "Events": []}\xff\x00'
    digest = hashlib.sha256(body).hexdigest()
    data = {"body": base64.b64encode(body).decode(), "hash": digest, "encoding": "base64"}
    assert agent.post(agent.report("document", data)).json()["refused"] == []
    assert bytes(DocumentBody.objects.get(hash=digest).body) == body
    # Text that Postgres cannot keep is kept as far as it goes.
    body = b'{"DocumentIncarnation": 3, "Events": [], "odd": "\x00"}'
    data = {"body": body.decode(), "hash": hashlib.sha256(body).hexdigest()}
    said = agent.post(agent.report("weather", {"a\x00": "b\x00c\ud800"}), agent.report("document", data)).json()
    assert (said["acknowledged"], said["refused"]) == (3, [])
    assert kept(agent)[2].data == {"a\ufffd": "b\ufffdc\ufffd"}
    assert bytes(DocumentBody.objects.get(hash=data["hash"]).body) == body


@pytest.fixture
def unlucky_number() -> Iterator[int]:
    """A number that the database refuses for reports that are not flagged."""
    execute = connection.cursor().execute
    execute("ALTER TABLE fleet_observation_all ADD CONSTRAINT unlucky CHECK (seq <> 1313 OR flag <> '')")
    yield 1313
    execute("ALTER TABLE fleet_observation_all DROP CONSTRAINT unlucky")


def test_report_that_cannot_be_stored_is_quarantined_and_delays_no_other(gateway: Gateway, unlucky_number: int) -> None:
    bad, *good = (gateway.agent() for _ in range(6))
    bad.seq = unlucky_number - 2
    batches = [(bad, [bad.document(incarnation=number) for number in range(4)])]
    batches += [(agent, [agent.document(incarnation=1)]) for agent in good]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda pair: pair[0].post(*pair[1]).json(), batches))
    # Trouble has a small part of the writer's time: what that did not suffice for comes again, as agents send it.
    acknowledged, refused = answers[0]["acknowledged"], answers[0]["refused"]
    while acknowledged < unlucky_number + 2:
        said = bad.post(*[report for report in batches[0][1] if report["seq"] > acknowledged]).json()
        assert said["acknowledged"] > acknowledged
        acknowledged = said["acknowledged"]
        refused += said["refused"]
    assert [refusal["seq"] for refusal in refused] == [unlucky_number]
    assert all((said["acknowledged"], said["refused"]) == (1, []) for said in answers[1:])
    rows = kept(bad)
    assert sorted(rows) == [1312, 1313, 1314, 1315]
    assert [bool(rows[seq].flag) for seq in sorted(rows)] == [False, True, False, False]


def test_a_machine_that_is_gone_from_the_database_does_not_stop_the_others(gateway: Gateway) -> None:
    gone, there = gateway.agent(), gateway.agent()
    gone.post(gone.document())
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("DELETE FROM fleet_machine WHERE vm_id = %s", [gone.vm_id])
        cursor.execute("SET session_replication_role = origin")
    gone.spool = "another"
    with ThreadPoolExecutor(2) as pool:
        lost, kept_going = pool.map(lambda agent: agent.post(agent.document()), (gone, there))
    assert (lost.status_code, kept_going.status_code) == (500, 200)
    assert lost.headers["content-type"] == "application/problem+json"


NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def batch(at: str, *, sent_at: str = "2026-03-02T12:00:00Z", kind: str = "weather", **data: Any) -> Batch:
    report = {"seq": 1, "kind": kind, "at": at, "data": data}
    raw = {"spool": "s", "sent_at": sent_at, "agent_version": "1", "reports": [report]}
    return read_batch(json.dumps(raw).encode(), received_at=NOW)


IMPOSSIBLE = ["2099-01-01T00:00:00Z", "2026-03-02T12:00:10Z", "1999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"]


@pytest.mark.parametrize("at", [*IMPOSSIBLE, "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00"])
def test_a_report_whose_time_cannot_be_right_counts_as_received_now_and_is_marked(at: str) -> None:
    (report,) = batch(at).reports
    assert report.at == NOW
    assert WRONG_CLOCK in report.kept_flag
    assert EARLIEST <= report.machine_at <= LATEST


PLANNED_NEVER = [None, "soon", "1999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]


def test_a_plan_needs_its_phase_and_a_time_of_the_calendar() -> None:
    plan: dict[str, Any] = {"event_id": "E", "phase": "prepare", "step": "plan", "outcome": "planned"}
    plan["planned_at"] = "2026-03-02T12:00:00Z"
    for text in (plan["planned_at"], "2026-03-02T14:00:00+02:00"):
        (report,) = batch("2026-03-02T12:00:00Z", kind="hook", **plan | {"planned_at": text}).reports
        assert report.data.planned_at == NOW  # type: ignore[union-attr]
    never: list[dict[str, Any]] = [{"phase": "recover"}, *({"planned_at": text} for text in PLANNED_NEVER)]
    for changes in never:
        read = batch("2026-03-02T12:00:00Z", kind="hook", **plan | changes)
        assert (read.reports, len(read.refused)) == ([], 1), changes


@pytest.mark.parametrize(
    ("at", "sent_at", "seconds_ago", "wrong_clock"),
    [
        # A clock that is off all the time is corrected and not marked.
        ("2037-03-02T11:59:50Z", "2037-03-02T12:00:00Z", 10, False),
        ("1970-01-01T00:00:50Z", "1970-01-01T00:01:00Z", 10, False),
        # Within the tolerance no report is later than now.
        ("2026-03-02T12:00:01Z", "2026-03-02T12:00:00Z", 0, False),
        # An impossible clock moves no report out of bounds.
        ("2026-03-02T11:00:00Z", "0001-01-01T00:00:00Z", 0, True),
        ("2026-03-02T11:00:00Z", "9999-12-31T23:59:59Z", 0, True),
    ],
)
def test_times_are_corrected_by_the_clock_of_the_contact(
    at: str, sent_at: str, seconds_ago: int, wrong_clock: bool
) -> None:
    (report,) = batch(at, sent_at=sent_at).reports
    assert (report.at, report.wrong_clock) == (NOW - timedelta(seconds=seconds_ago), wrong_clock)


@pytest.mark.parametrize(("year", "counts_as"), [(1, None), (1970, None), (2027, NOW), (9999, NOW)])
def test_a_poll_in_the_future_counts_as_now_and_one_before_the_year_2000_for_nothing(
    year: int, counts_as: datetime | None
) -> None:
    clock = Clock.measured(sent_at=NOW, received_at=NOW, tolerance=2)
    assert clock.not_after(datetime(year, 6, 1, tzinfo=UTC), NOW) == counts_as


def test_an_answer_of_azure_is_not_lost_for_an_odd_time_in_its_receipt() -> None:
    ids = {"order_id": "11111111-2222-3333-4444-555555555555", "event_id": "E"}
    receipt = {**ids, "outcome": "answered", "attempted_at": "0001-01-01T00:00:00+14:00"}
    (report,) = batch("2026-03-02T11:00:00Z", kind="receipt", **receipt).reports
    assert report.data.attempted_at is None
