"""What a machine reads: versions, incarnations, ETags, several sets and several events."""

from __future__ import annotations

import pytest

from tests.simulator.asking import METADATA, Simulated

BASE = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]


@pytest.mark.parametrize(
    ("version", "extra"),
    [
        ("2017-03-01", []),
        ("2017-08-01", []),
        ("2017-11-01", []),
        ("2019-01-01", []),
        ("2019-04-01", ["Description"]),
        ("2019-08-01", ["Description", "EventSource"]),
        ("2020-07-01", ["Description", "EventSource", "DurationInSeconds"]),
        ("2024-07-09", ["Description", "EventSource", "DurationInSeconds"]),
    ],
)
def test_each_version_has_its_own_fields(azure: Simulated, version: str, extra: list[str]) -> None:
    azure.create(set="west", type="Reboot")
    assert list(azure.document("WestNO_0", version)["Events"][0]) == BASE + extra


@pytest.mark.parametrize(
    ("event_type", "first_version", "version_before"),
    [
        ("Preempt", "2017-11-01", "2017-08-01"),
        ("Terminate", "2019-01-01", "2017-11-01"),
        ("SpotRebalanceRecommendation", "2024-07-09", "2020-07-01"),
    ],
)
def test_a_version_leaves_out_types_that_came_later(
    azure: Simulated, event_type: str, first_version: str, version_before: str
) -> None:
    azure.create(set="workers", type=event_type)
    assert [e["EventType"] for e in azure.document("workers_0", first_version)["Events"]] == [event_type]
    assert azure.document("workers_0", version_before)["Events"] == []


def test_the_first_version_has_an_underscore_before_names_of_iaas_machines_only(azure: Simulated) -> None:
    azure.create(set="west", type="Freeze", resources=["WestNO_1"])
    azure.create(set="legacy", type="Freeze")
    assert azure.document("WestNO_0", "2017-03-01")["Events"][0]["Resources"] == ["_WestNO_1"]
    assert azure.document("FrontEnd_IN_0", "2017-03-01")["Events"][0]["Resources"] == ["FrontEnd_IN_0"]


def test_event_is_listed_by_every_machine_of_its_set_only(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", resources=["WestNO_1"])
    assert [e["EventId"] for e in azure.document("WestNO_0")["Events"]] == [event_id]
    assert [e["EventId"] for e in azure.document("WestNO_1")["Events"]] == [event_id]
    assert azure.document("workers_0")["Events"] == []


def test_several_events_stand_side_by_side_and_each_keeps_its_id(azure: Simulated) -> None:
    first = azure.create(set="west", type="Freeze")
    second = azure.create(set="west", type="Reboot", source="User")
    assert first == first.upper()
    azure.approve("WestNO_0", second)
    statuses = {e["EventId"]: e["EventStatus"] for e in azure.document("WestNO_1")["Events"]}
    assert statuses == {first: "Scheduled", second: "Started"}


def test_a_hardware_failure_has_no_scheduled_phase(azure: Simulated) -> None:
    azure.create(set="west", type="Reboot", starts_as="Started")
    event = azure.document("WestNO_0")["Events"][0]
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")
    assert event["Description"] == "Virtual machine has encountered a failure."


def test_the_incarnation_is_the_machines_own(azure: Simulated) -> None:
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 1
    azure.create(set="west", type="Reboot")
    # The other one calls for the first time: its service begins here.
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 2
    assert azure.document("WestNO_1")["DocumentIncarnation"] == 1


def test_changes_between_two_polls_leave_numbers_out(azure: Simulated) -> None:
    azure.document("WestNO_0")
    event_id = azure.create(set="west", type="Reboot")
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 2
    azure.control("POST", f"events/{event_id}/complete")
    assert azure.document("WestNO_0") == {"DocumentIncarnation": 4, "Events": []}


def test_incarnation_restarts_after_a_day_without_a_call(azure: Simulated) -> None:
    azure.document("WestNO_0")
    azure.create(set="west", type="Reboot", notice_seconds=1_000_000)
    azure.document("WestNO_0")
    azure.clock.advance(24 * 3600)
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 2
    azure.clock.advance(24 * 3600 + 1)
    again = azure.document("WestNO_0")
    assert again["DocumentIncarnation"] == 1
    assert len(again["Events"]) == 1


def test_an_unchanged_document_is_304_by_its_etag(azure: Simulated) -> None:
    first = azure.get("WestNO_0")
    same = azure.get("WestNO_0", headers={**METADATA, "If-None-Match": first.headers["etag"]})
    assert (same.status, same.body) == (304, b"")
    azure.create(set="west", type="Reboot")
    changed = azure.get("WestNO_0", headers={**METADATA, "If-None-Match": first.headers["etag"]})
    assert changed.status == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_the_answer_carries_the_headers_of_the_service(azure: Simulated) -> None:
    headers = azure.get("WestNO_0").headers
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["server"].startswith("IMDS/")
    assert headers["x-ms-request-id"] != azure.get("WestNO_0").headers["x-ms-request-id"]
    assert headers["date"] == "Mon, 11 Apr 2022 22:11:58 GMT"


def test_an_event_never_starts_before_its_not_before(azure: Simulated) -> None:
    azure.clock.advance(0.4)
    event_id = azure.create(set="west", type="Reboot", notice_seconds=60)
    # 22:12:58.4 does not fit into a NotBefore; the next whole second does.
    assert azure.document("WestNO_0")["Events"][0]["NotBefore"] == "Mon, 11 Apr 2022 22:12:59 GMT"
    azure.clock.advance(60.5)
    assert azure.event(event_id)["status"] == "Scheduled"
    azure.clock.advance(0.1)
    assert azure.event(event_id)["started_at"] == "2022-04-11T22:12:59.000000Z"


def test_step_that_became_due_between_polls_has_its_due_time(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", notice_seconds=60, started_seconds=30)
    azure.clock.advance(3600)
    event = azure.event(event_id)
    assert (event["status"], event["ended_as"], event["started_by"]) == ("Ended", "completed", "not_before")
    assert event["started_at"] == "2022-04-11T22:12:58.000000Z"
    assert event["ended_at"] == "2022-04-11T22:13:28.000000Z"
