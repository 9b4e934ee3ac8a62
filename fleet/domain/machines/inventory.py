"""Parsing of `az` output about machines and sets, of instance metadata, and of machine names.

`/metadata/instance` may omit keys or return empty values unless `extended=true` is given, which agents before 0.2.0 did
not do. So a missing key proves nothing, and an empty value counts only in a complete answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.domain.reasons import Reason, Refused
from fleet.domain.sets import SetKey
from fleet.domain.texts import parse_json, tidy

# The keys that are kept when an answer lacks them: documented ones, so that no machine makes its row grow without end.
TEXTS = (
    "azEnvironment", "evictionPolicy", "location", "name", "offer", "osType", "placementGroupId", "priority",
    "publisher", "resourceGroupName", "resourceId", "sku", "subscriptionId", "tags", "version", "vmId",
    "vmScaleSetName", "vmSize", "zone",
)  # fmt: skip
DOMAINS = ("platformFaultDomain", "platformUpdateDomain")
LISTS = ("privateIpAddresses", "tagsList")
KEPT = (*TEXTS, *DOMAINS, *LISTS, "osProfile")
# The most tags that Azure allows on a VM.
MOST_TAGS = 50


def merged(known: Mapping[str, Any], stated: Mapping[str, Any], *, complete: bool) -> dict[str, Any]:
    """Merge the stored instance metadata of a machine with a newly reported one.

    `complete`: the new answer was requested with `extended=true`, so empty values in it count. A value of an unexpected
    type never replaces a stored one.
    """
    found = dict(stated)
    for key in KEPT:
        if key not in known:
            continue
        if key not in stated or not _is_readable(key, stated[key]) or (not complete and _is_empty(stated[key])):
            found[key] = known[key]
    if not complete and isinstance(known.get("tagsList"), list):
        found["tagsList"] = _tags(known["tagsList"], found["tagsList"])
    return found


def _is_readable(key: str, value: Any) -> bool:
    if key in DOMAINS:
        text = value.strip() if isinstance(value, str) else None
        return text is not None and (not text or (text.isascii() and text.isdigit() and len(text) < 6))
    if key in TEXTS:
        return isinstance(value, str)
    return isinstance(value, list if key in LISTS else dict)


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())


def _tags(known: list[Any], stated: list[Any]) -> list[Any]:
    """Return the new tags, followed by stored tags that the new answer omits, because an incomplete answer may omit
    some.
    """
    names = {_name(tag) for tag in stated}
    return [*stated, *(tag for tag in known if _name(tag) not in names)][: max(len(stated), MOST_TAGS)]


def _name(tag: Any) -> str:
    name = tag.get("name") if isinstance(tag, dict) else None
    return name.lower() if isinstance(name, str) else ""


# Reading what `az` prints about machines and sets. Each item is recognised by its shape, so files may be mixed.

# Azure spells the parts of one id in different cases in different answers.
_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)/providers/Microsoft\.Compute"
    r"/(?P<kind>virtualMachines|virtualMachineScaleSets|availabilitySets)/(?P<name>[^/]+)"
    r"(?:/virtualMachines/(?P<instance>[^/]+))?/?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class InventoryItem:
    """One machine of an inventory. `resource_id` is Azure's id in lower case. `in_set` is None if the set is not
    stated.

    Other texts are empty if not stated.
    """

    resource_id: str
    name: str
    subscription: str
    resource_group: str
    in_set: SetKey | None = None
    vm_id: str = ""
    zone: str = ""
    region: str = ""
    size: str = ""
    os_type: str = ""

    def with_more(self, other: "InventoryItem") -> "InventoryItem":
        """Return this item with missing values taken from another item about the same machine."""
        stated = self.in_set
        if stated is None or (stated.kind == "standalone" and other.in_set is not None):
            stated = other.in_set
        filled = {
            name: getattr(self, name) or getattr(other, name) for name in ("vm_id", "zone", "region", "size", "os_type")
        }
        # A list of sets spells names in capitals; a list of machines has the name that Azure uses in `Resources`.
        return replace(self if self.vm_id else other, in_set=stated, **filled)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Content of an imported inventory.

    `upgrade_notices`: for scale sets, whether OSImageNotificationProfile is enabled. `terminate_notices`: seconds of an
    enabled TerminateNotificationProfile. `covered`: what the files list completely, if they were not filtered, as
    `vm:<subscription>` or `scale_set:<subscription>/<resource group>/<name>` in lower case.
    """

    machines: tuple[InventoryItem, ...] = ()
    upgrade_notices: tuple[tuple[SetKey, bool], ...] = ()
    terminate_notices: tuple[tuple[SetKey, int], ...] = ()
    covered: frozenset[str] = frozenset()


def read_json(raw: bytes) -> Any:
    """Parse a JSON file in UTF-8, or in UTF-16 as PowerShell writes it. Raises Refused `validation`."""
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return parse_json(raw.decode(encoding))
    except ValueError as error:
        raise Refused("validation", Reason("inventory-no-json")) from error


