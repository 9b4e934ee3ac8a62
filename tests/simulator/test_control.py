"""The control calls: events, log, clock, Redis."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis

from tests.simulator.asking import METADATA, Simulated, simulated, west_norway


def test_an_event_can_be_walked_through_its_life(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Redeploy", source="User")
    assert azure.event(event_id)["status"] == "Scheduled"
    assert azure.control("POST", f"events/{event_id}/start").json["status"] == "Started"
    assert azure.control("POST", f"events/{event_id.lower()}/complete").json["status"] == "Ended"
    event = azure.control("GET", "events").json[0]
    assert (event["started_by"], event["ended_as"]) == ("control", "completed")
    assert azure.document("WestNO_0")["Events"] == []


def test_a_cancelled_event_was_never_started(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Redeploy")
    azure.control("POST", f"events/{event_id}/cancel")
    event = azure.event(event_id)
    assert (event["status"], event["ended_as"], event["started_at"]) == ("Ended", "cancelled", None)
    azure.clock.advance(3600)
    assert azure.event(event_id)["started_at"] is None


@pytest.mark.parametrize(
    ("moves", "then"),
    [(["start"], "cancel"), (["cancel"], "start"), (["complete"], "complete"), (["cancel"], "cancel")],
)
def test_a_move_that_does_not_exist_is_409(azure: Simulated, moves: list[str], then: str) -> None:
    event_id = azure.create(set="west", type="Reboot")
    for move in moves:
        assert azure.control("POST", f"events/{event_id}/{move}").status == 200
    assert azure.control("POST", f"events/{event_id}/{then}").status == 409


@pytest.mark.parametrize(
    ("event_type", "source", "notice", "description"),
    [
        ("Freeze", "Platform", "22:26:58", "Virtual machine is being paused because of a memory-preserving"),
        ("Reboot", "User", "22:26:58", "Virtual machine is going to be restarted as requested by authorized user."),
        ("Redeploy", "Platform", "22:21:58", "Host server is undergoing maintenance."),
        ("Terminate", "Platform", "22:16:58", ""),
        ("Preempt", "Platform", "22:12:28", ""),
    ],
)
def test_an_event_has_the_documented_notice_and_words(
    azure: Simulated, event_type: str, source: str, notice: str, description: str
) -> None:
    azure.create(set="west", type=event_type, source=source)
    event = azure.document("WestNO_0")["Events"][0]
    assert notice in event["NotBefore"]
    assert event["Description"].startswith(description)
    assert bool(event["Description"]) == bool(description)


@pytest.mark.parametrize(
    "body",
    [
        b"not JSON",
        [],
        {},
        {"set": "nowhere", "type": "Reboot"},
        {"set": "west", "type": "Party"},
        {"set": "west", "type": "Reboot", "resources": []},
        {"set": "west", "type": "Reboot", "resources": ["workers_0"]},
        {"set": "west", "type": "Reboot", "notice_seconds": -1},
        {"set": "west", "type": "Reboot", "notice_seconds": True},
        b'{"set": "west", "type": "Reboot", "notice_seconds": NaN}',
        {"set": "west", "type": "Reboot", "duration_seconds": 1.5},
        {"set": "west", "type": "Reboot", "source": "Nature"},
        {"set": "west", "type": "Reboot", "starts_as": "Ended"},
        {"set": "west", "type": "Reboot", "event_id": "1"},
        {"set": "west", "type": "Reboot", "notise_seconds": 5},
    ],
)
def test_an_event_that_cannot_be_is_refused_with_a_reason(azure: Simulated, body: Any) -> None:
    answer = azure.control("POST", "events", body)
    assert answer.status == 400
    assert answer.json["error"]
    assert azure.control("GET", "events").json == []


def test_sets_of_one_name_are_distinguished_by_kind() -> None:
    whole = west_norway()
    whole["sets"][2]["name"] = "west"
    with simulated(whole) as azure:
        assert azure.control("POST", "events", {"set": "west", "type": "Preempt"}).status == 400
        azure.create(set="scale_set:west", type="Preempt")
        assert len(azure.document("workers_0")["Events"]) == 1
        assert azure.document("WestNO_0")["Events"] == []


def test_the_log_holds_every_metadata_request_newest_last(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    azure.get("WestNO_1", headers={"X-Own": "Value"})
    azure.approve("WestNO_0", event_id)
    first, second = azure.control("GET", "log").json
    assert (first["vm"], first["method"], first["status"], first["headers"]["x-own"]) == (
        "WestNO_1",
        "GET",
        400,
        "Value",
    )
    assert (second["vm"], second["method"], second["status"]) == ("WestNO_0", "POST", 200)
    assert second["path"] == "/vm/WestNO_0/metadata/scheduledevents?api-version=2020-07-01"
    assert event_id in second["body"]
    assert second["time"] == "2022-04-11T22:11:58.000000Z"


def test_the_log_can_be_read_in_parts(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    for vm in ("WestNO_0", "WestNO_1"):
        azure.get(vm)
        azure.approve(vm, event_id)

    def indexes(query: str) -> list[int]:
        return [entry["index"] for entry in azure.control("GET", f"log{query}").json]

    assert indexes("") == [1, 2, 3, 4]
    assert indexes("?since=2") == [3, 4]
    assert indexes("?method=POST") == [2, 4]
    assert indexes("?vm=WestNO_0&limit=1") == [2]


def test_the_clock_can_be_moved(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", notice_seconds=600)
    assert azure.control("POST", "clock", {"advance_seconds": 601}).json == {"now": "2022-04-11T22:21:59.000000Z"}
    assert azure.event(event_id)["status"] == "Started"
    azure.control("POST", "clock", {"at": "2022-04-12T00:00:00Z"})
    assert azure.event(event_id)["status"] == "Ended"
    assert azure.get("WestNO_0").headers["date"] == "Tue, 12 Apr 2022 00:00:00 GMT"


@pytest.mark.parametrize("body", [{}, {"advance_seconds": 1, "at": "2022-04-12T00:00:00Z"}, {"at": "tomorrow"}])
def test_the_clock_wants_one_of_two_words(azure: Simulated, body: dict[str, Any]) -> None:
    assert azure.control("POST", "clock", body).status == 400


def test_a_line_is_published_as_it_is_on_the_caches_server() -> None:
    url = os.environ["REDIS_URL"]
    whole = west_norway()
    whole["caches"][0]["server"] = url
    raw = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000 \u00e9"
    with redis.Redis.from_url(url) as client, client.pubsub() as listening, simulated(whole) as azure:
        listening.subscribe("AzureRedisEvents")
        assert listening.get_message(timeout=5)["type"] == "subscribe"
        answer = azure.control("POST", "redis", {"cache": "west.redis.cache.windows.net", "raw": raw})
        assert (answer.status, answer.json) == (200, {"subscribers": 1})
        assert listening.get_message(timeout=5)["data"] == raw.encode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"cache": "west.redis.cache.windows.net", "raw": "a|b"}, 409),
        ({"cache": "elsewhere", "raw": "a|b"}, 400),
        ({"cache": "west.redis.cache.windows.net", "play": "failover"}, 409),
    ],
)
def test_what_cannot_be_published_is_said(azure: Simulated, body: dict[str, str], status: int) -> None:
    answer = azure.control("POST", "redis", body)
    assert answer.status == status
    assert answer.json["error"]


def test_cache_without_a_server_is_502() -> None:
    whole = west_norway()
    whole["caches"][0]["server"] = "redis://127.0.0.1:1/0"
    with simulated(whole) as azure:
        answer = azure.control("POST", "redis", {"cache": "west.redis.cache.windows.net", "raw": "a|b"})
        assert answer.status == 502


def test_an_unknown_call_is_404(azure: Simulated) -> None:
    assert azure.control("GET", "weather").status == 404
    assert azure.control("GET", "events/00000000-0000-4000-8000-000000000000").status == 404


def test_control_calls_are_not_in_the_log(azure: Simulated) -> None:
    azure.create(set="west", type="Reboot")
    azure.get("WestNO_0", headers=METADATA)
    assert len(azure.control("GET", "log").json) == 1


def test_many_events_are_announced_by_one_call_over_so_many_seconds(azure: Simulated) -> None:
    events = [{"set": "west", "type": "Freeze", "notice_seconds": 60} for _ in range(4)]
    made = azure.control("POST", "events", {"events": events, "within_seconds": 60}).json["EventIds"]
    assert [azure.event(event_id)["status"] for event_id in made] == ["Scheduled", "Planned", "Planned", "Planned"]
    assert azure.control("POST", f"events/{made[1]}/start").status == 409
    azure.clock.advance(30)
    assert [one["EventId"] for one in azure.document("WestNO_0")["Events"]] == made[:3]
    # Each has its whole notice.
    azure.clock.advance(31)
    assert [azure.event(event_id)["status"] for event_id in made] == ["Started", "Scheduled", "Scheduled", "Scheduled"]


@pytest.mark.parametrize("events", ["west", [1], [{"set": "nowhere", "type": "Freeze"}]])
def test_many_events_that_are_none_are_refused(azure: Simulated, events: Any) -> None:
    assert azure.control("POST", "events", {"events": events}).status == 400


def test_changes_of_all_sets_are_read_in_one_call(azure: Simulated) -> None:
    assert azure.control("GET", "changes").json == {"next": 0, "sets": []}
    first = azure.create(set="west", type="Freeze")
    other = azure.create(set="workers", type="Reboot")
    told = azure.control("GET", "changes").json
    assert [[event["EventId"] for event in one["Events"]] for one in told["sets"]] == [[first], [other]]
    assert told["sets"][0]["Events"] == azure.document("WestNO_0")["Events"]
    # From there on only what changes.
    assert azure.control("GET", f"changes?since={told['next']}").json["sets"] == []
    azure.control("POST", f"events/{first}/cancel")
    later = azure.control("GET", f"changes?since={told['next']}").json
    assert [(one["set"].rpartition("/")[2], one["Events"]) for one in later["sets"]] == [("west", [])]
    assert azure.control("GET", "changes?since=west").status == 400
