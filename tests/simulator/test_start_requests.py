"""StartRequests at the simulator: it approves events as Azure documents it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulator.asking import EVENTS, METADATA, Simulated, ask

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def post(azure: Simulated, body: Any, headers: dict[str, str] | None = None) -> int:
    return ask(f"{azure.url}/vm/WestNO_0", "POST", EVENTS, headers={**METADATA, **(headers or {})}, body=body).status


def test_any_machine_of_the_set_may_start_an_event_for_all(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", resources=["WestNO_1"])
    assert azure.approve("WestNO_0", event_id) == 200
    event = azure.event(event_id)
    assert (event["status"], event["started_by"]) == ("Started", "approval")
    assert [approval["vm"] for approval in event["approvals"]] == ["WestNO_0"]


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
def test_an_id_counts_in_any_case(azure: Simulated, spelling: Any) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert azure.approve("WestNO_0", spelling(event_id)) == 200
    assert azure.event(event_id)["status"] == "Started"


def test_a_repeated_approval_is_200_and_starts_once(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    azure.document("WestNO_0")
    assert [azure.approve(vm, event_id) for vm in ("WestNO_0", "WestNO_1", "WestNO_0")] == [200, 200, 200]
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 2
    assert [approval["vm"] for approval in azure.event(event_id)["approvals"]] == ["WestNO_0", "WestNO_1", "WestNO_0"]


def test_one_request_may_name_several_events(azure: Simulated) -> None:
    ids = [azure.create(set="west", type="Reboot"), azure.create(set="west", type="Freeze")]
    assert azure.approve("WestNO_0", *ids) == 200
    assert [e["EventStatus"] for e in azure.document("WestNO_0")["Events"]] == ["Started", "Started"]


def test_a_request_that_names_an_unknown_event_is_refused_as_a_whole(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert azure.approve("WestNO_0", event_id, UNKNOWN) == 400
    assert azure.event(event_id)["status"] == "Scheduled"


def test_an_event_of_another_set_is_unknown(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert azure.approve("workers_0", event_id) == 400
    assert azure.event(event_id)["approvals"] == []


def test_an_event_that_is_over_is_unknown(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    azure.control("POST", f"events/{event_id}/cancel")
    assert azure.approve("WestNO_0", event_id) == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        {},
        {"StartRequests": []},
        {"StartRequests": {}},
        {"StartRequests": ["C7061BAC-AFDC-4513-B24B-AA5F13A16123"]},
        {"StartRequests": [{}]},
        {"StartRequests": [{"EventId": 7}]},
        {"StartRequests": [{"EventId": "not a GUID"}]},
        b"[" * 100_000,
    ],
)
def test_a_malformed_request_is_400(azure: Simulated, body: Any) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert post(azure, body) == 400
    assert azure.event(event_id)["status"] == "Scheduled"


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", "text/plain"])
def test_any_content_type_will_do(azure: Simulated, content_type: str) -> None:
    event_id = azure.create(set="west", type="Reboot")
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
    assert post(azure, body, {"Content-Type": content_type}) == 200


def test_another_version_than_that_of_the_get_will_do(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    body = {"StartRequests": [{"EventId": event_id}], "DocumentIncarnation": 5}
    target = "/metadata/scheduledevents?api-version=2017-08-01"
    assert ask(f"{azure.url}/vm/WestNO_0", "POST", target, headers=METADATA, body=body).status == 200
    assert azure.event(event_id)["status"] == "Started"


def test_other_tenants_delay_the_start_even_beyond_not_before(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", notice_seconds=10)
    azure.control("POST", "faults", {"vm": "WestNO_0", "fault": "tenants-delay", "delay_seconds": 40})
    assert azure.approve("WestNO_0", event_id) == 200
    # A repeat, now without the fault, must not bring it forward.
    assert azure.approve("WestNO_1", event_id) == 200
    azure.clock.advance(39)
    assert azure.document("WestNO_0")["Events"][0]["EventStatus"] == "Scheduled"
    azure.clock.advance(1)
    assert azure.document("WestNO_0")["Events"][0]["EventStatus"] == "Started"
    assert azure.event(event_id)["started_by"] == "approval"


def test_advice_is_acknowledged_and_nothing_starts(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="SpotRebalanceRecommendation", notice_seconds=60)
    assert azure.approve("WestNO_0", event_id) == 200
    assert azure.event(event_id)["status"] == "Scheduled"
    azure.control("POST", "clock", {"advance_seconds": 61})
    azure.document("WestNO_0")
    event = azure.event(event_id)
    assert (event["status"], event["started_at"]) == ("Ended", None)