def read_inventory(printed: Any) -> Inventory:
    """Parse the output of one `az` command, or a list with the outputs of several. Raises Refused `validation`."""
    items = printed if isinstance(printed, list) else [printed]
    machines: dict[str, InventoryItem] = {}
    spelled: dict[str, SetKey] = {}
    notices: dict[str, Notices] = {}
    covered: set[str] = set()
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise Refused("validation", Reason("inventory-no-object", number=number))
        found = _ID.fullmatch(_text(item, "id"))
        if found is None:
            raise Refused("validation", Reason("inventory-strange", number=number, type=_text(item, "type")))
        if found["kind"].lower() == "availabilitysets":
            key = SetKey(
                "availability_set", _text(item, "name") or found["name"], found["subscription"], found["group"]
            )
            spelled[key.key] = key
        for machine in _read(item, found, covered, notices):
            known = machines.get(machine.resource_id)
            machines[machine.resource_id] = known.with_more(machine) if known else machine
    # A list of machines spells the names of availability sets in capitals, a list of sets as they were given.
    named = [
        replace(machine, in_set=spelled.get(machine.in_set.key, machine.in_set)) if machine.in_set else machine
        for machine in machines.values()
    ]
    return Inventory(
        tuple(named),
        tuple((key, upgrades) for key, upgrades, _ in notices.values()),
        tuple((key, seconds) for key, _, seconds in notices.values() if seconds is not None),
        frozenset(covered),
    )


# A scale set, whether its upgrades are announced, and the seconds of notice of its deletions.
Notices = tuple[SetKey, bool, int | None]


def _read(
    item: dict[str, Any], found: re.Match[str], covered: set[str], notices: dict[str, Notices]
) -> list[InventoryItem]:
    subscription, group, name = found["subscription"], found["group"], found["name"]
    kind = found["kind"].lower()
    if kind == "virtualmachines":
        covered.add(f"vm:{subscription}".lower())
        return [_machine(item, found)]
    if kind == "availabilitysets":
        return _members(item, SetKey("availability_set", name, subscription, group))
    if found["instance"] is not None:
        covered.add(f"scale_set:{subscription}/{group}/{name}".lower())
        return [_machine(item, found)]
    key = SetKey("scale_set", name, subscription, group)
    is_enabled = _profile(item, "osImageNotificationProfile").get("enable") is True
    notices[key.key] = (key, is_enabled, _terminate_notice(item))
    return []


def _machine(item: dict[str, Any], found: re.Match[str]) -> InventoryItem:
    subscription, group = found["subscription"], found["group"]
    view = _part(item, "instanceView")
    if found["instance"] is not None:
        # The resource name of an instance is `<scale set>_<number>`.
        name = _text(item, "name") or f"{found['name']}_{found['instance']}"
        placement = _text(view, "placementGroupId")
        in_set: SetKey | None = SetKey("scale_set", found["name"], subscription, group, placement)
    else:
        name = _text(item, "name") or found["name"]
        in_set = _set_of_vm(item, name, subscription, group)
    zones = item.get("zones")
    storage = _part(_part(item, "storageProfile"), "osDisk")
    size = _text(_part(item, "hardwareProfile"), "vmSize") or _text(_part(item, "sku"), "name")
    path = found[0].rstrip("/").lower()
    if found["instance"] is not None and not found["instance"].isdigit():
        # A flexible scale set's instances are machines in their own right, and have one id as such.
        path = f"{path.partition('/virtualmachinescalesets/')[0]}/virtualmachines/{name.lower()}"
    return InventoryItem(
        resource_id=path,
        name=name,
        subscription=subscription,
        resource_group=group,
        in_set=in_set,
        vm_id=_text(item, "vmId").lower(),
        zone=str(zones[0]) if isinstance(zones, list) and zones else "",
        region=_text(item, "location"),
        size=size,
        os_type=_text(storage, "osType"),
    )


def _set_of_vm(item: dict[str, Any], name: str, subscription: str, group: str) -> SetKey | None:
    for field, kind in (("availabilitySet", "availability_set"), ("virtualMachineScaleSet", "scale_set")):
        found = _ID.fullmatch(_text(_part(item, field), "id"))
        if found is not None:
            return SetKey(kind, found["name"], found["subscription"], found["group"])
    # Flexible instances as `az vmss list-instances` prints them need not name their scale set; `az vm list` does.
    if "instanceId" in item or "hardwareProfile" not in item:
        return None
    return SetKey("standalone", name, subscription, group)


def _members(item: dict[str, Any], key: SetKey) -> list[InventoryItem]:
    members = item.get("virtualMachines")
    found = []
    for member in members if isinstance(members, list) else []:
        place = _ID.fullmatch(_text(member, "id")) if isinstance(member, dict) else None
        if place is not None and place["kind"].lower() == "virtualmachines":
            found.append(
                InventoryItem(
                    resource_id=place[0].rstrip("/").lower(),
                    name=place["name"],
                    subscription=place["subscription"],
                    resource_group=place["group"],
                    in_set=key,
                    region=_text(item, "location"),
                )
            )
    return found


def _terminate_notice(item: dict[str, Any]) -> int | None:
    """Return the seconds of an enabled TerminateNotificationProfile of a scale set; None if there is none."""
    profile = _profile(item, "terminateNotificationProfile")
    found = re.fullmatch(r"PT(\d{1,2})M", _text(profile, "notBeforeTimeout"))
    return int(found[1]) * 60 if found is not None and profile.get("enable") is True else None


def _profile(item: dict[str, Any], name: str) -> dict[str, Any]:
    return _part(_part(_part(item, "virtualMachineProfile"), "scheduledEventsProfile"), name)


def _part(item: dict[str, Any], name: str) -> dict[str, Any]:
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def _text(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    return tidy(value)[:500] if isinstance(value, str) else ""


# Names of machines: the permitted ones, and the derived one while another machine has the name.


def machine_name(stated: str) -> str:
    """Return the machine name as one word: characters that Azure does not permit in names become `_`."""
    # Azure's own names hold letters, digits, and these three; the brackets are of classic cloud services.
    return re.sub(r"[^\w.()-]", "_", stated.strip())


def name_with_suffix(name: str, machine_id: str) -> str:
    """Return the name that a machine gets while another machine has the same name. No machine can state such a name."""
    return f"{name[:150]}~{machine_id[:8]}"
