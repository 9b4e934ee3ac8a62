"""The simulator's event scope: which machines see an event, what it names and when it starts, as documented."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from azure_simulator.stories import STORIES

from tests.simulator.asking import Simulated, simulated

PLACE = {"subscription": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90", "resource_group": "scope"}
DAY = 24 * 3600


def machine(name: str, domain: int, zone: int) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "vm_id": f"{name}-vm-id",
        "fault_domain": domain,
        "update_domain": domain,
        "zone": zone,
    }


def of_kind(kind: str, machines: int) -> dict[str, Any]:
    members = [machine(f"{kind}_{number}", number // 2, number % 3 + 1) for number in range(machines)]
    return {**PLACE, "kind": kind, "name": kind, "machines": members}


@pytest.fixture
def region() -> Iterator[Simulated]:
    """A set of each kind; two machines in each update domain, spread over three zones."""
    sets = [
        of_kind("availability_set", 6),
        of_kind("scale_set", 6),
        of_kind("cloud_service", 6),
        of_kind("standalone", 1),
    ]
    with simulated({"sets": sets}) as running:
        yield running


@pytest.mark.parametrize("kind", ["availability_set", "scale_set", "cloud_service", "standalone"])
def test_event_is_listed_by_every_machine_of_any_set_in_any_zone(region: Simulated, kind: str) -> None:
    event_id = region.create(set=kind, type="Reboot")
    told = {
        one["id"]
        for one in region.control("GET", "machines").json
        if [event["EventId"] for event in region.document(one["id"])["Events"]] == [event_id]
    }
    assert told == {one["id"] for one in region.control("GET", "machines").json if one["set"] == kind}


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
        seen = {
            one["id"]: [event["EventId"] for event in region.document(one["id"])["Events"]]
            for one in region.control("GET", "machines").json
        }
        assert seen == {
            "first-scale_set_0": [],
            "first-scale_set_1": [],
            "second-scale_set_0": [event_id],
            "second-scale_set_1": [event_id],
        }
        leaf = "/metadata/instance/compute/{}?api-version=2021-02-01&format=text"
        groups_seen, names_seen = (
            {region.get(vm, leaf.format(name)).body for vm in seen} for name in ("placementGroupId", "vmScaleSetName")
        )
        assert len(groups_seen) == 2 and names_seen == {b"scale_set"}


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


def domains(region: Simulated, event_id: str) -> set[str]:
    names = region.event(event_id)["resources"]
    leaf = "/metadata/instance/compute/platformUpdateDomain?api-version=2021-02-01&format=text"
    return {region.get(name, leaf).body.decode() for name in names}


@pytest.mark.parametrize("story", sorted(STORIES))
def test_an_event_names_machines_of_one_update_domain(region: Simulated, story: str) -> None:
    event_id = region.control("POST", "stories", {"story": story}).json["EventId"]
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


@pytest.mark.parametrize("seconds", [300, 900])
def test_the_notice_of_a_deletion_is_that_of_the_profile(seconds: int) -> None:
    with simulated({"sets": [{**of_kind("scale_set", 2), "terminate_notice_seconds": seconds}]}) as region:
        event = region.event(region.create(set="scale_set", type="Terminate"))
        created, not_before = datetime.fromisoformat(event["created_at"]), parsedate_to_datetime(event["not_before"])
        assert seconds <= (not_before - created).total_seconds() < seconds + 1


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
