"""What `az` prints is recognised by its shape, and refused in one sentence where it is something else."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.domain.machines.inventory import Inventory, InventoryItem, read_inventory, read_json
from tests.words import refused

SAMPLES = Path(__file__).parent.parent / "samples"


def sample(name: str) -> Any:
    return read_json((SAMPLES / f"az_{name}.json").read_bytes())


def by_name(inventory: Inventory) -> dict[str, InventoryItem]:
    return {machine.name: machine for machine in inventory.machines}


def set_of(machine: InventoryItem) -> str:
    return machine.in_set.key if machine.in_set else ""


GROUP = "11111111-2222-3333-4444-555555555555|shop"


def test_a_list_of_machines_says_their_sets_sizes_and_zones() -> None:
    found = by_name(read_inventory(sample("vm_list")))
    assert {name: set_of(machine) for name, machine in found.items()} == {
        "web1": f"availability_set|{GROUP}|web",
        "web2": f"availability_set|{GROUP}|web",
        "web3": f"availability_set|{GROUP}|web",
        "burst_1a2b3c4d": f"scale_set|{GROUP}|burst",
        "jump": f"standalone|{GROUP}|jump",
    }
    flexible = found["burst_1a2b3c4d"]
    assert (flexible.zone, flexible.region, flexible.size, flexible.os_type) == (
        "2", "westeurope", "Standard_D2s_v5", "Linux",
    )  # fmt: skip
    assert flexible.vm_id


def test_a_list_of_sets_names_its_machines_and_nothing_else_of_them() -> None:
    found = read_inventory(sample("vm_availability_set_list"))
    assert [set_of(machine) for machine in found.machines] == [f"availability_set|{GROUP}|web"] * 3
    assert {machine.vm_id for machine in found.machines} == {""}
    assert found.covered == frozenset()


def test_instances_of_a_uniform_scale_set_know_their_set_and_have_azures_resource_names() -> None:
    found = by_name(read_inventory(sample("vmss_list_instances")))
    assert set(found) == {"workers_0", "workers_3"}
    assert set_of(found["workers_3"]) == f"scale_set|{GROUP}|workers"
    assert (found["workers_3"].zone, found["workers_3"].size) == ("2", "Standard_D4s_v5")


def test_the_placement_group_is_taken_where_the_instance_view_states_it() -> None:
    printed = sample("vmss_list_instances")
    printed[0]["instanceView"] = {"placementGroupId": "ab12", "platformFaultDomain": 1}
    assert set_of(by_name(read_inventory(printed))["workers_0"]) == f"scale_set|{GROUP}|workers/ab12"


def test_a_list_of_scale_sets_says_whether_upgrades_are_announced() -> None:
    found = read_inventory(sample("vmss_list"))
    assert {key.name: enabled for key, enabled in found.upgrade_notices} == {"workers": True, "burst": False}
    assert found.machines == ()


@pytest.mark.parametrize("order", [1, -1])
def test_two_lists_are_one_inventory_in_whatever_order_they_come(order: int) -> None:
    lists = [sample("vm_list"), sample("vm_availability_set_list")][::order]
    found = by_name(read_inventory(lists[0] + lists[1]))
    assert set(found) == {"web1", "web2", "web3", "burst_1a2b3c4d", "jump"}
    assert found["web1"].vm_id
    assert set_of(found["web1"]) == f"availability_set|{GROUP}|web"


def test_a_flexible_instance_is_one_machine_however_it_was_listed() -> None:
    flexible = next(each for each in sample("vm_list") if each["name"] == "burst_1a2b3c4d")
    inside = "/providers/Microsoft.Compute/virtualMachineScaleSets/burst/virtualMachines/burst_1a2b3c4d"
    instance = {
        **flexible,
        "id": flexible["id"].partition("/providers/")[0] + inside,
        "instanceId": "burst_1a2b3c4d",
        "virtualMachineScaleSet": None,
    }
    (machine,) = read_inventory([instance, flexible]).machines
    assert set_of(machine) == f"scale_set|{GROUP}|burst"
    as_machine = {**flexible, "instanceId": "burst_1a2b3c4d", "virtualMachineScaleSet": None}
    (unknown,) = read_inventory([as_machine]).machines
    assert unknown.in_set is None


def test_one_machine_alone_is_read_too() -> None:
    assert [machine.name for machine in read_inventory(sample("vm_list")[0]).machines] == ["web1"]


def test_the_files_that_powershell_writes_are_read() -> None:
    text = json.dumps(sample("vm_list"))
    assert read_json(text.encode("utf-16")) == read_json(b"\xef\xbb\xbf" + text.encode()) == sample("vm_list")


@pytest.mark.parametrize("raw", [b"", b"Name    ResourceGroup\nweb1    shop", b"\xff\xfe\x00", b"[" * 100_000])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with refused("inventory-no-json"):
        read_json(raw)


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        (["web1"], "inventory-no-object"),
        ("web1", "inventory-no-object"),
        ([{}], "inventory-strange"),
        ([{"id": "/subscriptions/x/resourceGroups/y/disks/z", "type": "Microsoft.Compute/disks"}],
         "inventory-strange"),
        ([{"id": 5, "type": ["x"]}], "inventory-strange"),
    ],
)  # fmt: skip
def test_what_is_no_inventory_is_refused(printed: Any, code: str) -> None:
    with refused(code):
        read_inventory(printed)


def test_an_empty_list_is_an_empty_inventory() -> None:
    assert read_inventory([]) == Inventory()
