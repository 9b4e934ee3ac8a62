"""Instance metadata of a machine (`/metadata/instance`). All values are text, missing ones empty.

Source: "Azure Instance Metadata Service for virtual machines" (Microsoft, 04/11/2023, with versions up to 2025-04-07),
which states the version that introduced each field. As at Azure, the availability set is not included.
"""

from __future__ import annotations

import hashlib
from typing import Any

from azure_simulator.fleet import Machine, MachineSet

PUBLISHER, OFFER, SKU = "Debian", "debian-12", "12-gen2"
# Only marketplace images have a plan.
PLAN = {"name": "", "product": "", "publisher": ""}
_SECURITY = {
    "encryptionAtHost": "false",
    "secureBootEnabled": "true",
    "securityType": "TrustedLaunch",
    "virtualTpmEnabled": "true",
}
# "Supported API versions" of Microsoft's page, oldest first.
VERSIONS = (
    "2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01",
    "2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01",
    "2020-06-01", "2020-07-15", "2020-09-01", "2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01",
    "2021-05-01", "2021-08-01", "2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01", "2023-11-15",
    "2024-03-15", "2024-07-17", "2025-04-07",
)  # fmt: skip
# The column "Version introduced" of the same page; fields not named here are as old as the service. A whole branch
# comes with the first of its leaves.
INTRODUCED = {
    "compute.additionalCapabilities": "2021-11-01",
    "compute.azEnvironment": "2018-10-01",
    "compute.customData": "2019-02-01",
    "compute.evictionPolicy": "2020-12-01",
    "compute.extendedLocation": "2021-03-01",
    "compute.host": "2021-11-15",
    "compute.hostGroup": "2021-11-15",
    "compute.isHostCompatibilityLayerVm": "2020-06-01",
    "compute.licenseType": "2020-09-01",
    "compute.osProfile": "2020-07-15",
    "compute.osProfile.disablePasswordAuthentication": "2020-10-01",
    "compute.physicalZone": "2023-11-15",
    "compute.placementGroupId": "2017-08-01",
    "compute.plan": "2018-04-02",
    "compute.platformSubFaultDomain": "2021-10-01",
    "compute.priority": "2020-12-01",
    "compute.provider": "2018-10-01",
    "compute.publicKeys": "2018-04-02",
    "compute.resourceGroupName": "2017-08-01",
    "compute.resourceId": "2019-03-11",
    "compute.securityProfile": "2020-06-01",
    "compute.securityProfile.encryptionAtHost": "2021-11-01",
    "compute.securityProfile.securityType": "2021-12-13",
    "compute.storageProfile": "2019-06-01",
    "compute.storageProfile.imageReference.communityGalleryImageId": "2023-07-01",
    "compute.storageProfile.imageReference.exactVersion": "2023-07-01",
    "compute.storageProfile.imageReference.sharedGalleryImageId": "2023-07-01",
    "compute.storageProfile.resourceDisk": "2021-02-01",
    "compute.subscriptionId": "2017-08-01",
    "compute.tags": "2017-08-01",
    "compute.tagsList": "2019-06-04",
    "compute.userData": "2021-01-01",
    "compute.virtualMachineScaleSet": "2021-03-01",
    "compute.vmScaleSetName": "2017-12-01",
    "compute.zone": "2017-12-01",
}


def instance(in_set: MachineSet, machine: Machine, version: str) -> dict[str, Any]:
    """Return the instance metadata (`compute` and `network`) in one of VERSIONS. A classic VM has no `compute`."""
    whole = {"compute": _compute(in_set, machine)} if machine.vm_id else {}
    known: dict[str, Any] = _as_of(version, {**whole, "network": _network(machine)})
    return known


def _as_of(version: str, part: Any, path: str = "") -> Any:
    if not isinstance(part, dict):
        return part
    known = {name: f"{path}.{name}" if path else name for name in part}
    return {
        name: _as_of(version, part[name], full) for name, full in known.items() if INTRODUCED.get(full, "") <= version
    }


