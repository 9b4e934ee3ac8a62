"""Stories, Microsoft's sample played field by field, and which machines an event concerns, as documented."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import azure_simulator
import pytest
from azure_simulator.child_process import RunningSimulator
from azure_simulator.fleet import FleetError, parse
from azure_simulator.stories import STORIES

from tests.processes import wait_for
from tests.simulator.asking import Simulated, simulated

DEMO_FLEET = Path(azure_simulator.__file__).with_name("demo_fleet.json")


def test_story_takes_a_set_and_a_time(azure: Simulated) -> None:
    body = {"story": "terminate", "set": "legacy", "notice_seconds": 5}
    event = azure.event(azure.control("POST", "stories", body).json["EventId"])
    assert (event["set"], event["not_before"]) == ("legacy", "Mon, 11 Apr 2022 22:12:03 GMT")


def test_the_first_event_comes_within_five_seconds() -> None:
    with RunningSimulator(DEMO_FLEET, story=1) as simulator:
        [event] = wait_for(simulator.events.all, seconds=5, what="an event")
    assert event["type"] == "Freeze"


def test_playing_can_be_stopped_and_the_events_remain(azure: Simulated) -> None:
    unknown = azure.control("POST", "stories", {"story": "fairy-tale"})
    assert unknown.status == 400 and all(name in unknown.json["error"] for name in STORIES)
    azure.control("POST", "stories", {"story": "all"})
    azure.control("POST", "stories", {"story": "cancellation"})
    assert azure.control("POST", "stories", {"story": "all"}).status == 409
    assert azure.control("GET", "stories").json["playing"] == ["all", "cancellation"]
    azure.control("DELETE", "stories")
    assert azure.control("GET", "stories").json["playing"] == []
    assert len(azure.control("GET", "events").json) == 1


def test_the_demo_plays_all_stories_and_keeps_one_to_four_events_open() -> None:
    counts: list[int] = []
    wanted = {
        ("Freeze", "Platform", "not_before", "completed"),
        ("Reboot", "User", "not_before", "completed"),
        ("Reboot", "Platform", "azure", "completed"),
        ("Reboot", "Platform", "", "cancelled"),
        ("Preempt", "Platform", "not_before", "completed"),
        ("Terminate", "Platform", "not_before", "completed"),
        ("Redeploy", "Platform", "", "cancelled"),
    }
    told: set[tuple[str, ...]] = set()
    with RunningSimulator(DEMO_FLEET, story=200) as simulator:
        deadline = time.monotonic() + 40
        while not told >= wanted and time.monotonic() < deadline:
            time.sleep(0.05)
            events = simulator.events.all()
            counts += [sum(event["status"] != "Ended" for event in events)] if events else []
            told = {tuple(event[name] for name in ("type", "source", "started_by", "ended_as")) for event in events}
    assert told >= wanted
    assert max(counts) <= 4
    # A board may be bare for the moment that lies between two looks, never for long.
    assert counts.count(0) <= len(counts) // 5


PLACE = {"subscription": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90", "resource_group": "scope"}

DAY = 24 * 3600


# How many machines the set of each kind has.
KINDS = {"availability_set": 6, "scale_set": 6, "cloud_service": 6, "standalone": 1}


def of_kind(kind: str, machines: int) -> dict[str, Any]:
    """A set whose machines are two in each update domain, spread over three zones."""
    members = []
    for number in range(machines):
        name, domain = f"{kind}_{number}", number // 2
        places = {"fault_domain": domain, "update_domain": domain, "zone": number % 3 + 1}
        members.append({"id": name, "name": name, "vm_id": f"{name}-vm-id", **places})
    return {**PLACE, "kind": kind, "name": kind, "machines": members}


@pytest.fixture
def region() -> Iterator[Simulated]:
    """A set of each kind."""
    with simulated({"sets": [of_kind(*sized) for sized in KINDS.items()]}) as running:
        yield running


def listings(region: Simulated) -> dict[str, list[str]]:
    """The ids of the events that each machine lists."""
    machines = [machine["id"] for machine in region.control("GET", "machines").json]
    return {machine: [event["EventId"] for event in region.document(machine)["Events"]] for machine in machines}


@pytest.mark.parametrize("kind", KINDS)
def test_event_is_listed_by_every_machine_of_any_set_in_any_zone(region: Simulated, kind: str) -> None:
    event_id = region.create(set=kind, type="Reboot")
    listed = listings(region)
    assert listed == {machine: [event_id] if machine.startswith(kind) else [] for machine in listed}


def test_an_event_stays_in_its_placement_group_of_a_scale_set() -> None:
    groups = [{**of_kind("scale_set", 2), "placement_group": name} for name in ("first", "second")]
    for group in groups:
        name = group["placement_group"]
        for each in group["machines"]:
            each |= {"id": f"{name}-{each['id']}", "vm_id": f"{name}-{each['vm_id']}"}
    with simulated({"sets": groups}) as region:
        refused = region.control("POST", "events", {"set": "scale_set", "type": "Reboot"})
        assert refused.status == 400 and "names several sets" in refused.json["error"]
        key = f"scale_set:{PLACE['subscription']}/scope/scale_set/second"
        event_id = region.create(set=key, type="Reboot")
        listed = listings(region)
        assert len(listed) == 4
        assert listed == {machine: [event_id] if machine.startswith("second") else [] for machine in listed}
        assert len({leaf(region, vm, "placementGroupId") for vm in listed}) == 2
        assert {leaf(region, vm, "vmScaleSetName") for vm in listed} == {"scale_set"}


@pytest.mark.parametrize(
    ("announced", "size", "listed"),
    [(True, "Standard_D2s_v5", 1), (True, "Standard_M64s", 0), (False, "Standard_D2s_v5", 0)],
)
def test_an_upgrade_of_the_system_is_announced_only_where_the_profile_and_the_size_allow_it(
    announced: bool, size: str, listed: int
) -> None:
    whole = {**of_kind("scale_set", 2), "upgrades_announced": announced}
    for each in whole["machines"]:
        each["size"] = size
    with simulated({"sets": [whole]}) as region:
        answer = region.control("POST", "events", {"set": "scale_set", "type": "Reboot", "os_upgrade": True})
        assert answer.status == (200 if listed else 409)
        assert len(region.document("scale_set_0")["Events"]) == listed


def leaf(region: Simulated, vm: str, name: str) -> str:
    return region.get(vm, f"/metadata/instance/compute/{name}?api-version=2021-02-01&format=text").body.decode()


def domains(region: Simulated, event_id: str) -> set[str]:
    return {leaf(region, name, "platformUpdateDomain") for name in region.event(event_id)["resources"]}


@pytest.mark.parametrize("story", sorted(STORIES))
def test_every_story_announces_an_event_to_one_update_domain(region: Simulated, story: str) -> None:
    event_id = region.control("POST", "stories", {"story": story}).json["EventId"]
    event, says = region.event(event_id), STORIES[story].says
    assert (event["status"], event["type"]) == (says.get("starts_as", "Scheduled"), says["type"])
    assert len(domains(region, event_id)) == 1
    assert len(domains(region, region.create(set="scale_set", type="Redeploy"))) == 1


def test_an_event_need_not_name_the_whole_update_domain(region: Simulated) -> None:
    event_id = region.create(set="availability_set", type="Freeze", resources=["availability_set_0"])
    assert region.document("availability_set_1")["Events"][0]["Resources"] == ["availability_set_0"]
    assert domains(region, event_id) == {"0"}


@pytest.mark.parametrize("source", ["User", "Platform"])
def test_nothing_proceeds_without_an_approval_before_its_not_before(region: Simulated, source: str) -> None:
    first = region.create(set="availability_set", type="Reboot", source=source)
    second = region.create(set="availability_set", type="Reboot", source=source)
    region.clock.advance(899)
    assert region.approve("availability_set_5", second) == 200
    assert (region.event(first)["status"], region.event(second)["status"]) == ("Scheduled", "Started")
    region.clock.advance(1)
    assert region.event(first)["started_by"] == "not_before"


def test_the_incarnation_moves_with_each_change_and_with_nothing_else(region: Simulated) -> None:
    def seen() -> Any:
        before = region.document("scale_set_0")
        region.clock.advance(1)
        assert region.document("scale_set_0") == before, "the same incarnation, the same content"
        return before["DocumentIncarnation"]

    numbers = [seen()]
    event_id = region.create(set="scale_set", type="Reboot")
    numbers.append(seen())
    region.create(set="cloud_service", type="Reboot")
    assert seen() == numbers[-1], "another set's events are not this machine's"
    region.approve("scale_set_0", event_id)
    numbers.append(seen())
    region.control("POST", f"events/{event_id}/complete")
    numbers.append(seen())
    assert numbers == [1, 2, 3, 4]


def test_after_one_fault_domain_the_next_may_follow_at_once(region: Simulated) -> None:
    first = region.create(set="availability_set", type="Reboot", resources=["availability_set_0"])
    region.control("POST", f"events/{first}/complete")
    second = region.create(set="availability_set", type="Reboot", resources=["availability_set_2"])
    [event] = region.document("availability_set_0")["Events"]
    assert (event["EventId"], event["EventStatus"]) == (second, "Scheduled")
    assert [leaf(region, f"availability_set_{number}", "platformFaultDomain") for number in (0, 2)] == ["0", "1"]


@pytest.mark.parametrize("seconds", [300, 900])
def test_the_notice_of_a_deletion_is_that_of_the_profile(seconds: int) -> None:
    with simulated({"sets": [{**of_kind("scale_set", 2), "terminate_notice_seconds": seconds}]}) as region:
        event = region.event(region.create(set="scale_set", type="Terminate"))
        created, not_before = datetime.fromisoformat(event["created_at"]), parsedate_to_datetime(event["not_before"])
        assert seconds <= (not_before - created).total_seconds() < seconds + 1


@pytest.mark.parametrize("seconds", [299, 901])
def test_the_notice_of_a_deletion_is_five_to_fifteen_minutes(seconds: int) -> None:
    with pytest.raises(FleetError, match="expected 300 to 900"):
        parse({"sets": [{**of_kind("scale_set", 2), "terminate_notice_seconds": seconds}]})


def test_a_failing_host_is_announced_days_ahead(region: Simulated) -> None:
    event_id = region.control("POST", "stories", {"story": "degraded-host"}).json["EventId"]
    region.clock.advance(3 * DAY - 1)
    assert region.event(event_id)["started_at"] is None
    assert region.event(event_id)["not_before"] == "Thu, 14 Apr 2022 22:11:58 GMT"


def test_a_reboot_may_turn_out_a_freeze(region: Simulated) -> None:
    event_id = region.create(set="standalone", type="Reboot")
    region.approve("standalone_0", event_id)
    assert region.control("POST", f"events/{event_id}/impact", {"seconds": 0.1}).status == 200
    document = region.document("standalone_0")
    assert (document["DocumentIncarnation"], document["Events"][0]["EventType"]) == (1, "Reboot")
    region.control("POST", f"events/{event_id}/complete")
    assert region.document("standalone_0")["Events"] == [], "that it is gone is the sign, whatever it was"


SAMPLE = json.loads((Path(__file__).parents[1] / "samples" / "live_migration.json").read_text(encoding="utf-8"))

EVENT_ID = SAMPLE["documents"][1]["Events"][0]["EventId"]


def see(azure: Simulated) -> Any:
    """The document that both machines see."""
    first, second = (azure.document(machine, SAMPLE["api_version"]) for machine in SAMPLE["machines"])
    assert first == second
    return first


@pytest.mark.parametrize("approved", [True, False])
def test_live_migration_gives_the_four_documents_of_the_sample(azure: Simulated, approved: bool) -> None:
    seen = [see(azure)]
    story = {"story": "live-migration", "set": "west", "resources": SAMPLE["machines"], "event_id": EVENT_ID.lower()}
    azure.control("POST", "stories", {**story, "notice_seconds": 900, "started_seconds": 600})
    seen.append(see(azure))
    if approved:
        assert azure.approve("WestNO_1", EVENT_ID) == 200
    else:
        azure.clock.advance(899)
        assert see(azure) == seen[-1]
        azure.clock.advance(1)
    seen.append(see(azure))
    azure.clock.advance(600)
    seen.append(see(azure))
    # Also in the order of their fields.
    assert json.dumps(seen) == json.dumps(SAMPLE["documents"])


# Tokens of managed identities, as Azure's client libraries request them.

OWN, OTHER = "2b6c5a2e-6a5e-4d5f-8f6e-1c9a4f0e7d11", "9d1f7a34-0b0d-4a4e-9d53-7b7f5c1a2e22"
RESOURCE = "https://redis.azure.com"


def target(**query: str) -> str:
    stated = {"api-version": "2018-02-01", "resource": RESOURCE, **query}
    return f"/metadata/identity/oauth2/token?{urlencode(stated)}"


@pytest.mark.parametrize(
    ("identities", "query", "expected"),
    [
        ([OWN], {}, OWN),
        ([OWN], {"client_id": OWN}, OWN),
        ([OWN, OTHER], {"client_id": OTHER}, OTHER),
        ([OWN, OTHER], {}, "Multiple user assigned identities exist"),
        ([OWN], {"client_id": OTHER}, "Identity not found"),
        ([], {}, "Identity not found"),
        ([OWN], {"resource": ""}, "AADSTS500011"),
        ([OWN], {"api-version": ""}, "'api-version' is missing"),
    ],
)
def test_a_machine_gets_a_token_of_its_own_identities_only(
    identities: list[str], query: dict[str, str], expected: str
) -> None:
    whole = of_kind("standalone", 1)
    whole["machines"][0]["identities"] = identities
    with simulated({"sets": [whole]}) as region:
        answer = region.get("standalone_0", target(**query))
        if expected in identities:
            content = answer.json
            assert (content["client_id"], content["resource"], content["token_type"]) == (expected, RESOURCE, "Bearer")
            assert int(content["expires_on"]) > int(content["not_before"]) and int(content["expires_in"]) > 0
            assert content["access_token"].count(".") == 2
        else:
            assert answer.status == 400 and expected in answer.json["error_description"]
        assert region.get("standalone_0", target(), headers={}).status == 400
