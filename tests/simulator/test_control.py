"""The control calls: events, log, clock, Redis, faults and the inbox."""

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

CACHE = "west.redis.cache.windows.net"


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


@pytest.mark.parametrize("moves", [("start", "cancel"), ("cancel", "start"), ("complete",) * 2, ("cancel",) * 2])
def test_a_move_that_does_not_exist_is_409(azure: Simulated, moves: tuple[str, str]) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert [azure.control("POST", f"events/{event_id}/{move}").status for move in moves] == [200, 409]


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


REBOOT = {"set": "west", "type": "Reboot"}
# Values that no call takes, by the field that they would have.
WRONG_EVENT: dict[str, list[object]] = {"set": ["nowhere"], "type": ["Party"], "resources": [[], ["workers_0"]]}
WRONG_EVENT |= {"notice_seconds": [-1, True, float("nan")], "duration_seconds": [1.5], "source": ["Nature"]}
WRONG_EVENT |= {"starts_as": ["Ended"], "event_id": ["1"], "notise_seconds": [5]}
WRONG_FAULT: dict[str, list[object]] = {"vm": ["nobody"], "fault": ["boredom"], "count": [0, 1.5], "seconds": ["long"]}
WRONG_FAULT["colour"] = ["red"]
WRONG = [
    *(("events", body) for body in (b"not JSON", [], {})),
    *(("events", {**REBOOT, name: value}) for name, values in WRONG_EVENT.items() for value in values),
    *(("events", {"events": events}) for events in ("west", [1], [{"set": "nowhere", "type": "Freeze"}])),
    ("faults", {"fault": "empty"}),
    *(
        ("faults", {"vm": "*", "fault": "empty", name: value})
        for name, values in WRONG_FAULT.items()
        for value in values
    ),
    *(("clock", body) for body in ({}, {"advance_seconds": 1, "at": "2022-04-12T00:00:00Z"}, {"at": "tomorrow"})),
    ("redis", {"cache": "elsewhere", "raw": "a|b"}),
]


@pytest.mark.parametrize(("call", "body"), WRONG)
def test_what_cannot_be_is_refused_with_a_reason(azure: Simulated, call: str, body: Any) -> None:
    answer = azure.control("POST", call, body)
    assert answer.status == 400 and answer.json["error"]
    assert azure.control("GET", "events").json == azure.control("GET", "faults").json == []


def test_sets_of_one_name_are_distinguished_by_kind() -> None:
    whole = west_norway()
    whole["sets"][2]["name"] = "west"
    with simulated(whole) as azure:
        assert azure.control("POST", "events", {"set": "west", "type": "Preempt"}).status == 400
        azure.create(set="scale_set:west", type="Preempt")
        assert len(azure.document("workers_0")["Events"]) == 1
        assert azure.document("WestNO_0")["Events"] == []


