"""Dry run of a rule on past events."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from django.db.models import Prefetch, Q

from fleet.domain.approvals.guards import EventFacts, MachineFacts, OtherEvent, WindowFacts
from fleet.domain.policy.rules import Action, RuleAction, StandingRule, Verdict, is_matching, verdict, wording
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row, grouped
from fleet.domain.states import RELAYED_APPROVALS, ApprovalState, EndedAs, EventStatus, Presence
from fleet.models import Approval, Hold, Machine, NoApprovalWindow, ScheduledEvent
from fleet.models.facts.events import are_near, is_open, name_of, place_of, set_facts
from fleet.models.policy import rule_of, rules_in_force
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible


class Past:
    """Facts from the time of past events, loaded together for all of them."""

    def __init__(self, events: Sequence[ScheduledEvent]) -> None:
        ids = [event.pk for event in events]
        sets = {event.availability_set_id for event in events}
        machines = visible(Machine, every=True).filter(availability_set__in=sets).defer("compute").order_by("pk")
        self.machines = grouped((machine.availability_set_id, machine) for machine in machines)
        self.others_in_flight = _others_in_flight(events)
        self.approvals = {event.pk: list(event.approvals.all()) for event in self.others_in_flight}
        holds = visible(Hold).filter(event_id__in=ids).select_related("by", "rule").order_by("pk")
        self.holds = {hold.event_id: hold for hold in holds}
        self.windows = list(visible(NoApprovalWindow).order_by("pk"))

    def facts_at(self, event: ScheduledEvent, at: datetime) -> EventFacts:
        """Return the facts that guards and rules need about an event, as known at the time `at`."""
        home = event.availability_set
        began_started = event.started_at is not None and event.started_at <= event.first_seen_at
        machines = [one for one in self.machines[home.pk] if _lasts(one.enrolled_at, one.revoked_at, at)]
        windows = [one for one in self.windows if _lasts(one.created_at, one.deleted_at, at)]
        return from_row(
            EventFacts,
            event,
            status=EventStatus.STARTED if began_started else EventStatus.SCHEDULED,
            **set_facts(home),
            machines=tuple(
                MachineFacts(one.pk, one.resource_name, Presence.LIVE, lists_it=True, fault_domain=one.fault_domain)
                for one in machines
            ),
            others=tuple(self._others_at(event, at)),
            started_at=None,
            drill=False,
            windows=tuple(from_row(WindowFacts, one) for one in windows if is_open(one, place_of(home), now=at)),
        )

    def _others_at(self, event: ScheduledEvent, at: datetime) -> Iterable[OtherEvent]:
        for other in self.others_in_flight:
            if other.pk != event.pk and are_near(event, other) and self._in_flight(other, at):
                home, begun = other.availability_set, other.started_at is not None and other.started_at <= at
                taken = tuple(other.resources) if begun else ()
                yield OtherEvent(other.event_id, home.pk, home.name, in_flight=True, taken=taken)

    def _in_flight(self, event: ScheduledEvent, at: datetime) -> bool:
        if event.ended_at is not None and event.ended_at <= at:
            return False
        if event.started_at is not None and event.started_at <= at:
            return True
        relayed = {ApprovalState.CONFIRMED, *RELAYED_APPROVALS}
        return any(
            one.granted_at is not None
            and _lasts(one.granted_at, None if ApprovalState(one.state) in relayed else one.closed_at, at)
            for one in self.approvals.get(event.pk, ())
        )


def _lasts(begun: datetime, ended: datetime | None, at: datetime) -> bool:
    return begun <= at and (ended is None or ended > at)


def _others_in_flight(events: Sequence[ScheduledEvent]) -> list[ScheduledEvent]:
    """Return these events, and other events of the same sets and services that were open at the same time, with their
    approvals.
    """
    if not events:
        return []
    times = [event.first_seen_at for event in events]
    services = {event.availability_set.service for event in events} - {""}
    sets = {event.availability_set_id for event in events}
    near = Q(availability_set__in=sets) | Q(availability_set__service__in=services)
    at_that_time = Q(ended_at__isnull=True) | Q(ended_at__gte=min(times))
    approvals = visible(Approval).select_related("decided_by", "rule").order_by("-pk")
    rows = visible(ScheduledEvent).filter(near, at_that_time, drill=False, first_seen_at__lte=max(times))
    return list(rows.select_related("availability_set").prefetch_related(Prefetch("approvals", approvals)))


# Trial of a rule on stored events: which ones it would have decided at their first sighting, compared with what
# happened.

NEWEST = 500
# Guards that pass with time: the rule would have decided once they no longer applied.
PASSING = frozenset({"set-in-flight", "service-in-flight"})
# Facts about the past that are not stored; reasons with these codes name them.
UNKNOWABLE = ("past-presence", "past-preparation", "past-fields", "past-arrangement", "past-consequences")


class Would(StrEnum):
    """What the rule would have done with an event. `later`: it would have waited for other events to end; `earlier`:
    another rule comes first.
    """

    APPROVE = "approve"
    LATER = "later"
    HOLD = "hold"
    LEAVE = "leave"
    GUARDED = "guarded"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class PastEvent:
    """One past event that the rule matches, with what the rule would have done and what really happened."""

    event_id: str
    event_type: str
    source: str
    duration_seconds: int | None
    resources: tuple[str, ...]
    set: SetRef
    first_seen_at: datetime
    not_before: datetime | None
    notice_seconds: int | None
    would: Annotated[Would, "What the rule would have done."]
    sentence: Annotated[Reason, "The same in words, with the guard or the rule that came first."]
    status: EventStatus
    approved_by: Annotated[Reason | str, "The actual approver; empty if it was not approved."]
    approved_at: datetime | None
    approval_state: ApprovalState | None
    held_by: Annotated[Reason | str, "The user or rule that left it to Azure; empty if none did."]
    started_at: datetime | None
    ended_at: datetime | None
    ended_as: EndedAs | None
    approved_elsewhere: bool


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of a dry run of a rule on past events."""

    wording: Annotated[Reason, "The rule in one sentence."]
    sentence: Annotated[Reason, "The result: `Would have approved 14 of 31; …`."]
    considered: Annotated[int, "How many stored events were looked at; at most 500."]
    matched: Annotated[int, "How many of them the rule matches."]
    approve: Annotated[int, "It would have approved so many at once."]
    later: Annotated[int, "So many once other events were over."]
    hold: int
    leave: int
    guarded: Annotated[int, "A guard that it does not accept stood against so many."]
    earlier: Annotated[int, "A rule before it matches so many."]
    agreed: Annotated[int, "Of those that it would have approved, so many were approved."]
    since: datetime | None
    until: datetime | None
    more: Annotated[bool, "There are older events that were not looked at."]
    events: Annotated[tuple[PastEvent, ...], "Those that it matches, the newest first."]
    unknown: Annotated[tuple[Reason, ...], "What cannot be known of the past."]
    server_time: datetime


