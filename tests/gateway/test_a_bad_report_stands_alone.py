from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from fleet.models import DocumentBody, Entry, Machine, Observation
from tests.gateway_process import Agent, Gateway, document

pytestmark = pytest.mark.flow


def kept(agent: Agent) -> dict[int, Observation]:
    return {row.seq: row for row in Observation.objects.filter(machine__vm_id=agent.vm_id)}


@pytest.mark.parametrize(
    ("kind", "data", "changes", "reason"),
    [
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
        ("", {}, {}, "kind"),
    ],
)
def test_an_unreadable_report_is_refused_alone(
    gateway: Gateway, kind: str, data: Any, changes: dict[str, Any], reason: str
) -> None:
    agent = gateway.agent()
    answer = agent.post(agent.document(), agent.report(kind, data, **changes), agent.document(incarnation=2))
    said = answer.json()
    assert (answer.status_code, said["acknowledged"]) == (200, 3)
    assert [refusal["seq"] for refusal in said["refused"]] == [2]
    assert reason in said["refused"][0]["reason"]
    assert sorted(kept(agent)) == [1, 3]
    machine = Machine.objects.get(vm_id=agent.vm_id)
    assert Entry.objects.filter(machine=machine, kind="report_refused", data__seq=2).count() == 1


def test_an_unknown_kind_is_kept_and_flagged(gateway: Gateway) -> None:
    agent = gateway.agent()
    said = agent.post(agent.report("weather", {"wind": ["north", 4.5]})).json()
    assert (said["acknowledged"], said["refused"]) == (1, [])
    row = kept(agent)[1]
    assert (row.kind, row.data, "unknown kind" in row.flag) == ("weather", {"wind": ["north", 4.5]}, True)


def test_data_of_another_protocol_is_kept_and_flagged(gateway: Gateway) -> None:
    agent = gateway.agent()
    said = agent.post(agent.report("reminder", {"digest": "newer"}), protocol=2, surprise=[1]).json()
    assert said["refused"] == []
    assert "protocol 2" in kept(agent)[1].flag


def test_too_deep_data_is_refused(gateway: Gateway) -> None:
    agent = gateway.agent()
    deep: Any = "bottom"
    for _ in range(40):
        deep = [deep]
    said = agent.post(agent.report("weather", {"deep": deep}), agent.document()).json()
    assert [refusal["seq"] for refusal in said["refused"]] == [1]
    assert "deeper than 32 levels" in said["refused"][0]["reason"]


def test_bytes_that_are_no_text_arrive_as_they_were(gateway: Gateway) -> None:
    agent = gateway.agent()
    body = b'{"DocumentIncarnation": 3, "Events": []}\xff\x00'
    digest = hashlib.sha256(body).hexdigest()
    data = {"body": base64.b64encode(body).decode(), "hash": digest, "encoding": "base64"}
    assert agent.post(agent.report("document", data)).json()["refused"] == []
    assert bytes(DocumentBody.objects.get(hash=digest).body) == body


def test_text_that_postgres_cannot_keep_is_kept_as_far_as_it_goes(gateway: Gateway) -> None:
    agent = gateway.agent()
    body = '{"DocumentIncarnation": 3, "Events": [], "odd": "\x00"}'
    data = {"body": body, "hash": hashlib.sha256(body.encode()).hexdigest()}
    said = agent.post(agent.report("weather", {"a\x00": "b\x00c\ud800"}), agent.report("document", data)).json()
    assert (said["acknowledged"], said["refused"]) == (2, [])
    assert kept(agent)[1].data == {"a\ufffd": "b\ufffdc\ufffd"}
    assert bytes(DocumentBody.objects.get(hash=data["hash"]).body) == body.encode()


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
