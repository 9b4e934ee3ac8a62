"""Which availability set a machine belongs to, from what is stated about it."""

from dataclasses import dataclass
from typing import Any

NAMED_KINDS = ("availability_set", "scale_set", "cloud_service", "standalone")


@dataclass(frozen=True, slots=True)
class SetKey:
    """A set as stated. `key` (lower case) is what makes two statements the same set."""

    kind: str
    name: str
    subscription: str = ""
    resource_group: str = ""
    placement_group: str = ""

    @property
    def key(self) -> str:
        name = f"{self.name}/{self.placement_group}" if self.placement_group else self.name
        return "|".join((self.kind, self.subscription, self.resource_group, name)).lower()


def _text(compute: dict[str, Any], name: str) -> str:
    value = compute.get(name)
    return value.strip() if isinstance(value, str) else ""


def read_stated(stated: str) -> tuple[str, str] | None:
    """`[kind:]name` as (kind, name); None when empty. Without a kind it is an availability set.

    Raises ValueError for a kind that is none of `NAMED_KINDS`.
    """
    stated = stated.strip()
    if not stated:
        return None
    kind, colon, name = stated.partition(":")
    if not colon:
        return "availability_set", stated
    kind, name = kind.strip().lower(), name.strip()
    if kind not in NAMED_KINDS or not name:
        raise ValueError(f"{stated!r} names no set: write [kind:]name, with a kind of {', '.join(NAMED_KINDS)}.")
    return kind, name


def set_of(*, stated: str, compute: dict[str, Any], machine_id: str) -> SetKey:
    """The machine's set: configuration first, then scale set metadata, else a provisional set of its own."""
    subscription, group = _text(compute, "subscriptionId"), _text(compute, "resourceGroupName")
    named = read_stated(stated)
    if named is not None:
        return SetKey(named[0], named[1], subscription, group)
    scale_set = _text(compute, "vmScaleSetName")
    if scale_set:
        return SetKey("scale_set", scale_set, subscription, group, _text(compute, "placementGroupId"))
    return SetKey("provisional", machine_id, subscription, group)


def _domain(compute: dict[str, Any], name: str) -> int | None:
    text = _text(compute, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine stands, out of its instance metadata; absent values are None or empty."""

    fault_domain: int | None
    update_domain: int | None
    zone: str
    region: str
    size: str
    os_type: str


def place_of(compute: dict[str, Any]) -> Place:
    return Place(
        fault_domain=_domain(compute, "platformFaultDomain"),
        update_domain=_domain(compute, "platformUpdateDomain"),
        zone=_text(compute, "zone"),
        region=_text(compute, "location"),
        size=_text(compute, "vmSize"),
        os_type=_text(compute, "osType"),
    )
