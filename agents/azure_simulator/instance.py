"""`/metadata/instance`: what a machine is told about itself. All values are text, absent ones empty.

Source: "Azure Instance Metadata Service" (Microsoft). The availability set is not in it, at Azure neither.
"""

from __future__ import annotations

import hashlib
from typing import Any

from azure_simulator.fleet import Machine, MachineSet

# Every version answers with the same fields here; at Azure the older ones have fewer.
VERSIONS = (
    "2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01",
    "2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01",
    "2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01",
    "2021-05-01", "2021-08-01", "2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01", "2023-11-15",
    "2025-04-07",
)  # fmt: skip


def instance(in_set: MachineSet, machine: Machine) -> dict[str, Any]:
    """The whole answer, `compute` and `network`. A machine of the classic model has no `compute`."""
    network = _network(machine)
    return {"compute": _compute(in_set, machine), "network": network} if machine.vm_id else {"network": network}


def _compute(in_set: MachineSet, machine: Machine) -> dict[str, Any]:
    in_scale_set = in_set.kind == "scale_set"
    group = f"/subscriptions/{in_set.subscription}/resourceGroups/{in_set.resource_group}/providers/Microsoft.Compute"
    number = machine.name.rpartition("_")[2]
    if in_scale_set and number.isdigit():
        resource_id = f"{group}/virtualMachineScaleSets/{in_set.name}/virtualMachines/{number}"
        # The host name is not the resource name: the number is written in base 36, six digits long.
        computer_name = f"{in_set.name[:9]}{_base36(int(number)):>06}"
    else:
        resource_id = f"{group}/virtualMachines/{machine.name}"
        computer_name = machine.name
    return {
        "azEnvironment": "AzurePublicCloud",
        "customData": "",
        "evictionPolicy": "",
        "isHostCompatibilityLayerVm": "false",
        "licenseType": "",
        "location": machine.location,
        "name": machine.name,
        "offer": "debian-12",
        "osProfile": {
            "adminUsername": "azureuser",
            "computerName": computer_name,
            "disablePasswordAuthentication": "true",
        },
        "osType": "Linux",
        "placementGroupId": in_set.placement_group_id,
        "plan": {"name": "", "product": "", "publisher": ""},
        "platformFaultDomain": str(machine.fault_domain),
        "platformUpdateDomain": str(machine.update_domain),
        "priority": "",
        "provider": "Microsoft.Compute",
        "publicKeys": [],
        "publisher": "Debian",
        "resourceGroupName": in_set.resource_group,
        "resourceId": resource_id,
        "sku": "12-gen2",
        "storageProfile": _storage(machine, group),
        "subscriptionId": in_set.subscription,
        "tags": ";".join(f"{name}:{value}" for name, value in machine.tags),
        "tagsList": [{"name": name, "value": value} for name, value in machine.tags],
        "userData": "",
        "version": "0.20240717.1811",
        "vmId": machine.vm_id,
        "vmScaleSetName": in_set.name if in_scale_set else "",
        "vmSize": machine.size,
        "zone": machine.zone,
    }


def _storage(machine: Machine, group: str) -> dict[str, Any]:
    # Numbers and truth values are text here as well.
    disk = f"{machine.name}_OsDisk"
    return {
        "dataDisks": [],
        "imageReference": {
            "id": "",
            "offer": "debian-12",
            "publisher": "Debian",
            "sku": "12-gen2",
            "version": "latest",
        },
        "osDisk": {
            "caching": "ReadWrite",
            "createOption": "FromImage",
            "diffDiskSettings": {"option": ""},
            "diskSizeGB": "30",
            "encryptionSettings": {"enabled": "false"},
            "image": {"uri": ""},
            "managedDisk": {"id": f"{group}/disks/{disk}", "storageAccountType": "Premium_LRS"},
            "name": disk,
            "osType": "Linux",
            "vhd": {"uri": ""},
            "writeAcceleratorEnabled": "false",
        },
        "resourceDisk": {"size": "16384"},
    }


def _network(machine: Machine) -> dict[str, Any]:
    # Addresses are made up from the id, so that they stay the same.
    digest = hashlib.sha256(machine.id.encode()).digest()
    address = {"privateIpAddress": f"10.0.{digest[0]}.{4 + digest[1] % 250}", "publicIpAddress": ""}
    interface = {
        "ipv4": {"ipAddress": [address], "subnet": [{"address": "10.0.0.0", "prefix": "16"}]},
        "ipv6": {"ipAddress": []},
        "macAddress": f"000D3A{digest[2:5].hex().upper()}",
    }
    return {"interface": [interface]}


def _base36(number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = ""
    while number or not text:
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return text


def leaf(tree: Any, path: list[str]) -> Any:
    """The part of `tree` at `path`; names in any case, lists by number. Raises KeyError."""
    for name in path:
        if isinstance(tree, dict):
            tree = {key.lower(): value for key, value in tree.items()}[name.lower()]
        elif isinstance(tree, list) and name.isdigit() and int(name) < len(tree):
            tree = tree[int(name)]
        else:
            raise KeyError(name)
    return tree


def as_text(part: Any) -> str:
    """A leaf's own text; for anything else the names below it, with a slash where there is more below those."""
    if isinstance(part, str):
        return part
    items = part.items() if isinstance(part, dict) else ((str(i), item) for i, item in enumerate(part))
    return "\n".join(name if isinstance(item, str) else f"{name}/" for name, item in items)
