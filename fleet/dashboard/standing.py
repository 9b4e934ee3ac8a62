"""What one person may do about one event, and what is asked for: the decision panel shows nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.conditions import LATER, When
from fleet.domain.guards import TAKE_REASONS, Need
from fleet.domain.states import ApprovalState
from fleet.operations.errors import Refused
from fleet.operations.rights import Person, can_approve, can_override, require_approve, require_override
from fleet.projections.events import EventDetail

# What a guard asks for, in words beside it.
NEEDS = {
    Need.BLOCKS: "nobody can go past it",
    Need.SECOND: "takes a second person",
    Need.REASON: "takes a reason",
    Need.NOTE: "to be known",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A guard on the page. `tone` and `icon` say how grave it is, `asks` what it needs, in words; `has_field` where a
    reason field says the same.
    """

    code: str
    sentence: str
    asks: str
    tone: str
    icon: str
    has_field: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A reason that is asked for: a field `reason-<code>`. `required` for each way of approving."""

    code: str
    sentence: str
    value: str
    required: bool

    @property
    def name(self) -> str:
        return f"reason-{self.code}"


@dataclass(frozen=True, slots=True)
class Standing:
    """`missing` and `second_missing` say which right is not there; empty where it is. `verb` is Approve or Propose."""

    may: bool
    may_override: bool
    missing: str
    second_missing: str
    guards: tuple[Shown, ...]
    asks: tuple[Ask, ...]
    blocked: bool
    verb: str


def refusal_of(check: Callable[[], None]) -> str:
    """The sentence with which a right is refused; empty where it is there."""
    try:
        check()
    except Refused as refusal:
        return refusal.sentence
    return ""


def standing_of(
    person: Person,
    detail: EventDetail,
    *,
    refusal: Mapping[str, Any] | None = None,
    sent: Mapping[str, str] | None = None,
) -> Standing:
    """For this person; `refusal` and `sent` are what a form just came back with."""
    approval = detail.event.approval
    proposed = approval is not None and approval.state is ApprovalState.PROPOSED
    overcome = {one.code for one in approval.overrides} if approval is not None and proposed else set()
    hidden = overcome | ({"already-decided"} if proposed else set())
    may_override = can_override(person, detail.place)
    found = {guard.code: (guard.sentence, guard.needs, guard.overridable) for guard in detail.guards}
    # The refusal may name a guard that counts for the time that was said only.
    for one in (refusal or {}).get("guards", ()):
        found.setdefault(one["code"], (one["sentence"], Need(one["needs"]), one["overridable"]))
    standing = {code: told for code, told in found.items() if code not in hidden}
    asks = tuple(
        Ask(code, sentence, (sent or {}).get(f"reason-{code}", ""), required=code not in LATER[When.PREPARED])
        for code, (sentence, needs, overridable) in standing.items()
        if code in TAKE_REASONS and (needs is not Need.BLOCKS or (overridable and may_override))
    )
    fields = {ask.code for ask in asks}
    return Standing(
        may=can_approve(person, detail.place),
        may_override=may_override,
        missing=refusal_of(lambda: require_approve(person, detail.place)),
        second_missing=_no_second(person, detail),
        guards=tuple(
            _shown(code, *told, may_override=may_override, has_field=code in fields) for code, told in standing.items()
        ),
        asks=asks,
        blocked=any(
            needs is Need.BLOCKS and not (overridable and may_override) for _, needs, overridable in standing.values()
        ),
        verb="Propose" if any(needs is Need.SECOND for _, needs, _ in standing.values()) else "Approve",
    )


def _no_second(person: Person, detail: EventDetail) -> str:
    approval = detail.event.approval
    if approval is not None and approval.by == person.get_username():
        return "You proposed it yourself: the second person has to be somebody else, an approver."
    return refusal_of(lambda: require_override(person, detail.place, verb="Being the second person"))


def _shown(code: str, sentence: str, needs: Need, overridable: bool, *, may_override: bool, has_field: bool) -> Shown:
    if needs is Need.BLOCKS and overridable:
        asks = "takes a reason" if may_override else "blocks; an approver may go past it with a reason"
    else:
        asks = NEEDS[needs]
    tone, icon = {
        Need.BLOCKS: ("bad", "octagon-x"),
        Need.SECOND: ("due", "users"),
        Need.REASON: ("due", "triangle-alert"),
        Need.NOTE: ("quiet", "info"),
    }[needs]
    return Shown(code, sentence, asks, tone, icon, has_field)
