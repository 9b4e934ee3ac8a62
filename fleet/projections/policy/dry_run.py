"""Trying a rule on what happened: which stored events it would have decided at their first sighting, beside what became
of them.

What is kept of the past is used as it was then (hours, notice, no-approval windows, what else was under way); the rest
is as it is now, or is not known at all, and the answer says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fleet.domain.policy.rules import Action, Does, StandingRule, Verdict, matching, verdict, wording
from fleet.domain.reason import Reason
from fleet.domain.shapes import like
from fleet.domain.states import ApprovalState, EndedAs, EventStatus
from fleet.models import ScheduledEvent
from fleet.models.facts.events import name_of
from fleet.models.policy import rule_of, rules_in_force
from fleet.projections.policy.past import Past
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.sight import seen

NEWEST = 500
# Guards that pass by themselves: the rule would have decided once they were gone.
PASSING = frozenset({"set-in-flight", "service-in-flight"})
# What the answer does not know of the past; reasons of these codes say so.
UNKNOWABLE = ("past-presence", "past-preparation", "past-fields", "past-arrangement", "past-consequences")


class Would(StrEnum):
    """What the rule would have done. `later`: once other events were over; `earlier`: another rule stands before it."""

    APPROVE = "approve"
    LATER = "later"
    HOLD = "hold"
    LEAVE = "leave"
    GUARDED = "guarded"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class PastEvent:
    """One event that the rule matches: what it would have done, and what happened."""

    event_id: str
    event_type: str
    source: str
    duration_seconds: int | None
    resources: tuple[str, ...]
    set: SetRef
    first_seen_at: datetime
    not_before: datetime | None
    notice_seconds: int | None
    would: Would
    sentence: Reason
    status: EventStatus
    approved_by: Reason | str
    approved_at: datetime | None
    approval_state: ApprovalState | None
    held_by: Reason | str
    started_at: datetime | None
    ended_at: datetime | None
    ended_as: EndedAs | None
    approved_elsewhere: bool


@dataclass(frozen=True, slots=True)
class DryRun:
    """The answer. `considered` events were looked at, of which `matched` stand in `events`, the newest first.

    `agreed` counts those that the rule would have approved and somebody did approve. `more`: there are older events
    that were not looked at.
    """

    wording: Reason
    sentence: Reason
    considered: int
    matched: int
    approve: int
    later: int
    hold: int
    leave: int
    guarded: int
    earlier: int
    agreed: int
    since: datetime | None
    until: datetime | None
    more: bool
    events: tuple[PastEvent, ...]
    unknown: tuple[Reason, ...]
    server_time: datetime


def dry_run(
    *, rule: StandingRule, now: datetime, since: datetime | None = None, until: datetime | None = None
) -> DryRun:
    """Try a rule, saved or not, on the newest 500 events first seen in this time. Seven queries.

    It is tried as if it were switched on, at its place among the other rules in force (a rule without a place stands
    at the end).
    """
    rows = seen(ScheduledEvent).filter(drill=False).select_related("availability_set")
    if since is not None:
        rows = rows.filter(first_seen_at__gte=since)
    if until is not None:
        rows = rows.filter(first_seen_at__lt=until)
    events = list(rows.order_by("-first_seen_at", "-pk")[: NEWEST + 1])
    more = len(events) > NEWEST
    events = events[:NEWEST]
    tried = replace(rule, enabled=True, deleted=False, expires_at=None)
    earlier = [
        replace(one, expires_at=None)
        for one in map(rule_of, rules_in_force(now=now).values())
        if one.rule_id != rule.rule_id and (not rule.position or one.position < rule.position)
    ]
    past = Past(events)
    found = [one for event in events if (one := _tried(event, tried, earlier, past)) is not None]
    counts = {would: sum(one.would is would for one in found) for would in Would}
    return DryRun(
        wording=wording(rule),
        sentence=Reason(
            "dry-run",
            considered=len(events),
            agreed=_agreed(found),
            **{would.value: counts[would] for would in Would},
        ),
        considered=len(events),
        matched=len(found),
        approve=counts[Would.APPROVE],
        later=counts[Would.LATER],
        hold=counts[Would.HOLD],
        leave=counts[Would.LEAVE],
        guarded=counts[Would.GUARDED],
        earlier=counts[Would.EARLIER],
        agreed=_agreed(found),
        since=since,
        until=until,
        more=more,
        events=tuple(found),
        unknown=tuple(map(Reason, UNKNOWABLE)),
        server_time=now,
    )


def _tried(event: ScheduledEvent, rule: StandingRule, earlier: Sequence[StandingRule], past: Past) -> PastEvent | None:
    at = event.first_seen_at
    facts = past.facts_at(event, at)
    if not matching(rule, facts, now=at):
        return None
    would, sentence = _what(verdict([*earlier, rule], facts, now=at), rule)
    approvals = past.approvals.get(event.pk, [])
    # The newest that was not taken back.
    chosen = next((one for one in approvals if one.state != ApprovalState.WITHDRAWN.value), None)
    hold = past.holds.get(event.pk)
    return like(
        PastEvent,
        event,
        set=set_ref(event.availability_set),
        would=would,
        sentence=sentence,
        approved_by=name_of(chosen) if chosen else "",
        approved_at=chosen.decided_at if chosen else None,
        approval_state=ApprovalState(chosen.state) if chosen else None,
        held_by=name_of(hold) if hold else "",
    )


def _what(found: Verdict, rule: StandingRule) -> tuple[Would, Reason]:
    if found.rule is not rule:
        return Would.EARLIER, Reason("would-be-earlier", rule=found.rule.name if found.rule else "")
    if found.does is Does.HOLD:
        return Would.HOLD, Reason("would-hold")
    if found.does is Does.LEAVE:
        return Would.LEAVE, Reason("would-leave")
    if found.does is Does.APPROVE:
        return Would.APPROVE, Reason("would-approve", prepared=rule.action != Action.APPROVE_NOW)
    lasting = [guard for guard in found.against if guard.code not in PASSING]
    if not lasting:
        return Would.LATER, Reason("would-approve-later", guard=found.against[0].sentence)
    return Would.GUARDED, Reason("would-be-guarded", guard=lasting[0].sentence)


def _agreed(found: Sequence[PastEvent]) -> int:
    return sum(bool(one.approved_by) for one in found if one.would in (Would.APPROVE, Would.LATER))
