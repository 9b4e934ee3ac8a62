"""The simulated scheduled events: documents and their numbers, approvals, and what the service refuses."""

import json
from typing import Any

import pytest

from tests.simulator.asking import EVENTS, METADATA, VERSION, Simulated, ask

BASE = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]


@pytest.mark.parametrize(
    ("versions", "extra"),
    [
        (["2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01"], []),
        (["2019-04-01"], ["Description"]),
        (["2019-08-01"], ["Description", "EventSource"]),
        (["2020-07-01", "2024-07-09"], ["Description", "EventSource", "DurationInSeconds"]),
    ],
)
def test_each_version_has_its_own_fields(azure: Simulated, versions: list[str], extra: list[str]) -> None:
    azure.create(set="west", type="Reboot")
    for version in versions:
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


def test_the_incarnation_is_the_machines_own_and_changes_between_two_polls_leave_numbers_out(azure: Simulated) -> None:
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 1
    event_id = azure.create(set="west", type="Reboot")
    # The other one calls for the first time: its service begins here.
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 2
    assert azure.document("WestNO_1")["DocumentIncarnation"] == 1
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


UNKNOWN = "00000000-0000-4000-8000-000000000000"


def post(azure: Simulated, body: Any, headers: dict[str, str] | None = None, *, version: str = VERSION) -> int:
    target = f"/metadata/scheduledevents?api-version={version}"
    return ask(f"{azure.url}/vm/WestNO_0", "POST", target, headers={**METADATA, **(headers or {})}, body=body).status


def test_any_machine_of_the_set_may_start_an_event_for_all(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot", resources=["WestNO_1"])
    assert azure.approve("WestNO_0", event_id) == 200
    event = azure.event(event_id)
    assert (event["status"], event["started_by"]) == ("Started", "approval")
    assert [approval["vm"] for approval in event["approvals"]] == ["WestNO_0"]


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


def test_an_event_of_no_set_of_another_or_that_is_over_refuses_the_whole_request(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert azure.approve("WestNO_0", event_id, UNKNOWN) == azure.approve("workers_0", event_id) == 400
    assert (azure.event(event_id)["status"], azure.event(event_id)["approvals"]) == ("Scheduled", [])
    azure.control("POST", f"events/{event_id}/cancel")
    assert azure.approve("WestNO_0", event_id) == 400


BODIES: list[object] = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, {}]
WISHES: list[object] = [
    [],
    {},
    ["C7061BAC-AFDC-4513-B24B-AA5F13A16123"],
    *([{"EventId": name}] for name in (7, "none")),
]


@pytest.mark.parametrize("body", [*BODIES, *({"StartRequests": wish} for wish in [*WISHES, [{}]])])
def test_a_malformed_request_is_400(azure: Simulated, body: Any) -> None:
    event_id = azure.create(set="west", type="Reboot")
    assert post(azure, body) == 400
    assert azure.event(event_id)["status"] == "Scheduled"


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
@pytest.mark.parametrize("version", ["2020-07-01", "2017-08-01"])
@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", "text/plain"])
def test_any_spelling_of_an_id_version_and_content_type_will_do(
    azure: Simulated, content_type: str, version: str, spelling: Any
) -> None:
    event_id = azure.create(set="west", type="Reboot")
    body = json.dumps({"StartRequests": [{"EventId": spelling(event_id)}], "DocumentIncarnation": 5}).encode()
    assert post(azure, body, {"Content-Type": content_type}, version=version) == 200
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


NO_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'

BAD_VERSION = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request. For more information refer to '
    b'aka.ms/azureimds","newest-versions":["2025-04-07","2024-07-17","2024-03-15"]}'
)

INSTANCE = "/metadata/instance?api-version=2021-02-01"

ATTESTED = "/metadata/attested/document?api-version=2021-02-01"

LOAD_BALANCER = "/metadata/loadbalancer?api-version=2021-02-01"


@pytest.mark.parametrize("target", [EVENTS, INSTANCE, ATTESTED, LOAD_BALANCER, "/metadata/versions"])
@pytest.mark.parametrize("headers", [{}, {"Metadata": "false"}, {"Metadata": ""}])
def test_without_the_metadata_header_it_is_400(azure: Simulated, target: str, headers: dict[str, str]) -> None:
    answer = azure.get("WestNO_0", target, headers)
    assert (answer.status, answer.body) == (400, NO_HEADER)


def test_only_the_preview_version_does_without_the_header_whose_value_counts_in_any_case(azure: Simulated) -> None:
    assert [azure.get("WestNO_0", headers={"mETADATA": value}).status for value in ("true", "True", "TRUE")] == [
        200
    ] * 3
    assert azure.get("WestNO_0", "/metadata/scheduledevents?api-version=2017-03-01", {}).status == 200
    assert azure.get("WestNO_0", "/metadata/scheduledevents?api-version=2017-08-01", {}).status == 400


TARGETS = [EVENTS, INSTANCE, ATTESTED, LOAD_BALANCER]


@pytest.mark.parametrize("path", [target.partition("?")[0] for target in TARGETS])
@pytest.mark.parametrize(
    "query", ["", "?api-version=", "?api-version={latest}", "?api-version=latest", "?api-version=2031-01-01"]
)
def test_a_bad_or_missing_version_is_400(azure: Simulated, path: str, query: str) -> None:
    answer = azure.get("WestNO_0", path + query)
    assert (answer.status, answer.body) == (400, BAD_VERSION)


def test_a_version_of_the_instance_metadata_is_not_one_of_scheduled_events(azure: Simulated) -> None:
    assert azure.get("WestNO_0", "/metadata/scheduledevents?api-version=2021-02-01").body == BAD_VERSION


@pytest.mark.parametrize("target", TARGETS)
def test_a_forwarded_request_and_a_query_name_given_twice_are_400(azure: Simulated, target: str) -> None:
    answer = azure.get("WestNO_0", target, {**METADATA, "X-Forwarded-For": "10.0.0.1"})
    assert answer.status == 400 and "X-Forwarded-For" in answer.json["error"]
    assert azure.get("WestNO_0", f"{target}&api-version=2020-07-01").status == 400


def test_a_post_is_judged_as_strictly(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    payload = {"StartRequests": [{"EventId": event_id}]}
    url = f"{azure.url}/vm/WestNO_0"
    assert ask(url, "POST", EVENTS, body=payload).body == NO_HEADER
    assert ask(url, "POST", "/metadata/scheduledevents", headers=METADATA, body=payload).body == BAD_VERSION
    assert azure.event(event_id)["status"] == "Scheduled"


def test_other_methods_are_405_and_other_paths_404(azure: Simulated) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        assert ask(f"{azure.url}/vm/WestNO_0", method, EVENTS, headers=METADATA).status == 405
    for path in (
        "/vm/nobody/metadata/scheduledevents",
        "/vm/WestNO_0/metadata/attested",
        "/vm/WestNO_0",
        "/no",
        EVENTS,
    ):
        assert ask(azure.url, "GET", path, headers=METADATA).status == 404
