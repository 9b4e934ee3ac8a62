"""Which availability set a machine belongs to, from what is stated about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NAMED_KINDS = ("availability_set", "scale_set", "cloud_service", "standalone")
PROVISIONAL = "provisional"
MAX_NAME = 200
KIND_WORDS = {
    "availability_set": "availability set",
    "scale_set": "scale set",
    "cloud_service": "cloud service",
    "standalone": "standalone machine",
    PROVISIONAL: "provisional set",
}


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

    Raises ValueError for a kind that is none of `NAMED_KINDS`, and for a name that cannot be one.
    """
    stated = stated.strip()
    if not stated:
        return None
    kind, colon, name = stated.partition(":")
    if not colon:
        kind, name = "availability_set", stated
    kind, name = kind.strip().lower(), name.strip()
    # Names of Azure are shorter, and hold neither of these signs.
    if kind not in NAMED_KINDS or not name or len(name) > MAX_NAME or "|" in name or "\x00" in name:
        raise ValueError(
            f"{stated[:MAX_NAME]!r} names no set: write [kind:]name, with a kind of {', '.join(NAMED_KINDS)}."
        )
    return kind, name


class SetSource(StrEnum):
    """Who says which set a machine is in, in the order in which they count."""

    CONFIGURATION = "configuration"
    TAG = "tag"
    SCALE_SET = "scale_set"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says."""

    source: SetSource
    key: SetKey


@dataclass(frozen=True, slots=True)
class Statements:
    """What a machine's sources say, the one that counts first; `problems` are sentences about unreadable ones."""

    stated: tuple[Statement, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def key(self) -> SetKey | None:
        """The set that counts, with its blanks filled in by those that agree; None when nobody says anything."""
        if not self.stated:
            return None
        key = self.stated[0].key
        for other in self.stated[1:]:
            if agree(key, other.key):
                key = SetKey(
                    key.kind,
                    key.name,
                    key.subscription or other.key.subscription,
                    key.resource_group or other.key.resource_group,
                    key.placement_group or other.key.placement_group,
                )
        return key

    @property
    def source(self) -> SetSource | None:
        return self.stated[0].source if self.stated else None


def agree(one: SetKey, other: SetKey) -> bool:
    """Whether both can mean the same set: what only one of them states is no contradiction."""

    def same(left: str, right: str) -> bool:
        return not left or not right or left.lower() == right.lower()

    return (
        one.kind == other.kind
        and one.name.lower() == other.name.lower()
        and same(one.subscription, other.subscription)
        and same(one.resource_group, other.resource_group)
        and same(one.placement_group, other.placement_group)
    )


def read_tags(compute: dict[str, Any]) -> dict[str, str]:
    """The VM's tags out of `tagsList`; what is no text is left out. Names of tags are compared without case."""
    listed = compute.get("tagsList")
    if not isinstance(listed, list):
        return {}
    pairs = [(tag.get("name"), tag.get("value")) for tag in listed if isinstance(tag, dict)]
    return {name.lower(): value for name, value in pairs if isinstance(name, str) and isinstance(value, str)}


def read_statements(*, configured: str, compute: dict[str, Any], inventory: SetKey | None, set_tag: str) -> Statements:
    """Everything that is stated about a machine's set.

    `configured` is the agent's own `[kind:]name`, or its join token's; `set_tag` the name of the tag that holds one. A
    uniform scale set states its placement group, a flexible one an empty one.
    """
    subscription, group = _text(compute, "subscriptionId"), _text(compute, "resourceGroupName")
    found: list[Statement] = []
    problems: list[str] = []
    for source, text, where in (
        (SetSource.CONFIGURATION, configured, "Its configuration"),
        (SetSource.TAG, read_tags(compute).get(set_tag.lower(), ""), f"Its tag {set_tag}"),
    ):
        try:
            named = read_stated(text)
        except ValueError as error:
            problems.append(f"{where} cannot be read: {error}")
            continue
        if named is not None:
            found.append(Statement(source, SetKey(named[0], named[1], subscription, group)))
    scale_set = _text(compute, "vmScaleSetName")
    if scale_set:
        placement = _text(compute, "placementGroupId")
        found.append(Statement(SetSource.SCALE_SET, SetKey("scale_set", scale_set, subscription, group, placement)))
    if inventory is not None:
        found.append(Statement(SetSource.INVENTORY, inventory))
    return Statements(tuple(found), tuple(problems))


def own_set(compute: dict[str, Any], machine_id: str) -> SetKey:
    """The provisional set of a machine about which nobody says anything."""
    return SetKey(PROVISIONAL, machine_id, _text(compute, "subscriptionId"), _text(compute, "resourceGroupName"))


def _named(key: SetKey) -> str:
    return f"{KIND_WORDS[key.kind]} {key.name}"


def _place(key: SetKey) -> str:
    parts = (
        f" in placement group {key.placement_group}" if key.placement_group else "",
        f" in resource group {key.resource_group}" if key.resource_group else "",
        f" of subscription {key.subscription}" if key.subscription else "",
    )
    return "".join(parts)


def _said_by(source: SetSource, set_tag: str) -> str:
    return {
        SetSource.CONFIGURATION: "its configuration",
        SetSource.TAG: f"its tag {set_tag}",
        SetSource.SCALE_SET: "Azure's scale set metadata",
        SetSource.INVENTORY: "the imported inventory",
    }[source]


def _to_correct(source: SetSource, set_tag: str) -> str:
    return {
        SetSource.CONFIGURATION: "DRYDOCK_AVAILABILITY_SET on the machine (or enrol it with another join token)",
        SetSource.TAG: f"the tag {set_tag} of the VM",
        SetSource.SCALE_SET: "",
        SetSource.INVENTORY: "the inventory by importing a newer one",
    }[source]


def disagreement(stated: Sequence[Statement], *, set_tag: str) -> str:
    """One warning: which sources disagree, what each says, which one counts, what to do. Empty when they agree.

    A place that only one source states is named too, since two sets of one name in two resource groups are two sets.
    """
    if not stated or all(agree(stated[0].key, other.key) for other in stated[1:]):
        return ""
    same_words = len({_named(each.key).lower() for each in stated}) < len(stated)
    said = ", ".join(
        f"{_said_by(each.source, set_tag)} says {_named(each.key)}" + (_place(each.key) if same_words else "")
        for each in stated
    )
    ways = [way for each in stated if (way := _to_correct(each.source, set_tag))]
    return (
        f"It is not clear which set this machine is in: {said}. Until they agree,"
        f" {_said_by(stated[0].source, set_tag)} counts. Correct the one that is wrong: {', or '.join(ways)};"
        " or merge the two sets if both names mean one."
    )


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
