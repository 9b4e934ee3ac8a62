"""The fleet file, which lists sets, machines and caches. Errors are reported as sentences for the user."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

KINDS = ("availability_set", "scale_set", "cloud_service", "standalone")

# Ids that Azure hands out and the file leaves out are derived from names: the same at every start.
_NAMESPACE = uuid.UUID("6f1d2b1e-6f0e-4c1f-9a67-1f5e5a9d3c10")


class FleetError(ValueError):
    """The fleet file is invalid. The message states where and why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One VM. `id` is unique in the file; `name` is used in `Resources` and is unique only within the set.

    An empty `vm_id` means a classic VM, for which Azure has no compute metadata. `identities` are the client ids of the
    managed identities.
    """

    id: str
    name: str
    vm_id: str
    fault_domain: int
    update_domain: int
    zone: str
    location: str
    size: str
    tags: tuple[tuple[str, str], ...]
    identities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """Load balancer of a set: the public address, and the mapping of ports to the machines' ports."""

    address: str
    ports: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class MachineSet:
    """The machines that receive the same events. A scale set has one for each placement group. `placement_group` is the
    name in the fleet file; Azure's `placement_group_id` is empty for all other kinds.

    `upgrades_announced`: the OSImageNotificationProfile is enabled. `terminate_notice_seconds` is from the
    TerminateNotificationProfile, None if the file does not state it.
    """

    kind: str
    name: str
    subscription: str
    resource_group: str
    placement_group_id: str
    machines: tuple[Machine, ...]
    load_balancer: LoadBalancer | None = None
    placement_group: str = ""
    upgrades_announced: bool = False
    terminate_notice_seconds: int | None = None

    @property
    def key(self) -> str:
        """Key that is unique in the fleet, in lower case, for example `availability_set:<subscription>/<resource
        group>/web`.
        """
        group = f"/{self.placement_group}" if self.placement_group else ""
        return f"{self.kind}:{self.subscription}/{self.resource_group}/{self.name}{group}".lower()


@dataclass(frozen=True, slots=True)
class Cache:
    """One Azure Cache for Redis. `server` is the URL of the Redis server that simulates it, or empty."""

    host: str
    tier: str
    server: str


@dataclass(frozen=True)
class Fleet:
    sets: tuple[MachineSet, ...]
    caches: tuple[Cache, ...]

    def find_set(self, name: str) -> MachineSet:
        """Return the set with this `name`, `<kind>:<name>` or key; case is ignored. Raises FleetError."""
        found = self._by_name.get(name.lower(), [])
        if len(found) == 1:
            return found[0]
        if found:
            raise FleetError(f"{name!r} names several sets; say one of: {', '.join(s.key for s in found)}")
        raise FleetError(f"there is no set {name!r}; there are: {', '.join(s.name for s in self.sets)}")

    @cached_property
    def _by_name(self) -> dict[str, list[MachineSet]]:
        # By each of its names, lower case: a storm names thousands of sets.
        found: dict[str, list[MachineSet]] = {}
        for one in self.sets:
            for name in {one.name.lower(), f"{one.kind}:{one.name}".lower(), one.key}:
                found.setdefault(name, []).append(one)
        return found

    def find_cache(self, host: str) -> Cache:
        """Return the cache with this host name; case is ignored. Raises FleetError."""
        for cache in self.caches:
            if cache.host.lower() == host.lower():
                return cache
        raise FleetError(f"there is no cache {host!r}; there are: {', '.join(c.host for c in self.caches) or 'none'}")


