"""The control calls: events, log, clock, Redis, faults and the inbox."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from azure_simulator.http import Request
from azure_simulator.inbox import MOST, PATH, Inbox

from tests.processes import wait_for
from tests.simulator.asking import EVENTS, METADATA, Simulated, ask, simulated, west_norway


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


def lay(azure: Simulated, fault: str, vm: str = "WestNO_0", **fields: object) -> None:
    answer = azure.control("POST", "faults", {"vm": vm, "fault": fault, **fields})
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("status", [404, 410, 429, 500, 503])
def test_a_status_instead_of_an_answer(azure: Simulated, status: int) -> None:
    lay(azure, f"status-{status}", count=2)
    assert [azure.get("WestNO_0").status for _ in range(3)] == [status, status, 200]


def test_a_fault_without_count_or_seconds_bites_once(azure: Simulated) -> None:
    lay(azure, "empty")
    assert azure.get("WestNO_0").body == b""
    assert azure.document("WestNO_0")["Events"] == []


def test_a_fault_of_some_seconds_bites_until_they_are_over(azure: Simulated) -> None:
    lay(azure, "status-503", seconds=30)
    azure.clock.advance(29)
    assert [azure.get("WestNO_0").status for _ in range(3)] == [503, 503, 503]
    azure.clock.advance(1)
    assert azure.get("WestNO_0").status == 200


def test_a_fault_on_all_machines_bites_each_one(azure: Simulated) -> None:
    lay(azure, "status-500", vm="*")
    assert [azure.get(vm).status for vm in ("WestNO_0", "WestNO_1", "WestNO_0")] == [500, 500, 200]


def test_a_fault_on_posts_leaves_polls_alone(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    lay(azure, "status-500", method="POST")
    assert azure.get("WestNO_0").status == 200
    assert [azure.approve("WestNO_0", event_id) for _ in range(2)] == [500, 200]


def test_faults_do_not_affect_the_instance_metadata(azure: Simulated) -> None:
    lay(azure, "status-500")
    assert azure.get("WestNO_0", "/metadata/instance?api-version=2021-02-01").status == 200
    assert azure.get("WestNO_0").status == 500


def test_faults_can_be_taken_away(azure: Simulated) -> None:
    lay(azure, "empty", seconds=1000)
    azure.control("DELETE", "faults")
    assert azure.document("WestNO_0")["Events"] == []


def test_a_reset_cuts_the_connection(azure: Simulated) -> None:
    lay(azure, "reset")
    with pytest.raises(ConnectionResetError):
        azure.get("WestNO_0")
    assert azure.get("WestNO_0").status == 200


def test_hanging_machine_does_not_delay_others(azure: Simulated) -> None:
    lay(azure, "hang")
    outcome: list[type[BaseException]] = []

    def wait_in_vain() -> None:
        try:
            ask(f"{azure.url}/vm/WestNO_0", "GET", EVENTS, headers=METADATA, timeout=1)
        except TimeoutError as error:
            outcome.append(type(error))

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    while not azure.control("GET", "log").json:
        time.sleep(0.01)
    assert azure.get("WestNO_1").status == 200
    waiting.join()
    assert outcome == [TimeoutError]
    assert [entry["status"] for entry in azure.control("GET", "log?vm=WestNO_0").json] == [None]


def test_a_hang_ends_with_the_connection_closed(azure: Simulated) -> None:
    lay(azure, "hang", delay_seconds=0.05)
    with pytest.raises(http.client.RemoteDisconnected):
        azure.get("WestNO_0")


def test_a_slow_answer_comes_late_and_is_sound(azure: Simulated) -> None:
    lay(azure, "slow", delay_seconds=0.3)
    began = time.monotonic()
    assert azure.document("WestNO_0")["Events"] == []
    assert time.monotonic() - began >= 0.3


def test_a_late_answer_is_of_something_done_at_once(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    lay(azure, "late-answer", method="POST", delay_seconds=0.5)
    answered: list[int] = []
    asker = threading.Thread(target=lambda: answered.append(azure.approve("WestNO_0", event_id)))
    asker.start()
    wait_for(lambda: azure.event(event_id)["status"] == "Started", seconds=5, what="the event starts", every=0.01)
    assert answered == []
    asker.join(5)
    assert answered == [200]


def test_an_answer_cut_short(azure: Simulated) -> None:
    lay(azure, "cut-short")
    with pytest.raises(http.client.IncompleteRead):
        azure.get("WestNO_0")


def test_raw_newlines_make_json_that_only_a_lenient_reader_takes(azure: Simulated) -> None:
    azure.create(set="west", type="Reboot")
    lay(azure, "raw-newline")
    body = azure.get("WestNO_0").body
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert json.loads(body, strict=False)["Events"][0]["Description"].endswith("\n")


def test_a_wrong_weekday_leaves_the_date_right(azure: Simulated) -> None:
    azure.create(set="west", type="Reboot")
    right = azure.document("WestNO_0")["Events"][0]["NotBefore"]
    lay(azure, "wrong-weekday")
    wrong = azure.document("WestNO_0")["Events"][0]["NotBefore"]
    assert wrong[5:] == right[5:]
    assert datetime.strptime(wrong[5:], "%d %b %Y %H:%M:%S GMT").strftime("%a") != wrong[:3]  # noqa: DTZ007


def test_not_before_may_be_missing(azure: Simulated) -> None:
    azure.create(set="west", type="Reboot")
    lay(azure, "no-not-before")
    assert "NotBefore" not in azure.document("WestNO_0")["Events"][0]


def test_the_incarnation_jumps_and_stays_ahead(azure: Simulated) -> None:
    numbers = [azure.document("WestNO_0")["DocumentIncarnation"]]
    lay(azure, "incarnation-jump")
    numbers += [azure.document("WestNO_0")["DocumentIncarnation"] for _ in range(2)]
    assert numbers == [1, 4, 4]


def test_the_incarnation_is_reset_and_the_etag_is_not_mistaken(azure: Simulated) -> None:
    first = azure.get("WestNO_0")
    azure.create(set="west", type="Reboot")
    azure.get("WestNO_0")
    lay(azure, "incarnation-reset")
    again = azure.get("WestNO_0", headers={**METADATA, "If-None-Match": first.headers["etag"]})
    assert (again.status, again.json["DocumentIncarnation"]) == (200, 1)


@pytest.mark.parametrize(
    "body",
    [
        {"vm": "nobody", "fault": "empty"},
        {"vm": "*", "fault": "boredom"},
        {"vm": "*", "fault": "empty", "count": 0},
        {"vm": "*", "fault": "empty", "count": 1.5},
        {"vm": "*", "fault": "empty", "seconds": "long"},
        {"vm": "*", "fault": "empty", "colour": "red"},
        {"fault": "empty"},
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_a_reason(azure: Simulated, body: dict[str, object]) -> None:
    answer = azure.control("POST", "faults", body)
    assert answer.status == 400
    assert answer.json["error"]
    assert azure.control("GET", "faults").json == []


NOW = datetime(2026, 11, 22, tzinfo=UTC)


def call(inbox: Inbox, method: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = inbox.answer(Request(method, PATH, named, body, b""), NOW)
    return answer.status, answer.body


def test_received_messages_are_listed_newest_first() -> None:
    inbox = Inbox()
    assert call(inbox, "GET") == (200, b"[]")
    for number in range(MOST + 2):
        assert call(inbox, "POST", json.dumps({"type": f"t{number}"}).encode(), webhook_id=str(number))[0] == 204
    kept = json.loads(call(inbox, "GET")[1])
    assert len(kept) == MOST
    assert (kept[0]["id"], kept[0]["message"]) == (str(MOST + 1), {"type": f"t{MOST + 1}"})


def test_what_is_no_json_is_refused() -> None:
    inbox = Inbox()
    assert call(inbox, "POST", b"<html>")[0] == 400
    assert call(inbox, "DELETE")[0] == 405
    assert call(inbox, "GET") == (200, b"[]")