def dry_run(
    *, rule: StandingRule, now: datetime, since: datetime | None = None, until: datetime | None = None
) -> DryRun:
    """Evaluate a rule, saved or not, on the newest 500 events that were first seen in this period. Seven queries.

    The rule is treated as enabled, at its position among the other rules in force; a rule without a position comes
    last.
    """
    rows = visible(ScheduledEvent).filter(drill=False).select_related("availability_set")
    bounds = {"first_seen_at__gte": since, "first_seen_at__lt": until}
    rows = rows.filter(**{lookup: at for lookup, at in bounds.items() if at is not None})
    events = list(rows.order_by("-first_seen_at", "-pk")[: NEWEST + 1])
    more, events = len(events) > NEWEST, events[:NEWEST]
    tried = replace(rule, enabled=True, deleted=False, expires_at=None)
    earlier = [
        replace(one, expires_at=None)
        for one in map(rule_of, rules_in_force(now=now).values())
        if one.rule_id != rule.rule_id and (not rule.position or one.position < rule.position)
    ]
    past = Past(events)
    found = [one for event in events if (one := _tried(event, tried, earlier, past)) is not None]
    counts = {would.value: sum(one.would is would for one in found) for would in Would}
    agreed = sum(bool(one.approved_by) for one in found if one.would in (Would.APPROVE, Would.LATER))
    counts |= {"considered": len(events), "agreed": agreed}
    return DryRun(
        wording=wording(rule),
        sentence=Reason("dry-run", **counts),
        matched=len(found),
        **counts,
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
    if not is_matching(rule, facts, now=at):
        return None
    would, sentence = _what(verdict([*earlier, rule], facts, now=at), rule)
    approvals = past.approvals.get(event.pk, [])
    # The newest approval that was not withdrawn.
    chosen = next((one for one in approvals if one.state != ApprovalState.WITHDRAWN.value), None)
    hold = past.holds.get(event.pk)
    return from_row(
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
    if found.does is RuleAction.HOLD:
        return Would.HOLD, Reason("would-hold")
    if found.does is RuleAction.LEAVE:
        return Would.LEAVE, Reason("would-leave")
    if found.does is RuleAction.APPROVE:
        return Would.APPROVE, Reason("would-approve", prepared=rule.action != Action.APPROVE_NOW)
    lasting = [guard for guard in found.against if guard.code not in PASSING]
    if not lasting:
        return Would.LATER, Reason("would-approve-later", guard=found.against[0].sentence)
    return Would.GUARDED, Reason("would-be-guarded", guard=lasting[0].sentence)
