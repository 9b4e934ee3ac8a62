"""`/metadata/instance` and `/metadata/versions`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.asking import Answer, Simulated, simulated, west_norway

VERSION = "api-version=2021-02-01"
SAMPLE = Path(__file__).parents[1] / "samples" / "instance_compute.json"


def instance(azure: Simulated, vm: str, path: str = "", query: str = "") -> Answer:
    return azure.get(vm, f"/metadata/instance{path}?{VERSION}{query}")


def test_instance_document_has_identity_and_location(azure: Simulated) -> None:
    compute = instance(azure, "WestNO_1").json["compute"]
    wanted = {
        "name": "WestNO_1",
        "vmId": "WestNO_1-vm-id",
        "location": "norwaywest",
        "zone": "",
        "resourceGroupName": "west",
        "subscriptionId": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90",
        "platformFaultDomain": "1",
        "platformUpdateDomain": "0",
        "placementGroupId": "",
        "vmScaleSetName": "",
        "tagsList": [{"name": "drydock:service", "value": "west"}],
        "vmSize": "Standard_D2s_v5",
        "osType": "Linux",
    }
    assert {name: compute[name] for name in wanted} == wanted
    assert compute["osProfile"]["computerName"] == "WestNO_1"


def test_all_values_are_text(azure: Simulated) -> None:
    def texts(part: Any) -> bool:
        if isinstance(part, dict | list):
            return all(texts(item) for item in (part.values() if isinstance(part, dict) else part))
        return isinstance(part, str)

    assert texts(instance(azure, "workers_0").json)


def test_a_scale_set_machine_knows_its_scale_set_and_has_another_host_name(azure: Simulated) -> None:
    compute = instance(azure, "workers_0", "/compute").json
    assert compute["vmScaleSetName"] == "workers"
    assert compute["placementGroupId"]
    assert compute["name"] == "workers_0"
    assert compute["osProfile"]["computerName"] == "workers000000"


def test_the_availability_set_is_not_in_it(azure: Simulated) -> None:
    whole = west_norway()
    whole["sets"][0]["name"] = "a-name-that-stands-nowhere-else"
    with simulated(whole) as renamed:
        assert b"a-name-that-stands-nowhere-else" not in instance(renamed, "WestNO_0").body


def test_a_leaf_is_to_be_had_as_text_only(azure: Simulated) -> None:
    leaf = instance(azure, "workers_0", "/compute/name", "&format=text")
    assert (leaf.status, leaf.body, leaf.headers["content-type"]) == (200, b"workers_0", "text/plain; charset=utf-8")
    assert instance(azure, "workers_0", "/compute/name").status == 400
    assert instance(azure, "workers_0", "/compute/tagsList/0/value", "&format=text").body == b"west"


def test_a_branch_as_text_lists_its_names(azure: Simulated) -> None:
    assert instance(azure, "workers_0", "", "&format=text").body == b"compute/\nnetwork/"
    assert b"osProfile/\nosType\n" in instance(azure, "workers_0", "/compute", "&format=text").body


@pytest.mark.parametrize("path", ["/nothing", "/compute/nothing", "/compute/name/deeper", "/compute/tagsList/9"])
def test_what_is_not_there_is_404(azure: Simulated, path: str) -> None:
    assert instance(azure, "workers_0", path, "&format=text").status == 404


def test_a_classic_machine_has_no_compute_metadata() -> None:
    whole = west_norway()
    del whole["sets"][1]["machines"][0]["vm_id"]
    with simulated(whole) as azure:
        assert list(instance(azure, "FrontEnd_IN_0").json) == ["network"]
        assert instance(azure, "FrontEnd_IN_0", "/compute").status == 404


def test_the_versions_are_listed(azure: Simulated) -> None:
    versions = azure.get("WestNO_0", "/metadata/versions").json["apiVersions"]
    assert versions == sorted(versions)
    assert "2021-02-01" in versions


# "Supported API versions" on Microsoft's page of 04/11/2023.
SUPPORTED = [
    "2025-04-07", "2024-07-17", "2024-03-15", "2023-11-15", "2023-07-01", "2021-12-13", "2021-11-15", "2021-11-01",
    "2021-10-01", "2021-08-01", "2021-05-01", "2021-03-01", "2021-02-01", "2021-01-01", "2020-12-01", "2020-10-01",
    "2020-09-01", "2020-07-15", "2020-06-01", "2019-11-01", "2019-08-15", "2019-08-01", "2019-06-04", "2019-06-01",
    "2019-04-30", "2019-03-11", "2019-02-01", "2018-10-01", "2018-04-02", "2018-02-01", "2017-12-01", "2017-10-01",
    "2017-08-01", "2017-04-02", "2017-03-01",
]  # fmt: skip


def test_every_documented_version_is_answered_and_no_other(azure: Simulated) -> None:
    assert azure.get("WestNO_0", "/metadata/versions").json["apiVersions"] == SUPPORTED[::-1]
    for version in SUPPORTED:
        assert azure.get("WestNO_0", f"/metadata/instance?api-version={version}").status == 200
    for version in ("2021-08-02", "2024-01-01", "2026-01-01", "2021-8-1"):
        assert azure.get("WestNO_0", f"/metadata/instance?api-version={version}").status == 400


@pytest.mark.parametrize(
    ("path", "since", "before"),
    [
        ("compute/vmScaleSetName", "2017-12-01", "2017-10-01"),
        ("compute/resourceId", "2019-03-11", "2019-02-01"),
        ("compute/storageProfile", "2019-06-01", "2019-04-30"),
        ("compute/tagsList", "2019-06-04", "2019-06-01"),
        ("compute/osProfile/disablePasswordAuthentication", "2020-10-01", "2020-09-01"),
        ("compute/storageProfile/resourceDisk/size", "2021-02-01", "2021-01-01"),
        ("compute/hostGroup/id", "2021-11-15", "2021-11-01"),
        ("compute/securityProfile/securityType", "2021-12-13", "2021-11-15"),
        ("compute/storageProfile/imageReference/exactVersion", "2023-07-01", "2021-12-13"),
        ("compute/physicalZone", "2023-11-15", "2023-07-01"),
    ],
)
def test_a_field_is_there_since_its_version(azure: Simulated, path: str, since: str, before: str) -> None:
    def status(version: str) -> int:
        return azure.get("WestNO_0", f"/metadata/instance/{path}?api-version={version}&format=text").status

    assert (status(since), status(SUPPORTED[0]), status(before)) == (200, 200, 404)


def test_every_name_of_microsofts_sample_is_in_it(azure: Simulated) -> None:
    def missing(wanted: Any, found: Any) -> set[str]:
        if not isinstance(wanted, dict):
            return set()
        # The page writes one of them with a capital letter, and with a small one elsewhere.
        names = {name.lower(): part for name, part in found.items()}
        lacking = {name for name in wanted if name.lower() not in names}
        return lacking.union(*(missing(wanted[name], names[name.lower()]) for name in set(wanted) - lacking))

    sample = json.loads(SAMPLE.read_text(encoding="utf-8"))
    ours = azure.get("WestNO_0", f"/metadata/instance/compute?api-version={sample['api_version']}").json
    assert missing(sample["compute"], ours) == set()


def test_the_disks_are_in_it_as_text(azure: Simulated) -> None:
    storage = instance(azure, "WestNO_0", "/compute/storageProfile").json
    assert set(storage) == {"dataDisks", "imageReference", "osDisk", "resourceDisk"}
    assert storage["osDisk"]["diskSizeGB"] == "30" and storage["osDisk"]["writeAcceleratorEnabled"] == "false"
    assert storage["osDisk"]["managedDisk"]["id"].endswith("/disks/WestNO_0_OsDisk")


def test_without_a_load_balancer_there_is_no_metadata_of_one(azure: Simulated) -> None:
    answer = azure.get("WestNO_0", "/metadata/loadbalancer?api-version=2020-10-01")
    assert answer.status == 404 and "No load balancer metadata is found" in answer.json["error"]
    assert azure.get("WestNO_0", "/metadata/loadbalancer?api-version=2019-08-01").status == 400


def test_machine_behind_a_load_balancer_gets_its_rules() -> None:
    whole = west_norway()
    whole["sets"][0]["load_balancer"] = {"address": "51.0.0.1", "ports": {"80": 443}}
    with simulated(whole) as azure:
        [interface] = instance(azure, "WestNO_0", "/network").json["interface"]
        private = interface["ipv4"]["ipAddress"][0]["privateIpAddress"]
        ends = {"frontendIpAddress": "51.0.0.1", "privateIpAddress": private}
        rule = {**ends, "protocol": "tcp", "frontendPort": 80, "backendPort": 443}
        assert azure.get("WestNO_0", "/metadata/loadbalancer?api-version=2020-10-01").json == {
            "loadbalancer": {"publicIpAddresses": [], "inboundRules": [rule], "outboundRules": [ends]}
        }
        assert azure.get("workers_0", "/metadata/loadbalancer?api-version=2020-10-01").status == 404


@pytest.mark.parametrize("status", [404, 500])
def test_it_can_fail_while_scheduled_events_are_answered(azure: Simulated, status: int) -> None:
    azure.control("POST", "faults", {"vm": "WestNO_0", "fault": f"instance-{status}", "count": 1})
    assert instance(azure, "WestNO_0").status == status
    assert instance(azure, "WestNO_0").status == 200