def _compute(in_set: MachineSet, machine: Machine) -> dict[str, Any]:
    group, resource_id, computer_name = _names(in_set, machine)
    return {
        "additionalCapabilities": {"hibernationEnabled": "false"},
        "azEnvironment": "AzurePublicCloud",
        "customData": "",
        "evictionPolicy": "",
        "extendedLocation": {"name": "", "type": ""},
        "host": {"id": ""},
        "hostGroup": {"id": ""},
        "isHostCompatibilityLayerVm": "false",
        "licenseType": "",
        "location": machine.location,
        "name": machine.name,
        "offer": OFFER,
        "osProfile": {
            "adminUsername": "azureuser",
            "computerName": computer_name,
            "disablePasswordAuthentication": "true",
        },
        "osType": "Linux",
        "physicalZone": f"{machine.location}-AZ{machine.zone:>02}" if machine.zone else "",
        "placementGroupId": in_set.placement_group_id,
        "plan": dict(PLAN),
        "platformFaultDomain": str(machine.fault_domain),
        "platformSubFaultDomain": "",
        "platformUpdateDomain": str(machine.update_domain),
        "priority": "",
        "provider": "Microsoft.Compute",
        "publicKeys": [],
        "publisher": PUBLISHER,
        "resourceGroupName": in_set.resource_group,
        "resourceId": resource_id,
        "securityProfile": dict(_SECURITY),
        "sku": SKU,
        "storageProfile": _storage(machine, group),
        "subscriptionId": in_set.subscription,
        "tags": ";".join(f"{name}:{value}" for name, value in machine.tags),
        "tagsList": [{"name": name, "value": value} for name, value in machine.tags],
        "userData": "",
        "version": "0.20240717.1811",
        # Only scale sets with flexible orchestration have this; simulated ones are uniform.
        "virtualMachineScaleSet": {"id": ""},
        "vmId": machine.vm_id,
        "vmScaleSetName": in_set.name if in_set.kind == "scale_set" else "",
        "vmSize": machine.size,
        "zone": machine.zone,
    }


def _names(in_set: MachineSet, machine: Machine) -> tuple[str, str, str]:
    """Return the id prefix of the resource group, the id of the machine, and the host name."""
    group = f"/subscriptions/{in_set.subscription}/resourceGroups/{in_set.resource_group}/providers/Microsoft.Compute"
    number = machine.name.rpartition("_")[2]
    if in_set.kind != "scale_set" or not number.isdigit():
        return group, f"{group}/virtualMachines/{machine.name}", machine.name
    # The host name is not the resource name: the number is written in base 36, six digits long.
    host = f"{in_set.name[:9]}{_base36(int(number)):>06}"
    return group, f"{group}/virtualMachineScaleSets/{in_set.name}/virtualMachines/{number}", host


def _storage(machine: Machine, group: str) -> dict[str, Any]:
    # Numbers and truth values are text here as well.
    disk = f"{machine.name}_OsDisk"
    return {
        "dataDisks": [],
        "imageReference": {
            "communityGalleryImageId": "",
            "exactVersion": "",
            "id": "",
            "offer": OFFER,
            "publisher": PUBLISHER,
            "sharedGalleryImageId": "",
            "sku": SKU,
            "version": "latest",
        },
        "osDisk": {
            "caching": "ReadWrite",
            "createOption": "FromImage",
            "diffDiskSettings": {"option": ""},
            "diskSizeGB": "30",
            "encryptionSettings": {
                "diskEncryptionKey": {"secretUrl": "", "sourceVault": {"id": ""}},
                "enabled": "false",
                "keyEncryptionKey": {"keyUrl": "", "sourceVault": {"id": ""}},
            },
            "image": {"uri": ""},
            "managedDisk": {"id": f"{group}/disks/{disk}", "storageAccountType": "Premium_LRS"},
            "name": disk,
            "osType": "Linux",
            "vhd": {"uri": ""},
            "writeAcceleratorEnabled": "false",
        },
        # Kilobytes; 0 where the size has no local disk.
        "resourceDisk": {"size": "0"},
    }


def _network(machine: Machine) -> dict[str, Any]:
    digest = _digest(machine)
    address = {"privateIpAddress": private_address(machine), "publicIpAddress": ""}
    interface = {
        "ipv4": {"ipAddress": [address], "subnet": [{"address": "10.0.0.0", "prefix": "16"}]},
        "ipv6": {"ipAddress": []},
        "macAddress": f"000D3A{digest[2:5].hex().upper()}",
    }
    return {"interface": [interface]}


def private_address(machine: Machine) -> str:
    """Return the private IP address of a machine. It is derived from the id, so it never changes."""
    digest = _digest(machine)
    return f"10.0.{digest[0]}.{4 + digest[1] % 250}"


def _digest(machine: Machine) -> bytes:
    return hashlib.sha256(machine.id.encode()).digest()


def _base36(number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = ""
    while number or not text:
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return text


def leaf(tree: Any, path: list[str]) -> Any:
    """Return the part of `tree` at `path`; names may have any case, and list items are numbers. Raises KeyError."""
    for name in path:
        if isinstance(tree, dict):
            tree = {key.lower(): value for key, value in tree.items()}[name.lower()]
        elif isinstance(tree, list) and name.isdigit() and int(name) < len(tree):
            tree = tree[int(name)]
        else:
            raise KeyError(name)
    return tree


def as_text(part: Any) -> str:
    """Return a single value as text. For an object or list, return the names in it, one a line, with a slash after
    those that contain more.
    """
    if isinstance(part, str):
        return part
    items = part.items() if isinstance(part, dict) else ((str(i), item) for i, item in enumerate(part))
    return "\n".join(name if isinstance(item, str) else f"{name}/" for name, item in items)
