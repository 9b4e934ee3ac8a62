"""What the metadata service refuses, with the bodies that Azure sends."""

from __future__ import annotations

import pytest

from tests.simulator.asking import EVENTS, METADATA, Simulated, ask, simulated

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


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_the_headers_value_counts_in_any_case(azure: Simulated, value: str) -> None:
    assert azure.get("WestNO_0", headers={"mETADATA": value}).status == 200


def test_only_the_preview_version_does_without_the_header(azure: Simulated) -> None:
    assert azure.get("WestNO_0", "/metadata/scheduledevents?api-version=2017-03-01", {}).status == 200
    assert azure.get("WestNO_0", "/metadata/scheduledevents?api-version=2017-08-01", {}).status == 400


PATHS = ["/metadata/scheduledevents", "/metadata/instance", "/metadata/attested/document", "/metadata/loadbalancer"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "query", ["", "?api-version=", "?api-version={latest}", "?api-version=latest", "?api-version=2031-01-01"]
)
def test_a_bad_or_missing_version_is_400(azure: Simulated, path: str, query: str) -> None:
    answer = azure.get("WestNO_0", path + query)
    assert (answer.status, answer.body) == (400, BAD_VERSION)


def test_a_version_of_the_instance_metadata_is_not_one_of_scheduled_events(azure: Simulated) -> None:
    assert azure.get("WestNO_0", "/metadata/scheduledevents?api-version=2021-02-01").body == BAD_VERSION


@pytest.mark.parametrize("target", [EVENTS, INSTANCE, ATTESTED, LOAD_BALANCER])
def test_a_forwarded_request_is_400(azure: Simulated, target: str) -> None:
    answer = azure.get("WestNO_0", target, {**METADATA, "X-Forwarded-For": "10.0.0.1"})
    assert answer.status == 400
    assert "X-Forwarded-For" in answer.json["error"]


@pytest.mark.parametrize("target", [EVENTS, INSTANCE, ATTESTED, LOAD_BALANCER])
def test_a_query_name_given_twice_is_400(azure: Simulated, target: str) -> None:
    assert azure.get("WestNO_0", f"{target}&api-version=2020-07-01").status == 400


def test_a_post_is_judged_as_strictly(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Reboot")
    payload = {"StartRequests": [{"EventId": event_id}]}
    url = f"{azure.url}/vm/WestNO_0"
    assert ask(url, "POST", EVENTS, body=payload).body == NO_HEADER
    assert ask(url, "POST", "/metadata/scheduledevents", headers=METADATA, body=payload).body == BAD_VERSION
    assert azure.event(event_id)["status"] == "Scheduled"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_405(azure: Simulated, method: str) -> None:
    assert ask(f"{azure.url}/vm/WestNO_0", method, EVENTS, headers=METADATA).status == 405


@pytest.mark.parametrize(
    "path",
    ["/vm/nobody/metadata/scheduledevents", "/vm/WestNO_0/metadata/attested", "/vm/WestNO_0", "/nowhere", EVENTS],
)
def test_what_is_not_there_is_404(azure: Simulated, path: str) -> None:
    assert ask(azure.url, "GET", path, headers=METADATA).status == 404


def test_one_machine_can_be_served_at_the_root_for_programs_with_a_fixed_address() -> None:
    with simulated(as_vm="workers_0") as azure:
        event_id = azure.create(set="workers", type="Preempt")
        at_root = ask(azure.url, "GET", EVENTS, headers=METADATA).json
        assert [event["EventId"] for event in at_root["Events"]] == [event_id]
        assert azure.document("workers_0") == at_root
