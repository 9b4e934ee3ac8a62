"""Assignment of machines to availability sets by statements."""

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

    @property
    def shown(self) -> str:
        """The set as `kind:name`."""
        return f"{self.kind}:{self.name}"

    @property
    def placed(self) -> bool:
        """Whether it states the set's place; two sets of one name may be in two resource groups."""
        return bool(self.subscription or self.resource_group)

    def within(self, compute: dict[str, Any]) -> "SetKey":
        """Return the same set, placed where a machine with this instance metadata is."""
        subscription, group = _text(compute, "subscriptionId"), _text(compute, "resourceGroupName")
        return replace(self, subscription=subscription, resource_group=group)


def _text(compute: dict[str, Any], name: str) -> str:
    value = compute.get(name)
    return tidy(value) if isinstance(value, str) else ""


def read_stated(stated: str) -> tuple[str, str] | None:
    """`[kind:]name` as (kind, name); None when empty. Without a kind it is an availability set.

    Raises Refused `validation` for a kind that is none of `NAMED_KINDS`, and for a name that cannot be one.
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
    """The sources of a machine's set, in the order in which they count."""

    CONFINEMENT = "confinement"
    CONFIGURATION = "configuration"
    TAG = "tag"
    SCALE_SET = "scale_set"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of one source."""

    source: SetSource
    key: SetKey


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of a machine's sources, the one that counts first; `problems` are about unreadable ones."""

    stated: tuple[Statement, ...] = ()
    problems: tuple[Reason, ...] = ()

    @property
    def key(self) -> SetKey | None:
        """The set that counts, with its blanks filled in by the sources that agree; None without a statement."""
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
    """Whether both can mean the same set: what only one of them states is no contradiction."""
    if (one.kind, one.name.lower()) != (other.kind, other.name.lower()):
        return False
    stated = [(getattr(one, part).lower(), getattr(other, part).lower()) for part in WHERE]
    return all(left == right for left, right in stated if left and right)


def read_tags(compute: dict[str, Any]) -> dict[str, str]:
    """Return the VM's tags from `tagsList`; values that are no text are omitted. Names of tags are compared without
    case."""
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
    """Everything that is stated about a machine's set.

    `configured` is the agent's own `[kind:]name`, or its join token's; `set_tag` the name of the tag that holds one;
    `confined` the set to which a join token or a person confines it. A uniform scale set states its placement group, a
    flexible one an empty one.
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
    """Return the provisional set of a machine without any statement."""
    return SetKey(PROVISIONAL, machine_id, _text(compute, "subscriptionId"), _text(compute, "resourceGroupName"))


def disagreement(stated: Sequence[Statement], *, set_tag: str) -> Reason | None:
    """Return the disagreement of sources: each statement, the one that counts first. None when they agree."""
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
    """Return the location columns of the machine table, from instance metadata; absent values are None or empty."""
    return {
        "fault_domain": _domain(compute, "platformFaultDomain"),
        "update_domain": _domain(compute, "platformUpdateDomain"),
        "zone": _text(compute, "zone"),
        "region": _text(compute, "location"),
        "size": _text(compute, "vmSize"),
        "os_type": _text(compute, "osType"),
    }


def with_suffix(places: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the shortest suffix for each of several sets of one name, by their (kind, resource group, subscription).
    Empty for one alone.
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
