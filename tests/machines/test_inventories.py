"""Inventories: what `az` prints is recognised by its shape, names sets, and shows machines without an agent."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.domain.machines.inventory import Inventory, InventoryItem, read_inventory, read_json
from fleet.models import AvailabilitySet, Entry, InventoryMachine, Machine
from fleet.operations.machines.inventory import Imported, import_inventory
from fleet.projections import sets
from tests.factories import Fleet, the_set
from tests.words import refused, sentences, text

pytestmark = pytest.mark.django_db

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
    assert {key.name: seconds for key, seconds in found.terminate_notices} == {"workers": 300}
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


IDS = {machine.name: machine.vm_id for machine in read_inventory(sample("vm_list")).machines}


def take(fleet: Fleet, *printed: Any, complete: bool = False) -> Imported:
    items = [item for part in printed for item in part]
    return import_inventory(inventory=read_inventory(items), now=fleet.now, complete=complete)


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("import_inventory", *words, stdout=out)
    return out.getvalue()


def path(name: str) -> str:
    return str(SAMPLES / f"az_{name}.json")


def test_machines_without_an_agent_are_shown_at_their_set(fleet: Fleet) -> None:
    fleet.enrol("web1", availability_set="", vm_id=IDS["web1"])
    found = take(fleet, sample("vm_list"))
    assert found == Imported(machines=5, new=5, without_agent=4, dropped=0, scale_sets=0)
    detail = sets.detail(set_id=the_set("WEB").pk, now=fleet.now)
    assert [machine.resource_name for machine in detail.set.machines] == ["web1"]
    assert [machine.name for machine in detail.set.without_agent] == ["web2", "web3"]
    assert "According to the imported inventory, 2 machines have no agent: web2, web3." in sentences(
        detail.set.warnings
    )
    # A machine that stands alone needs no set before it has an agent.
    assert not AvailabilitySet.objects.filter(name="jump").exists()


def test_imported_set_without_an_agent_warns(fleet: Fleet) -> None:
    take(fleet, sample("vm_availability_set_list"))
    detail = sets.detail(set_id=the_set("web").pk, now=fleet.now)
    assert "set-unwatched" in [warning.code for warning in detail.set.warnings]
    assert not AvailabilitySet.objects.filter(name="empty").exists()


def test_an_enrolling_agent_is_found_in_the_inventory_and_placed_by_it(fleet: Fleet) -> None:
    take(fleet, sample("vm_list"))
    machine = fleet.enrol("web2", availability_set="", vm_id=IDS["web2"].upper()).machine
    assert (machine.availability_set.name, machine.set_source, machine.set_warnings) == ("WEB", "inventory", [])
    assert InventoryMachine.objects.get(name="web2").machine == machine
    jump = fleet.enrol("jump", availability_set="", vm_id=IDS["jump"]).machine
    assert (jump.availability_set.kind, jump.availability_set.name) == ("standalone", "jump")


def test_without_a_vm_id_name_resource_group_and_subscription_make_the_machine(fleet: Fleet) -> None:
    fleet.enrol("WEB1", availability_set="", vm_id="configured-1")
    fleet.enrol("web2", availability_set="", vm_id="configured-2", resourceGroupName="elsewhere")
    take(fleet, sample("vm_availability_set_list"))
    assert Machine.objects.get(vm_id="configured-1").availability_set.name == "web"
    assert Machine.objects.get(vm_id="configured-2").availability_set.kind == "provisional"


def test_rebuilt_machine_with_its_old_name_is_another_machine(fleet: Fleet) -> None:
    new = "99999999-7a44-4c1e-9b62-3f1d2a8e9011"
    fleet.enrol("web1", availability_set="", vm_id=new, vmId=new)
    take(fleet, sample("vm_list"))
    assert InventoryMachine.objects.get(name="web1").machine is None
    printed = [{**each, "vmId": new} if each["name"] == "web1" else each for each in sample("vm_list")]
    take(fleet, printed)
    assert InventoryMachine.objects.get(name="web1").machine == Machine.objects.get()
    assert Machine.objects.get().availability_set.name == "WEB"


def test_importing_again_changes_nothing_and_a_list_of_sets_takes_nothing_away(fleet: Fleet) -> None:
    fleet.enrol("web1", availability_set="", vm_id=IDS["web1"])
    take(fleet, sample("vm_list"))
    columns = ("name", "vm_id", "size", "zone", "machine_id", "availability_set_id")
    before = list(InventoryMachine.objects.order_by("pk").values_list(*columns))
    entries = Entry.objects.exclude(kind="inventory_imported").count()
    found = take(fleet, sample("vm_list"), sample("vm_availability_set_list"))
    take(fleet, sample("vm_availability_set_list"))
    assert found.new == 0
    assert list(InventoryMachine.objects.order_by("pk").values_list(*columns)) == before
    assert Entry.objects.exclude(kind="inventory_imported").count() == entries


def test_an_inventory_that_says_otherwise_is_a_warning_until_it_is_corrected(fleet: Fleet) -> None:
    fleet.enrol("web1", availability_set="shop", vm_id=IDS["web1"])
    take(fleet, sample("vm_list"))
    machine = Machine.objects.get()
    assert machine.availability_set.name == "shop"
    assert "the imported inventory states availability set WEB" in sentences(machine.set_warnings)[0]
    in_shop = [
        {**each, "availabilitySet": {"id": each["availabilitySet"]["id"].replace("WEB", "SHOP")}}
        for each in sample("vm_list")
        if each["name"] == "web1"
    ]
    take(fleet, in_shop)
    assert Machine.objects.get().set_warnings == []


def test_a_scale_set_of_the_inventory_is_the_one_its_first_agent_tells_of(fleet: Fleet) -> None:
    take(fleet, sample("vmss_list_instances"), sample("vmss_list"))
    known = the_set("workers")
    assert known.upgrade_notices is True
    first = read_inventory(sample("vmss_list_instances")).machines[0]
    compute = {"vmScaleSetName": "workers", "placementGroupId": "pg-1"}
    machine = fleet.enrol("workers_0", availability_set="", vm_id=first.vm_id, **compute).machine
    assert machine.availability_set == known
    assert machine.set_warnings == []
    known.refresh_from_db()
    assert known.key.endswith("|workers/pg-1")
    other = fleet.enrol("workers_9", availability_set="", **(compute | {"placementGroupId": "pg-2"})).machine
    assert other.availability_set != known
    assert other.availability_set.upgrade_notices is True


def test_only_a_complete_inventory_forgets_machines(fleet: Fleet) -> None:
    fleet.enrol("web3", availability_set="", vm_id=IDS["web3"])
    take(fleet, sample("vm_list"), sample("vmss_list_instances"))
    fewer = [each for each in sample("vm_list") if each["name"] in ("web1", "jump")]
    assert take(fleet, fewer).dropped == 0
    found = take(fleet, fewer, complete=True)
    assert found.dropped == 3
    # The instances of scale sets are no part of this list.
    left = set(InventoryMachine.objects.values_list("name", flat=True))
    assert left == {"web1", "jump", "workers_0", "workers_3"}
    machine = Machine.objects.get(resource_name="web3")
    assert (machine.availability_set.name, machine.set_source) == ("WEB", "")


def test_the_command_reads_several_files_and_says_what_it_found() -> None:
    said = run(path("vm_list"), path("vm_availability_set_list"), path("vmss_list_instances"), path("vmss_list"))
    assert said == "7 machines, 7 of them new, 7 without an agent; 2 scale sets; 0 dropped.\n"
    entry = Entry.objects.get(kind="inventory_imported")
    assert text(entry) == "The command line imported an inventory: 7 machines, 7 of them new, 7 without an agent."


def test_the_command_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(json.dumps(sample("vm_list")).encode()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert run("-").startswith("5 machines")


def test_a_file_that_cannot_be_read_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    table, disks = tmp_path / "table.txt", tmp_path / "disks.json"
    table.write_text("Name    ResourceGroup\n")
    disks.write_text('[{"id": "/x", "type": "Microsoft.Compute/disks"}]')
    with pytest.raises(CommandError, match=r"table\.txt: This is not JSON"):
        run(path("vm_list"), str(table))
    with pytest.raises(CommandError, match=r"disks\.json: Item 1 is of type Microsoft\.Compute/disks"):
        run(str(disks))
    with pytest.raises(CommandError, match=r"nothing\.json cannot be read: No such file"):
        run(str(tmp_path / "nothing.json"))
    assert not InventoryMachine.objects.exists()


def test_a_name_in_capitals_gives_way_to_one_that_was_spelled_by_people(fleet: Fleet) -> None:
    take(fleet, sample("vm_list"))
    shown = the_set("WEB")
    take(fleet, sample("vm_list"), sample("vm_availability_set_list"))
    shown.refresh_from_db()
    assert shown.name == "web"
    take(fleet, sample("vm_list"))
    shown.refresh_from_db()
    assert shown.name == "web"


def test_whether_upgrades_are_announced_is_known_of_this_scale_set_only(fleet: Fleet) -> None:
    place = {"subscriptionId": "11111111-2222-3333-4444-555555555555", "resourceGroupName": "shop"}
    for name in ("workers", "workers2", "burst"):
        fleet.enrol(f"{name}_0", availability_set="", vmScaleSetName=name, placementGroupId="pg", **place)
    take(fleet, sample("vmss_list"))
    found = dict(AvailabilitySet.objects.values_list("name", "upgrade_notices"))
    assert found == {"workers": True, "workers2": None, "burst": False}
