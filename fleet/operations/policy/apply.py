"""Applies rules to undecided events. Events of one set or service are judged together.

Runs immediately when a report has changed something, and in reconciliation. Only decisions write timeline entries.
While no rule is in force, a run costs one query.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from fleet.domain.actor import rule as by_rule
from fleet.domain.approvals.conditions import When
from fleet.domain.policy import rules as policy
from fleet.domain.policy.rules import StandingRule
from fleet.domain.reasons import Refused
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.states import ApprovalState, EventStatus
from fleet.models import Approval, Hold, Rule, ScheduledEvent
from fleet.models.facts.events import load_facts
from fleet.models.policy import rule_of, rules_in_force
from fleet.operations.approvals import approve, conditions
from fleet.operations.approvals.approve import Plan, decision_lock
from fleet.operations.approvals.claims import hold_locked
from fleet.operations.events import compute
from fleet.operations.quarantine import Quarantine

logger = logging.getLogger(__name__)

# No decision is in force: a click was undone, or a rule's decision was no longer valid and the rules decide again.
UNDONE = Q(state=ApprovalState.WITHDRAWN.value, when=When.UNDO.value, returned=False)
UNDONE |= Q(returned=True, decided_by__isnull=True)


def decide_due(*, now: datetime, event_pks: Collection[int]) -> int:
    """Apply the rules to the undecided events among these (row ids). Return how many a rule decided.

    Other events of their sets are judged only if a rule would decide one of these.
    """
    rules = [rule_of(row) for row in rules_in_force(now=now).values()]
    if not rules:
        return 0
    undecided = list(_undecided(now).filter(pk__any=event_pks).values_list("pk", flat=True))
    with Quarantine(QuarantineKind.RULES, now=now) as apart:
        acts = apart.look(undecided, partial(_acts, rules=rules, now=now))
    # The most urgent of its set or service goes first, due or not.
    return decide(now=now, event_pks=acts) if acts else 0


def decide(*, now: datetime, event_pks: Collection[int] | None = None) -> int:
    """Apply the rules to all undecided events, or to those in the sets and services of these events (row ids).

    Return how many a rule decided. The first check takes no locks. Possible decisions are checked again with the set or
    service locked, most urgent first, because one approval makes the other events of the set wait.
    """
    rows = rules_in_force(now=now)
    if not rows:
        return 0
    rules = [rule_of(row) for row in rows.values()]
    events = list(_undecided(now, event_pks))
    if not events:
        return 0
    due: dict[str, list[ScheduledEvent]] = defaultdict(list)
    decided: list[int] = []
    with Quarantine(QuarantineKind.RULES, now=now) as apart:
        acts = set(apart.look([event.pk for event in events], partial(_acts, rules=rules, now=now)))
        for event in events:
            if event.pk in acts:
                due[approve.home_name(event.availability_set.service, event.availability_set_id)].append(event)
        for together in due.values():
            decided += _judge_together(together, rows, rules, now, apart)
    if decided:
        # Approvals without anything to wait for do not wait for reconciliation.
        conditions.advance(now=now, event_pks=decided)
    return len(decided)


def _undecided(now: datetime, event_pks: Collection[int] | None = None) -> QuerySet[ScheduledEvent]:
    """Return the open events that rules may decide, most urgent first.

    An event that a user or rule decided or held before is left to users. That includes withdrawn approvals, lifted
    holds, and rules' approvals that Azure refused. An approval that was undone within its undo period does not count.
    """
    rows = ScheduledEvent.objects.filter(status=EventStatus.SCHEDULED.value, drill=False).filter(
        Q(not_before__isnull=True) | Q(not_before__gt=now),
        ~Exists(Approval.objects.filter(event=OuterRef("pk")).exclude(UNDONE)),
        ~Exists(Hold.objects.filter(event=OuterRef("pk"))),
    )
    if event_pks is not None:
        homes = ScheduledEvent.objects.filter(pk__any=list(event_pks))
        services = homes.exclude(availability_set__service="").values("availability_set__service")
        rows = rows.filter(
            Q(availability_set__in=homes.values("availability_set")) | Q(availability_set__service__in=services)
        )
    return rows.select_related("availability_set").order_by("not_before", "pk")


def _judge_together(
    events: Sequence[ScheduledEvent],
    rows: Mapping[int, Rule],
    rules: Sequence[StandingRule],
    now: datetime,
    apart: Quarantine,
) -> list[int]:
    """Apply the rules to these events of one set or service, one after the other. Return the row ids of
    decided events.
    """
    pks = [event.pk for event in events]
    with decision_lock(*pks):
        # All at once and in the order of their ids, as every caller locks events; locked events wait for the next run.
        free = {event.pk for event in compute.lock(pks, pass_by=True)}
        return [pk for pk in pks if pk in free and apart.run(pk, partial(_unless_refused, pk, rows, rules, now))]


def _acts(event_pks: Sequence[int], *, rules: Sequence[StandingRule], now: datetime) -> list[int]:
    """Return those of these events (row ids) that a rule would decide."""
    facts = load_facts(event_pks, now=now)
    if any(each.stop is not None for each in facts.values()):
        return []
    return [pk for pk in event_pks if policy.verdict(rules, facts[pk], now=now).acts]


def _unless_refused(event_pk: int, rows: Mapping[int, Rule], rules: Sequence[StandingRule], now: datetime) -> bool:
    try:
        return _judge(event_pk, rows, rules, now)
    except Refused as refusal:
        logger.info("a rule did not decide event %s: %s", event_pk, refusal)
        return False


@transaction.atomic
def _judge(event_pk: int, rows: Mapping[int, Rule], rules: Sequence[StandingRule], now: datetime) -> bool:
    facts = approve.load_facts_locked(event_pk, now=now)
    if not _undecided(now, None).filter(pk=event_pk).exists():
        return False
    found = policy.verdict(rules, facts, now=now)
    rule = found.rule
    if rule is None or not found.acts:
        return False
    actor = by_rule(rows[rule.rule_id], policy.wording(rule)).because(rule.reason)
    if found.does is policy.RuleAction.HOLD:
        hold_locked(event_pk, facts, actor, now=now)
    else:
        plan = Plan(when=policy.approves_when(rule, facts), overrides=policy.accepted_reasons(rule))
        approve.decide(event_pk, actor, plan, now=now)
    return True
