"""Trying a rule on what happened: which stored events it would have decided at their first sighting, beside what became
of them.

What is kept of the past is used as it was then (hours, notice, no-approval windows, what else was under way); the rest
is as it is now, or is not known at all, and the answer says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fleet.domain.rules import Action, Does, Standing, Verdict, matching, verdict, wording
from fleet.domain.states import ApprovalState, EndedAs, EventStatus
from fleet.models import ScheduledEvent
from fleet.models.facts import name_of
from fleet.models.standing import rules_in_force, standing_of
from fleet.projections.past import Past
from fleet.projections.refs import SetRef, set_ref

NEWEST = 500
# Guards that pass by themselves: the rule would have decided once they were gone.
PASSING = frozenset({"set-in-flight", "service-in-flight"})
UNKNOWABLE = (
    "How present each machine was then is not kept: all machines of the set that had enrolled count as live.",
    "How prepared each machine was in that moment is not kept: hooks count as neither running nor failed.",
    "Type, source, duration, NotBefore and Resources are the last that Azure stated; they may have changed on the way.",
    "Services, names and the wish for a second person are those of today, and so are the other rules.",
    "An event that the rule would have started earlier would have ended earlier, too: what was under way is as it was.",
)


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
    sentence: str
    status: EventStatus
    approved_by: str
    approved_at: datetime | None
    approval_state: ApprovalState | None
    held_by: str
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

    wording: str
    sentence: str
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
    unknown: tuple[str, ...]
    server_time: datetime


def dry_run(*, rule: Standing, now: datetime, since: datetime | None = None, until: datetime | None = None) -> DryRun:
    """Try a rule, saved or not, on the newest 500 events first seen in this time. Seven queries.

    It is tried as if it were switched on, at its place among the other rules in force (a rule without a place stands
    at the end).
    """
    rows = ScheduledEvent.objects.filter(drill=False).select_related("availability_set")
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
        for one in map(standing_of, rules_in_force(now=now).values())
        if one.rule_id != rule.rule_id and (not rule.position or one.position < rule.position)
    ]
    past = Past(events)
    found = [one for event in events if (one := _tried(event, tried, earlier, past)) is not None]
    counts = {would: sum(one.would is would for one in found) for would in Would}
    return DryRun(
        wording=wording(rule),
        sentence=_sentence(counts, len(events), found),
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
        unknown=UNKNOWABLE,
        server_time=now,
    )


def _tried(event: ScheduledEvent, rule: Standing, earlier: Sequence[Standing], past: Past) -> PastEvent | None:
    at = event.first_seen_at
    facts = past.facts_at(event, at)
    if not matching(rule, facts, now=at):
        return None
    would, sentence = _what(verdict([*earlier, rule], facts, now=at), rule)
    approvals = past.approvals.get(event.pk, [])
    # The newest that was not taken back.
    chosen = next((one for one in approvals if one.state != ApprovalState.WITHDRAWN.value), None)
    hold = past.holds.get(event.pk)
    return PastEvent(
        event_id=event.event_id,
        event_type=event.event_type,
        source=event.source,
        duration_seconds=event.duration_seconds,
        resources=tuple(event.resources),
        set=set_ref(event.availability_set),
        first_seen_at=at,
        not_before=event.not_before,
        notice_seconds=event.notice_seconds,
        would=would,
        sentence=sentence,
        status=EventStatus(event.status),
        approved_by=name_of(chosen) if chosen else "",
        approved_at=chosen.decided_at if chosen else None,
        approval_state=ApprovalState(chosen.state) if chosen else None,
        held_by=name_of(hold) if hold else "",
        started_at=event.started_at,
        ended_at=event.ended_at,
        ended_as=EndedAs(event.ended_as) if event.ended_as else None,
        approved_elsewhere=event.approved_elsewhere,
    )


def _what(found: Verdict, rule: Standing) -> tuple[Would, str]:
    if found.rule is not rule:
        name = found.rule.name if found.rule else ""
        return Would.EARLIER, f"The rule “{name}” stands before it and would have been asked first."
    if found.does is Does.HOLD:
        return Would.HOLD, "It would have held it."
    if found.does is Does.LEAVE:
        return Would.LEAVE, "It would have left it to people."
    if found.does is Does.APPROVE:
        then = "" if rule.action == Action.APPROVE_NOW else ", to start once every machine was prepared"
        return Would.APPROVE, f"It would have approved it{then}."
    first = found.against[0]
    if all(guard.code in PASSING for guard in found.against):
        return Would.LATER, f"It would have approved it later. {first.sentence}"
    lasting = next(guard for guard in found.against if guard.code not in PASSING)
    return Would.GUARDED, f"A guard stood against it: {lasting.sentence}"


def _agreed(found: Sequence[PastEvent]) -> int:
    return sum(bool(one.approved_by) for one in found if one.would in (Would.APPROVE, Would.LATER))


def _sentence(counts: Mapping[Would, int], considered: int, found: Sequence[PastEvent]) -> str:
    """Such as "Would have approved 14 of 31; 9 of these were approved by somebody."."""
    if not considered:
        return "No event is stored for this time."
    parts = []
    yes = counts[Would.APPROVE] + counts[Would.LATER]
    if counts[Would.HOLD] or counts[Would.LEAVE]:
        held, left = counts[Would.HOLD], counts[Would.LEAVE]
        parts.append(
            f"Would have held {held} of {considered}" if held else f"Would have left {left} of {considered} to people"
        )
    else:
        parts.append(f"Would have approved {yes} of {considered}")
        if counts[Would.LATER]:
            parts.append(f"{counts[Would.LATER]} of them once other events were over")
        if yes:
            agreed = _agreed(found)
            parts.append(f"{agreed} of them {'was' if agreed == 1 else 'were'} approved by somebody")
    if counts[Would.GUARDED]:
        parts.append(f"{counts[Would.GUARDED]} more that it matches would have been left to people by a guard")
    if counts[Would.EARLIER]:
        parts.append(f"{counts[Would.EARLIER]} more belong to rules before it")
    return f"{'; '.join(parts)}."
