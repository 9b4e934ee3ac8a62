"""Assignment of a machine to a set, from what the agent, tags, instance metadata and the inventory state."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from fleet.domain.reasons import Reason, Refused
from fleet.domain.texts import is_seen, tidy

NAMED_KINDS = ("availability_set", "scale_set", "cloud_service", "standalone")
PROVISIONAL = "provisional"
KINDS = (*NAMED_KINDS, PROVISIONAL)
MAX_NAME = 200
# The most live machines that a set may need; no set of Azure's has more.
MAX_NEEDS = 1000
# The code of the fault of a confined machine with a statement of another set.
OUTSIDE = "states-another-set"
# Parts that a statement of a set may omit.
WHERE = ("subscription", "resource_group", "placement_group")


@dataclass(frozen=True, slots=True)
class SetKey:
    """A set as one source states it. Two statements mean the same set if their `key` (lower case) is equal."""

    kind: str
    name: str
    subscription: str = ""
    resource_group: str = ""
    placement_group: str = ""

    @property
    def key(self) -> str:
        name = f"{self.name}/{self.placement_group}" if self.placement_group else self.name
        return "|".join((self.kind, self.subscription, self.resource_group, name)).lower()

    @property
    def shown(self) -> str:
        """The set as `kind:name`."""
        return f"{self.kind}:{self.name}"

    @property
    def placed(self) -> bool:
        """Whether the subscription or resource group is stated. Sets in two resource groups may have the same name."""
        return bool(self.subscription or self.resource_group)

    def within(self, compute: dict[str, Any]) -> "SetKey":
        """Return a copy with the subscription and resource group from a machine's instance metadata."""
        subscription, group = _text(compute, "subscriptionId"), _text(compute, "resourceGroupName")
        return replace(self, subscription=subscription, resource_group=group)


def _text(compute: dict[str, Any], name: str) -> str:
    value = compute.get(name)
    return tidy(value) if isinstance(value, str) else ""


def read_stated(stated: str) -> tuple[str, str] | None:
    """Parse `[kind:]name` as (kind, name); None if empty. Without a kind it is an availability set.

    Raises Refused `validation` for a kind that is not in `NAMED_KINDS`, or an invalid name.
    """
    if not is_seen(stated.strip()):
        raise Refused("validation", Reason("names-no-set", stated=tidy(stated)[:MAX_NAME]))
    stated = stated.strip()
    if not stated:
        return None
    kind, colon, name = stated.partition(":")
    if not colon:
        kind, name = "availability_set", stated
    kind, name = kind.strip().lower(), name.strip()
    # Names of Azure are shorter, and hold neither of these signs.
    if kind not in NAMED_KINDS or not name or len(name) > MAX_NAME or "|" in name:
        raise Refused("validation", Reason("names-no-set", stated=stated[:MAX_NAME]))
    return kind, name


class SetSource(StrEnum):
    """Sources that state a machine's set. If they disagree, the first in this order counts."""

    CONFINEMENT = "confinement"
    CONFIGURATION = "configuration"
    TAG = "tag"
    SCALE_SET = "scale_set"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class Statement:
    """One source's statement of a machine's set."""

    source: SetSource
    key: SetKey


@dataclass(frozen=True, slots=True)
class Statements:
    """All statements of a machine's set, in the order of precedence. `problems` are about statements that are not
    valid.
    """

    stated: tuple[Statement, ...] = ()
    problems: tuple[Reason, ...] = ()

    @property
    def key(self) -> SetKey | None:
        """The set that counts; parts that the first statement omits are taken from those that agree with it. None if
        there are none.
        """
        if not self.stated:
            return None
        key = self.stated[0].key
        # Where a confined machine may be is not for the machine to say; Azure divides a scale set into its groups.
        blanks = ("placement_group",) if self.source is SetSource.CONFINEMENT else WHERE
        for other in self.stated[1:]:
            if agree(key, other.key):
                key = replace(key, **{part: getattr(key, part) or getattr(other.key, part) for part in blanks})
        return key

    @property
    def source(self) -> SetSource | None:
        return self.stated[0].source if self.stated else None