def load(path: Path) -> Fleet:
    """Read and check the fleet file at `path`. Raises FleetError, also if the file cannot be opened."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"cannot read the fleet file {path}: {error}") from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise FleetError(f"the fleet file {path} is not JSON: {error}") from error
    return parse(data)


def parse(data: Any) -> Fleet:
    """Check the decoded JSON of a fleet file and return the fleet. Raises FleetError."""
    top = _object(data, "the fleet")
    _only(top, "the fleet", {"sets", "caches"})
    sets = tuple(_set(item, f"sets[{i}]") for i, item in enumerate(_list(top.get("sets"), "sets")))
    caches = tuple(_cache(item, f"caches[{i}]") for i, item in enumerate(_list(top.get("caches", []), "caches")))
    if not sets:
        raise FleetError("sets: there must be at least one")
    _unique(
        [s.key for s in sets], "two sets have the same kind, subscription, resource group, name and placement group"
    )
    _unique([m.id for s in sets for m in s.machines], "two machines have the same id")
    _unique([m.vm_id for s in sets for m in s.machines if m.vm_id], "two machines have the same vm_id")
    _unique([c.host.lower() for c in caches], "two caches have the same host")
    return Fleet(sets=sets, caches=caches)


_OF_A_SET = {
    "kind", "name", "subscription", "resource_group", "machines", "load_balancer", "placement_group",
    "upgrades_announced", "terminate_notice_seconds",
}  # fmt: skip


def _set(data: Any, where: str) -> MachineSet:
    item = _object(data, where)
    _only(item, where, _OF_A_SET)
    kind = _text(item, "kind", where)
    if kind not in KINDS:
        raise FleetError(f"{where}.kind: {kind!r} is none of {', '.join(KINDS)}")
    name = _text(item, "name", where)
    subscription = _text(item, "subscription", where)
    resource_group = _text(item, "resource_group", where)
    machines = tuple(
        _machine(m, f"{where}.machines[{i}]") for i, m in enumerate(_list(item.get("machines"), f"{where}.machines"))
    )
    if not machines:
        raise FleetError(f"{where}.machines: there must be at least one")
    if kind == "standalone" and len(machines) > 1:
        raise FleetError(f"{where}: a standalone set has one machine, this one has {len(machines)}")
    _unique([m.name.lower() for m in machines], f"{where}: two machines of the set have the same name")
    placement_group = _text(item, "placement_group", where, default="", empty=True)
    for key in ("placement_group", "upgrades_announced"):
        if item.get(key) and kind != "scale_set":
            raise FleetError(f"{where}.{key}: only a scale set has one")
    upgrades = item.get("upgrades_announced", False)
    if not isinstance(upgrades, bool):
        raise FleetError(f"{where}.upgrades_announced: expected true or false, found {_kind_of(upgrades)}")
    notice = item.get("terminate_notice_seconds")
    if notice is not None and (type(notice) is not int or not 300 <= notice <= 900):
        raise FleetError(f"{where}.terminate_notice_seconds: expected 300 to 900, found {notice!r}")
    parts = [subscription, resource_group, name, *([placement_group] if placement_group else ())]
    group_id = str(uuid.uuid5(_NAMESPACE, "/".join(parts).lower()))
    return MachineSet(
        kind=kind,
        name=name,
        subscription=subscription,
        resource_group=resource_group,
        placement_group_id=group_id if kind == "scale_set" else "",
        machines=machines,
        load_balancer=_load_balancer(item["load_balancer"], f"{where}.load_balancer")
        if "load_balancer" in item
        else None,
        placement_group=placement_group,
        upgrades_announced=upgrades,
        terminate_notice_seconds=notice,
    )


def _load_balancer(data: Any, where: str) -> LoadBalancer:
    item = _object(data, where)
    _only(item, where, {"address", "ports"})
    ports = _object(item.get("ports"), f"{where}.ports")
    for port in (*ports, *ports.values()):
        if not str(port).isdecimal() or not 0 < int(port) < 65536:
            raise FleetError(f"{where}.ports: {port!r} is no port")
    return LoadBalancer(
        address=_text(item, "address", where),
        ports=tuple((int(frontend), int(backend)) for frontend, backend in ports.items()),
    )


def _machine(data: Any, where: str) -> Machine:
    item = _object(data, where)
    known = {"id", "name", "vm_id", "fault_domain", "update_domain", "zone", "location", "size", "tags", "identities"}
    _only(item, where, known)
    identifier = _text(item, "id", where)
    # The id is one segment of the path under which the machine is served.
    if any(character in identifier for character in "/?#%") or identifier != identifier.strip():
        raise FleetError(f"{where}.id: {identifier!r} must do as one part of a URL's path")
    tags = _object(item.get("tags", {}), f"{where}.tags")
    if not all(isinstance(value, str) for value in tags.values()):
        raise FleetError(f"{where}.tags: every value must be text")
    identities = _list(item.get("identities", []), f"{where}.identities")
    if not all(isinstance(identity, str) and identity for identity in identities):
        raise FleetError(f"{where}.identities: every client id must be text")
    return Machine(
        id=identifier,
        name=_text(item, "name", where),
        vm_id=_text(item, "vm_id", where, default="", empty=True),
        fault_domain=_domain(item, "fault_domain", where),
        update_domain=_domain(item, "update_domain", where),
        zone=_text(item, "zone", where, default="", empty=True),
        location=_text(item, "location", where, default="westeurope"),
        size=_text(item, "size", where, default="Standard_D2s_v5"),
        tags=tuple(sorted(tags.items())),
        identities=tuple(identities),
    )


def _cache(data: Any, where: str) -> Cache:
    item = _object(data, where)
    _only(item, where, {"host", "tier", "server"})
    return Cache(
        host=_text(item, "host", where),
        tier=_text(item, "tier", where),
        server=_text(item, "server", where, default="", empty=True),
    )


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FleetError(f"{where}: expected an object, found {_kind_of(value)}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise FleetError(f"{where}: expected a list, found {_kind_of(value)}")
    return value


def _text(item: Mapping[str, Any], key: str, where: str, *, default: str | None = None, empty: bool = False) -> str:
    value = item.get(key, default)
    if value is None:
        raise FleetError(f"{where}.{key}: is missing")
    # Zones are numbers to people and text to Azure.
    if key == "zone" and isinstance(value, int):
        value = str(value)
    if not isinstance(value, str):
        raise FleetError(f"{where}.{key}: expected text, found {_kind_of(value)}")
    if not value and not empty:
        raise FleetError(f"{where}.{key}: must not be empty")
    return value


def _domain(item: Mapping[str, Any], key: str, where: str) -> int:
    value = item.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FleetError(f"{where}.{key}: expected a whole number from 0, found {value!r}")
    return value


def _only(item: Mapping[str, Any], where: str, known: set[str]) -> None:
    unknown = sorted(set(item) - known)
    if unknown:
        raise FleetError(f"{where}: does not know {', '.join(unknown)}; it knows {', '.join(sorted(known))}")


def _unique(values: list[str], complaint: str) -> None:
    twice = sorted(value for value, times in Counter(values).items() if times > 1)
    if twice:
        raise FleetError(f"{complaint}: {', '.join(twice)}")


def _kind_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)
