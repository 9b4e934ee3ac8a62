"""What stands against a decision and how it is overridden: by a reason, or by the right to go past what blocks."""

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.domain.actor import Actor, ActorKind
from fleet.domain.approvals.guards import ACCEPTABLE, EventFacts, Guard, Need, without
from fleet.domain.people import Right
from fleet.domain.reason import as_json
from fleet.domain.refusal import Refused
from fleet.domain.times import iso
from fleet.operations.people.rights import require

# Guards that are a problem type of their own; every other guard that stands in the way answers `guarded`.
OWN_TYPES = {
    "already-decided": "already-decided",
    "too-late": "too-late",
    "event-not-open": "too-late",
    "version-changed": "version-changed",
    "all-stopped": "stopped",
}


def override(
    facts: EventFacts,
    found: list[Guard],
    actor: Actor,
    reasons: Mapping[str, str],
    shown: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """What was overridden, as an approval keeps it (`kept`); `reasons` are by guard code. `shown` are the digests of
    the guards that were looked at (`Guard.shown`), by code with blanks between them: a reason covers no other.

    Guards that ask for a second person are left to the caller; one that asks for a proof is satisfied by
    `actor.proved`, and by a service account where the set spares those. Raises Refused for what stands in the way.
    """
    # A rule accepts some guards in advance; past one that blocks only a person goes.
    may_be = ACCEPTABLE if actor.person is None else [guard.code for guard in found]
    given = {g.code for g in found if g.takes_reason and g.code in may_be and reasons.get(g.code)}
    given -= {g.code for g in found if g.code in (shown or {}) and g.shown not in (shown or {})[g.code].split()}
    # Nobody can ask a service account; of a person's token it is not known who has it.
    spared = actor.kind is ActorKind.SERVICE and facts.step_up_spares_services
    dealt_with = (Need.SECOND, Need.STEP_UP) if actor.proved or spared else (Need.SECOND,)
    standing = [guard for guard in without(found, given) if guard.needs not in dealt_with]
    if standing:
        refuse(facts, standing)
    if actor.person is not None and any(guard.blocks for guard in found):
        require(actor, Right.OVERRIDE, facts.place, doing="override")
    return [kept(guard, reasons[guard.code]) for guard in found if guard.code in given]


def kept(guard: Guard, reason: str) -> dict[str, Any]:
    """A guard that was overridden, as an approval keeps it; `reason` is what somebody wrote."""
    return {"code": guard.code, "values": as_json(guard.values), "reason": reason}


def told(found: Iterable[Guard]) -> list[dict[str, object]]:
    """Guards as the details of a refusal."""
    return [
        {"code": g.code, "sentence": g.sentence, "needs": g.needs.value, "overridable": g.overridable} for g in found
    ]


def refuse(facts: EventFacts, standing: list[Guard]) -> None:
    """Raises Refused for the first of these guards, with all of them in its details."""
    first = standing[0]
    code = OWN_TYPES.get(first.code, "guarded")
    shown: dict[str, str] = {}
    for guard in standing:
        shown[guard.code] = f"{shown.get(guard.code, '')} {guard.shown}".strip()
    details: dict[str, object] = {"guards": told(standing), "shown": shown, "version": facts.version}
    if code == "already-decided" and facts.decision is not None:
        details |= {
            "by": facts.decision.by,
            "at": iso(facts.decision.at) if facts.decision.at else None,
            "approval": facts.decision.approval_id,
        }
    raise Refused(code, first.sentence, **details)