def test_the_log_holds_every_metadata_request_newest_last_and_is_read_in_parts(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    azure.get("WestNO_1", headers={"X-Own": "Value"})
    for vm in ("WestNO_0", "WestNO_1"):
        azure.approve(vm, event_id)
    first, second, _ = azure.control("GET", "log").json
    assert [first[name] for name in ("vm", "method", "status")] == ["WestNO_1", "GET", 400]
    assert first["headers"]["x-own"] == "Value"
    assert [second[name] for name in ("vm", "method", "status")] == ["WestNO_0", "POST", 200]
    assert second["path"] == "/vm/WestNO_0/metadata/scheduledevents?api-version=2020-07-01"
    assert event_id in second["body"]
    assert second["time"] == "2022-04-11T22:11:58.000000Z"
    for query, indexes in (("since=1", [2, 3]), ("method=GET", [1]), ("vm=WestNO_1&limit=1", [3])):
        assert [entry["index"] for entry in azure.control("GET", f"log?{query}").json] == indexes


def test_the_clock_can_be_moved(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", notice_seconds=600)
    assert azure.control("POST", "clock", {"advance_seconds": 601}).json == {"now": "2022-04-11T22:21:59.000000Z"}
    assert azure.event(event_id)["status"] == "Started"
    azure.control("POST", "clock", {"at": "2022-04-12T00:00:00Z"})
    assert azure.event(event_id)["status"] == "Ended"
    assert azure.get("WestNO_0").headers["date"] == "Tue, 12 Apr 2022 00:00:00 GMT"


def test_a_line_is_published_as_it_is_on_the_caches_server() -> None:
    url = os.environ["REDIS_URL"]
    whole = west_norway()
    whole["caches"][0]["server"] = url
    raw = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000 \u00e9"
    with redis.Redis.from_url(url) as client, client.pubsub() as listening, simulated(whole) as azure:
        listening.subscribe("AzureRedisEvents")
        assert listening.get_message(timeout=5)["type"] == "subscribe"
        answer = azure.control("POST", "redis", {"cache": CACHE, "raw": raw})
        assert (answer.status, answer.json) == (200, {"subscribers": 1})
        assert listening.get_message(timeout=5)["data"] == raw.encode()


@pytest.mark.parametrize(
    ("server", "said", "status"),
    [("", {"raw": "a|b"}, 409), ("", {"play": "failover"}, 409), ("redis://127.0.0.1:1/0", {"raw": "a|b"}, 502)],
)
def test_a_cache_without_a_server_publishes_nothing(server: str, said: dict[str, str], status: int) -> None:
    whole = west_norway()
    whole["caches"][0] |= {"server": server} if server else {}
    with simulated(whole) as azure:
        answer = azure.control("POST", "redis", {"cache": CACHE, **said})
        assert answer.status == status and answer.json["error"]


def test_an_unknown_call_is_404(azure: Simulated) -> None:
    assert azure.control("GET", "weather").status == 404
    assert azure.control("GET", "events/00000000-0000-4000-8000-000000000000").status == 404


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


def test_changes_of_all_sets_are_read_in_one_call(azure: Simulated) -> None:
    assert azure.control("GET", "changes").json == {"next": 0, "sets": []}
    first = azure.create(set="west", type="Freeze")
    other = azure.create(set="workers", type="Reboot")
    changes = azure.control("GET", "changes").json
    assert [[event["EventId"] for event in one["Events"]] for one in changes["sets"]] == [[first], [other]]
    assert changes["sets"][0]["Events"] == azure.document("WestNO_0")["Events"]
    # From there on only what changes.
    assert azure.control("GET", f"changes?since={changes['next']}").json["sets"] == []
    azure.control("POST", f"events/{first}/cancel")
    later = azure.control("GET", f"changes?since={changes['next']}").json
    assert [(one["set"].rpartition("/")[2], one["Events"]) for one in later["sets"]] == [("west", [])]
    assert azure.control("GET", "changes?since=west").status == 400


def lay(azure: Simulated, fault: str, vm: str = "WestNO_0", **fields: object) -> None:
    answer = azure.control("POST", "faults", {"vm": vm, "fault": fault, **fields})
    assert answer.status == 200, answer.body


def test_a_fault_bites_once_for_some_seconds_or_until_it_is_taken_away(azure: Simulated) -> None:
    lay(azure, "empty")
    assert [bool(azure.get("WestNO_0").body) for _ in range(2)] == [False, True]
    lay(azure, "status-503", seconds=30)
    azure.clock.advance(29)
    assert [azure.get("WestNO_0").status for _ in range(3)] == [503, 503, 503]
    azure.clock.advance(1)
    assert azure.get("WestNO_0").status == 200
    lay(azure, "empty", seconds=1000)
    azure.control("DELETE", "faults")
    assert azure.document("WestNO_0")["Events"] == []


def test_a_fault_bites_the_requests_that_it_is_laid_for(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    lay(azure, "status-500", vm="*")
    assert [azure.get(vm).status for vm in ("WestNO_0", "WestNO_1", "WestNO_0")] == [500, 500, 200]
    lay(azure, "status-500", method="POST")
    assert azure.get("WestNO_0").status == 200
    assert [azure.approve("WestNO_0", event_id) for _ in range(2)] == [500, 200]
    lay(azure, "status-500")
    assert azure.get("WestNO_0", "/metadata/instance?api-version=2021-02-01").status == 200
    assert azure.get("WestNO_0").status == 500


@pytest.mark.parametrize(
    ("fault", "more", "error"),
    [
        ("reset", {}, ConnectionResetError),
        ("hang", {"delay_seconds": 0.05}, http.client.RemoteDisconnected),
        ("cut-short", {}, http.client.IncompleteRead),
    ],
)
def test_a_connection_ends_before_its_answer(
    azure: Simulated, fault: str, more: dict[str, float], error: type[Exception]
) -> None:
    lay(azure, fault, **more)
    with pytest.raises(error):
        azure.get("WestNO_0")
    assert azure.get("WestNO_0").status == 200


def test_hanging_machine_does_not_delay_others(azure: Simulated) -> None:
    lay(azure, "hang")

    def wait_in_vain() -> None:
        with pytest.raises(TimeoutError):
            ask(f"{azure.url}/vm/WestNO_0", "GET", EVENTS, headers=METADATA, timeout=1)

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    while not azure.control("GET", "log").json:
        time.sleep(0.01)
    assert azure.get("WestNO_1").status == 200
    waiting.join()
    assert [entry["status"] for entry in azure.control("GET", "log?vm=WestNO_0").json] == [None]


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
    assert (wrong[5:], wrong[:3] != right[:3]) == (right[5:], True)


def test_a_reset_incarnation_is_not_mistaken_for_the_one_of_the_etag(azure: Simulated) -> None:
    first = azure.get("WestNO_0")
    azure.create(set="west", type="Reboot")
    azure.get("WestNO_0")
    lay(azure, "incarnation-reset")
    again = azure.get("WestNO_0", headers={**METADATA, "If-None-Match": first.headers["etag"]})
    assert (again.status, again.json["DocumentIncarnation"]) == (200, 1)


NOW = datetime(2026, 11, 22, tzinfo=UTC)


def call(inbox: Inbox, method: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = inbox.answer(Request(method, PATH, named, body, b""), NOW)
    return answer.status, answer.body


def test_received_messages_are_listed_newest_first() -> None:
    inbox = Inbox()
    assert call(inbox, "POST", b"<html>")[0] == 400
    assert call(inbox, "DELETE")[0] == 405
    assert call(inbox, "GET") == (200, b"[]")
    for number in range(MOST + 2):
        assert call(inbox, "POST", json.dumps({"type": f"t{number}"}).encode(), webhook_id=str(number))[0] == 204
    messages = json.loads(call(inbox, "GET")[1])
    assert len(messages) == MOST
    assert (messages[0]["id"], messages[0]["message"]) == (str(MOST + 1), {"type": f"t{MOST + 1}"})
