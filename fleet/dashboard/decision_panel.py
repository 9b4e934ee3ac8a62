"""What one person may do about one event, and what is asked for: the decision panel shows nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.approvals.conditions import LATER, When
from fleet.domain.approvals.guards import TAKE_REASONS, Need
from fleet.domain.approvals.recheck import uncovered
from fleet.domain.people import Right, Rights
from fleet.domain.reasons import Reason
from fleet.domain.states import ApprovalState
from fleet.projections.events.detail import EventDetail
from fleet.wording.approvals import asks_for, standing
from fleet.wording.say import say
from fleet.wording.times import page_reader


@dataclass(frozen=True, slots=True)
class Shown:
    """A guard on the page: what it says, what it `needs`, and `asks` for in words. A reason field may say the same."""

    code: str
    sentence: str
    needs: Need
    asks: str
    has_field: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A reason that is asked for: a field of this `name`. `waits`: an approval for when it is prepared does without.
    `shown` are the digests of its guards, which the form sends back.
    """

    code: str
    name: str
    shown: str
    sentence: str
    value: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """`title` says how the decision stands, `missing` and `second_missing` which right is not there (empty if it
    is). `verb` is Approve or Propose.
    """

    title: str
    may: bool
    may_override: bool
    missing: str
    second_missing: str
    guards: tuple[Shown, ...]
    asks: tuple[Ask, ...]
    blocked: bool
    verb: str

    @property
    def start(self) -> str:
        """What its buttons begin with; the event follows."""
        return "Start" if self.verb == "Approve" else f"{self.verb}: start"


def panel_of(
    name: str,
    rights: Rights,
    detail: EventDetail,
    *,
    now: datetime,
    refusal: Mapping[str, Any] | None = None,
    sent: Mapping[str, str] | None = None,
) -> Panel:
    """For the person of this name and these rights; `refusal` and `sent` are what a form just came back with."""
    approval = detail.event.approval
    proposed = approval is not None and approval.state is ApprovalState.PROPOSED
    hidden = {"already-decided"} if proposed else set()
    standing_guards = detail.guards
    if approval is not None and proposed and approval.decision is not None:
        asked = {guard.code for guard in uncovered(approval.decision, detail.guards)}
        standing_guards = tuple(g for g in detail.guards if g.code in asked or g.needs is Need.NOTE)
    may_override = rights.may(Right.OVERRIDE, detail.place)
    words = page_reader(now)
    found = {guard.code: (say(guard.sentence, words), guard.needs, guard.overridable) for guard in standing_guards}
    digests: dict[str, list[str]] = {}
    for guard in standing_guards:
        digests.setdefault(guard.code, []).append(guard.shown)
    # The refusal may name a guard that counts for the time that was said only.
    for one in (refusal or {}).get("guards", ()):
        known = digests.setdefault(one["code"], [])
        new = [
            digest for digest in (refusal or {}).get("shown", {}).get(one["code"], "").split() if digest not in known
        ]
        if new or one["code"] not in found:
            found[one["code"]] = (one["sentence"], Need(one["needs"]), one["overridable"])
            known += new
    open_guards = [(code, *rest) for code, rest in found.items() if code not in hidden]
    stuck = {code for code, _, needs, past in open_guards if needs is Need.BLOCKS and not (past and may_override)}
    asks = {
        code: Ask(
            code=code,
            name=f"reason-{code}",
            shown=" ".join(digests[code]),
            sentence=sentence,
            value=(sent or {}).get(f"reason-{code}", ""),
            waits=code in LATER[When.PREPARED],
        )
        for code, sentence, _, _ in open_guards
        if code in TAKE_REASONS and code not in stuck
    }
    return Panel(
        title=standing(detail.event),
        may=rights.may(Right.APPROVE, detail.place),
        may_override=may_override,
        missing=say(rights.missing(Right.APPROVE, detail.place, doing="approve") or "", words),
        second_missing=say(_no_second(name, rights, detail), words),
        guards=tuple(
            Shown(code, sentence, needs, asks_for(needs, overridable=past, may_override=may_override), code in asks)
            for code, sentence, needs, past in open_guards
        ),
        asks=tuple(asks.values()),
        blocked=bool(stuck),
        verb="Propose" if any(needs is Need.SECOND for _, _, needs, _ in open_guards) else "Approve",
    )


def _no_second(name: str, rights: Rights, detail: EventDetail) -> Reason | str:
    approval = detail.event.approval
    if approval is not None and approval.by == name:
        return Reason("consent-of-proposer")
    return rights.missing(Right.OVERRIDE, detail.place, doing="consent") or ""