def agree(one: SetKey, other: SetKey) -> bool:
    """Return whether both statements can mean the same set. A part that only one of them states is no contradiction."""
    if (one.kind, one.name.lower()) != (other.kind, other.name.lower()):
        return False
    stated = [(getattr(one, part).lower(), getattr(other, part).lower()) for part in WHERE]
    return all(left == right for left, right in stated if left and right)


def read_tags(compute: dict[str, Any]) -> dict[str, str]:
    """Return the VM's tags from `tagsList` in the instance metadata, with names in lower case. Values that are not text
    are omitted.
    """
    listed = compute.get("tagsList")
    if not isinstance(listed, list):
        return {}
    pairs = [(tag.get("name"), tag.get("value")) for tag in listed if isinstance(tag, dict)]
    return {name.lower(): value for name, value in pairs if isinstance(name, str) and isinstance(value, str)}


def read_statements(
    *,
    configured: str,
    compute: dict[str, Any],
    inventory: SetKey | None,
    set_tag: str,
    confined: SetKey | None = None,
) -> Statements:
    """Collect all statements of a machine's set.

    `configured` is `[kind:]name` from the agent's settings or its join token. `compute` is the instance metadata, with
    the tag that `set_tag` names. `inventory` is the set in an imported inventory. `confined` is the only set that a
    join token or administrator permits.
    """
    subscription, group = _text(compute, "subscriptionId"), _text(compute, "resourceGroupName")
    found: list[Statement] = [Statement(SetSource.CONFINEMENT, confined)] if confined is not None else []
    problems: list[Reason] = []
    for source, text in (
        (SetSource.CONFIGURATION, configured),
        (SetSource.TAG, read_tags(compute).get(set_tag.lower(), "")),
    ):
        try:
            named = read_stated(text)
        except Refused:
            problems.append(Reason("stated-unreadably", source=source.value, tag=set_tag, stated=text[:MAX_NAME]))
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


def provisional_set_name(compute: dict[str, Any], machine_id: str) -> SetKey:
    """Return the provisional set of a machine whose set no source states."""
    return SetKey(PROVISIONAL, machine_id, _text(compute, "subscriptionId"), _text(compute, "resourceGroupName"))


def disagreement(stated: Sequence[Statement], *, set_tag: str) -> Reason | None:
    """Return how the sources disagree about the set, with every statement, the one that counts first; None if they
    agree.
    """
    if not stated or all(agree(stated[0].key, other.key) for other in stated[1:]):
        return None
    code = "sets-disagree"
    if stated[0].source is SetSource.CONFINEMENT:
        code, stated = OUTSIDE, [each for each in stated if each is stated[0] or not agree(stated[0].key, each.key)]
    return Reason(
        code,
        tag=set_tag,
        statements=[{"source": each.source.value, **asdict(each.key)} for each in stated],
    )


def _domain(compute: dict[str, Any], name: str) -> int | None:
    text = _text(compute, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def location_of(compute: dict[str, Any]) -> dict[str, Any]:
    """Return columns of the machine table from the instance metadata: fault domain, update domain, zone, region, size,
    OS.

    Missing values are None or empty.
    """
    return {
        "fault_domain": _domain(compute, "platformFaultDomain"),
        "update_domain": _domain(compute, "platformUpdateDomain"),
        "zone": _text(compute, "zone"),
        "region": _text(compute, "location"),
        "size": _text(compute, "vmSize"),
        "os_type": _text(compute, "osType"),
    }


def with_suffix(places: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return for each of several sets with the same name the shortest suffix that distinguishes it from the others.

    `places` are (kind, resource group, subscription). The suffix is empty if there is only one set.
    """
    return [_apart(place, [*places[:number], *places[number + 1 :]]) for number, place in enumerate(places)]


def _apart(place: tuple[str, str, str], others: Sequence[tuple[str, str, str]]) -> str:
    if not others:
        return ""
    kind, group, subscription = place
    groups = {other[1].lower() for other in others} - {group.lower()}
    subscriptions = {other[2].lower() for other in others} - {subscription.lower()}
    said = []
    if groups:
        said.append(group or "no resource group")
    if subscriptions:
        said.append(subscription or "no subscription")
    if any((other[1].lower(), other[2].lower()) == (group.lower(), subscription.lower()) for other in others):
        said.append(kind.replace("_", " "))
    return ", ".join(said)
