"""The simulator's faults: each affects the chosen machines for its count or time, and an invalid one is refused."""

from __future__ import annotations

import http.client
import json
import threading
import time
from datetime import datetime

import pytest

from tests.simulator.asking import EVENTS, METADATA, Simulated, ask


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
    deadline = time.monotonic() + 5
    while azure.control("GET", f"events/{event_id}").json["status"] != "Started" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert azure.control("GET", f"events/{event_id}").json["status"] == "Started"
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
