"""What happens to the machines themselves: interruptions, deletion, and a service that is switched off."""

import http.client
import time

import pytest
from azure_simulator import fleet
from azure_simulator.child_process import RunningSimulator

from tests.simulator.asking import EVENTS, METADATA, VERSION, Simulated, ask, simulated, west_norway

DAY = 24 * 3600


def exists(azure: Simulated) -> dict[str, bool]:
    return {machine["id"]: machine["exists"] for machine in azure.control("GET", "machines").json}


def impact(azure: Simulated, event_id: str, seconds: float) -> int:
    return azure.control("POST", f"events/{event_id}/impact", {"seconds": seconds}).status


def test_while_started_there_may_be_further_impacts_shorter_than_announced(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Freeze", duration_seconds=5)
    assert impact(azure, event_id, 5) == 409, "not while it is Scheduled"
    azure.approve("WestNO_0", event_id)
    before = azure.document("WestNO_0")
    assert [impact(azure, event_id, seconds) for seconds in (6, 5, 5, 0.2)] == [409, 200, 409, 200]
    azure.clock.advance(1)
    assert [one["seconds"] for one in azure.event(event_id)["impacts"]] == [5, 0.2]
    assert azure.document("WestNO_0") == before, "still Started, and the document does not tell"
    azure.control("POST", f"events/{event_id}/complete")
    assert impact(azure, event_id, 0.1) == 409, "once it is gone there is no further impact"


def test_an_interrupted_machine_gets_its_answer_afterwards_and_others_at_once(azure: Simulated) -> None:
    event_id = azure.create(set="west", type="Freeze", resources=["WestNO_0"], starts_as="Started")
    assert impact(azure, event_id, 2) == 200
    begun = time.monotonic()
    assert azure.get("WestNO_1").status == 200
    assert time.monotonic() - begun < 1.8
    assert azure.get("WestNO_0").status == 200
    assert time.monotonic() - begun > 1.8


@pytest.mark.parametrize("event_type", ["Preempt", "Terminate"])
def test_a_machine_that_was_deleted_answers_no_more(azure: Simulated, event_type: str) -> None:
    event_id = azure.create(set="west", type=event_type, resources=["WestNO_0"])
    azure.approve("WestNO_0", event_id)
    assert azure.get("WestNO_0").status == 200, "until it is over"
    azure.control("POST", f"events/{event_id}/complete")
    with pytest.raises(http.client.RemoteDisconnected):
        azure.get("WestNO_0")
    with pytest.raises(http.client.RemoteDisconnected):
        azure.get("WestNO_0", "/metadata/instance?api-version=2021-02-01")
    assert azure.document("WestNO_1")["Events"] == []
    assert exists(azure) == {"WestNO_0": False, "WestNO_1": True, "FrontEnd_IN_0": True, "workers_0": True}


def test_a_cancelled_deletion_and_other_events_delete_nothing(azure: Simulated) -> None:
    cancelled = azure.create(set="west", type="Preempt", resources=["WestNO_0"])
    azure.control("POST", f"events/{cancelled}/cancel")
    redeployed = azure.create(set="west", type="Redeploy", resources=["WestNO_0"])
    azure.control("POST", f"events/{redeployed}/complete")
    assert exists(azure)["WestNO_0"]


def test_deleted_machine_returns_with_a_restarted_incarnation(azure: Simulated) -> None:
    azure.document("WestNO_0")
    event_id = azure.create(set="west", type="Terminate", resources=["WestNO_0"], back_after_seconds=60)
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 2
    azure.control("POST", f"events/{event_id}/complete")
    azure.clock.advance(59)
    assert not exists(azure)["WestNO_0"]
    azure.clock.advance(1)
    assert azure.document("WestNO_0")["DocumentIncarnation"] == 1


def test_the_first_call_is_slow_and_so_is_the_first_one_after_a_day() -> None:
    with RunningSimulator(west_norway(), first_call_seconds=1.5) as simulator:

        def took(vm: str) -> float:
            begun = time.monotonic()
            answer = ask(simulator.vm_url(vm), "GET", EVENTS, headers=METADATA)
            assert answer.status == 200
            incarnations.append(answer.json["DocumentIncarnation"])
            return time.monotonic() - begun

        incarnations: list[int] = []
        # A refused call does not switch the service on.
        assert ask(simulator.vm_url("WestNO_0"), "GET", EVENTS).status == 400
        assert took("WestNO_0") > 1.4
        assert took("WestNO_0") < 1.4
        simulator.events.create(set="west", type="Freeze", notice_seconds=3 * DAY)
        assert took("WestNO_0") < 1.4
        simulator.advance(DAY - 60)
        assert took("WestNO_0") < 1.4, "asked within the day"
        simulator.advance(DAY + 60)
        assert took("WestNO_0") > 1.4, "a day without a call switched it off"
        assert incarnations == [1, 1, 2, 2, 1], "and the incarnation starts again"


def test_any_rate_is_answered_unless_the_simulator_limits_it(azure: Simulated) -> None:
    assert {azure.get("WestNO_0").status for _ in range(50)} == {200}
    azure.clock.advance(3600)
    assert azure.get("WestNO_0").status == 200


def test_more_than_five_requests_a_second_are_throttled() -> None:
    with RunningSimulator(west_norway(), most_a_second=5) as simulator:
        targets = [EVENTS, "/metadata/instance?api-version=2021-02-01"] * 4
        for _ in range(10):
            begun = time.monotonic()
            answers = [ask(simulator.vm_url("WestNO_0"), "GET", target, headers=METADATA) for target in targets]
            if time.monotonic() - begun < 0.9:
                break
            # Too slow here, just now, to ask too fast.
            time.sleep(1.1)
        assert [answer.status for answer in answers] == [200] * 5 + [429] * 3
        assert answers[-1].headers["retry-after"] == "1"
        assert ask(simulator.vm_url("WestNO_1"), "GET", EVENTS, headers=METADATA).status == 200
        time.sleep(1)
        assert ask(simulator.vm_url("WestNO_0"), "GET", EVENTS, headers=METADATA).status == 200


def test_the_wire_server_serves_one_machines_metadata_and_nothing_else() -> None:
    with simulated(as_vm="WestNO_1", wire_server=True) as azure:
        azure.create(set="west", type="Freeze")
        answer = ask(azure.wire_server_url, "GET", EVENTS, headers=METADATA)
        assert answer.json == azure.document("WestNO_1")
        name = ask(
            azure.wire_server_url, "GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
            headers=METADATA,
        )  # fmt: skip
        assert name.body == b"WestNO_1"
        assert ask(azure.wire_server_url, "GET", "/control/events").status == 404
        assert ask(azure.wire_server_url, "GET", "/vm/WestNO_0" + EVENTS, headers=METADATA).status == 404


def test_a_wire_server_without_a_machine_is_a_mistake() -> None:
    with pytest.raises(fleet.FleetError, match="serves one machine"), simulated(wire_server=True):
        pass


def test_a_lagging_cloud_refuses_newer_versions_and_names_those_it_has(azure: Simulated) -> None:
    azure.control("POST", "faults", {"vm": "WestNO_0", "fault": "lagging-cloud", "seconds": 60, "newest": "2017-11-01"})
    answer = azure.get("WestNO_0")
    assert (answer.status, answer.json["newest-versions"]) == (400, ["2017-11-01", "2017-08-01", "2017-03-01"])
    assert azure.document("WestNO_0", "2017-11-01")["Events"] == []
    assert azure.document("WestNO_1", VERSION)["Events"] == []


@pytest.mark.parametrize(
    ("fault", "field", "value"),
    [
        ("no-not-before", "NotBefore", None),
        ("iso-dates", "NotBefore", "2022-04-11T22:26:58Z"),
        ("numbers-as-text", "DurationInSeconds", "5"),
        ("fields-missing", "Resources", None),
        ("fields-unknown", "ImpactLevel", {"Network": "Low"}),
        ("type-unknown", "EventType", "Relocate"),
        ("status-unknown", "EventStatus", "Paused"),
        ("resource-type-unknown", "ResourceType", "DedicatedHost"),
        ("resources-unknown", "Resources", ["nobody-knows-me"]),
        ("resources-none", "Resources", []),
    ],
)
def test_documents_can_be_odd_in_every_field(azure: Simulated, fault: str, field: str, value: object) -> None:
    event_id = azure.create(set="west", type="Freeze", resources=["WestNO_0"])
    azure.control("POST", "faults", {"vm": "WestNO_0", "fault": fault})
    [event] = azure.document("WestNO_0")["Events"]
    assert (event["EventId"], event.get(field)) == (event_id, value)
    [sound] = azure.document("WestNO_0")["Events"]
    assert sound.get(field) != value
