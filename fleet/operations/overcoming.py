"""What stands against a decision and how it is overcome: by a reason, or by the right to go past what blocks."""

from collections.abc import Iterable, Mapping

from django.contrib.auth.models import User

from fleet.domain.guards import ACCEPTABLE, EventFacts, Guard, Need, without
from fleet.operations.errors import Refused
from fleet.operations.rights import can_override, require_override

# Guards that are a problem type of their own; every other guard that stands in the way answers `guarded`.
OWN_TYPES = {
    "already-decided": "already-decided",
    "too-late": "too-late",
    "event-not-open": "too-late",
    "version-changed": "version-changed",
}


def overcome(
    facts: EventFacts, found: list[Guard], by: User | None, reasons: Mapping[str, str]
) -> list[dict[str, str]]:
    """What was overcome, each `{"code", "sentence", "reason"}`; `by` is None for a rule, `reasons` are by guard code.

    Guards that ask for a second person are left to the caller. Raises Refused for what stands in the way.
    """
    # A rule accepts some guards in advance; past one that blocks only a person goes.
    may_be = ACCEPTABLE if by is None else [guard.code for guard in found]
    given = {g.code for g in found if g.takes_reason and g.code in may_be and reasons.get(g.code)}
    standing = [guard for guard in without(found, given) if guard.needs is not Need.SECOND]
    if standing:
        refuse(facts, standing)
    if by is not None and not can_override(by, facts.place) and any(guard.blocks for guard in found):
        require_override(by, facts.place, verb="Going past what a guard blocks")
    return [
        {"code": guard.code, "sentence": guard.sentence, "reason": reasons[guard.code]}
        for guard in found
        if guard.code in given
    ]


def told(found: Iterable[Guard]) -> list[dict[str, object]]:
    """Guards as the details of a refusal."""
    return [
        {"code": g.code, "sentence": g.sentence, "needs": g.needs.value, "overridable": g.overridable} for g in found
    ]


def refuse(facts: EventFacts, standing: list[Guard]) -> None:
    """Raises Refused for the first of these guards, with all of them in its details."""
    first = standing[0]
    code = OWN_TYPES.get(first.code, "guarded")
    details: dict[str, object] = {"guards": told(standing), "version": facts.version}
    if code == "already-decided" and facts.decision is not None:
        details |= {
            "by": facts.decision.by,
            "at": facts.decision.at.isoformat().replace("+00:00", "Z") if facts.decision.at else None,
            "approval": facts.decision.approval_id,
        }
    raise Refused(code, first.sentence, **details)
