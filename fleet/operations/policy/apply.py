"""Rules at work: undecided events judged against the standing decisions, all events of a set or service together.

Asked for at once when a report has changed something, and by reconciling. Entries are written only when something is
decided; looking costs one query as long as no rule is in force.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from fleet.domain.actor import rule as by_rule
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.policy.rules import APPROVES, Action, Does, StandingRule, Verdict, accepted, verdict, wording
from fleet.domain.refusal import Refused
from fleet.domain.states import EventStatus
from fleet.models import Approval, Hold, Rule, ScheduledEvent
from fleet.models.facts.events import load_facts
from fleet.models.policy import rule_of, rules_in_force
from fleet.operations.approvals import approve, conditions
from fleet.operations.approvals.approve import Plan, alone_with
from fleet.operations.approvals.claims import hold_locked
from fleet.operations.events import compute

logger = logging.getLogger(__name__)
T = TypeVar("T")


def decide(*, now: datetime, event_pks: Collection[int] | None = None) -> int:
    """Judge the undecided open events, all or those of the sets and services of these (row ids); how many a rule
    decided.

    Looks without locks first. What would be decided is judged again, alone with its set or service, most urgent first:
    an approval that is granted makes the others of the set wait.
    """
    rows = rules_in_force(now=now)
    if not rows:
        return 0
    rules = [rule_of(row) for row in rows.values()]
    events = list(_undecided(now, event_pks))
    if not events:
        return 0
    facts = load_facts([event.pk for event in events], now=now)
    if any(each.stop is not None for each in facts.values()):
        return 0
    due: dict[str, list[ScheduledEvent]] = defaultdict(list)
    for event in events:
        found = _apart(event, partial(verdict, rules, facts[event.pk], now=now))
        if found is not None and found.acts:
            due[event.availability_set.service or f"set {event.availability_set_id}"].append(event)
    decided = [pk for together in due.values() for pk in _judge_together(together, rows, rules, now)]
    if decided:
        # What has nothing left to wait for does not wait for reconciling.
        conditions.advance(now=now, event_pks=decided)
    return len(decided)


def _undecided(now: datetime, event_pks: Collection[int] | None) -> QuerySet[ScheduledEvent]:
    """Open events that rules may decide, most urgent first.

    Whatever was decided or held once, by a person or a rule, is left to people from then on: a withdrawn approval or a
    lifted hold is a decision, too, and what Azure refused a rule once it would refuse again.
    """
    rows = ScheduledEvent.objects.filter(status=EventStatus.SCHEDULED.value, drill=False).filter(
        Q(not_before__isnull=True) | Q(not_before__gt=now),
        ~Exists(Approval.objects.filter(event=OuterRef("pk"))),
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
    events: Sequence[ScheduledEvent], rows: Mapping[int, Rule], rules: Sequence[StandingRule], now: datetime
) -> list[int]:
    """Judge events of one set or service again, one after the other; the row ids of those decided."""
    pks = [event.pk for event in events]
    with alone_with(*pks):
        # All at once and in the order of their ids, as everybody locks events.
        compute.lock(pks)
        return [event.pk for event in events if _apart(event, partial(_judge, event.pk, rows, rules, now))]


def _apart(event: ScheduledEvent, judge: Callable[[], T]) -> T | None:
    """What judging one event gives; None when it failed."""
    try:
        return judge()
    except Refused as refusal:
        logger.info("a rule did not decide event %s: %s", event.event_id, refusal)
    except Exception:
        # Whatever is wrong with one event or one rule, the others are judged.
        logger.exception("the rules could not judge event %s", event.event_id)
    return None


@transaction.atomic
def _judge(event_pk: int, rows: Mapping[int, Rule], rules: Sequence[StandingRule], now: datetime) -> bool:
    facts = approve.judged(event_pk, now=now)
    if not _undecided(now, None).filter(pk=event_pk).exists():
        return False
    found = verdict(rules, facts, now=now)
    if found.rule is None or not found.acts:
        return False
    _carry_out(event_pk, facts, found, found.rule, rows[found.rule.rule_id], now)
    return True


def _carry_out(event_pk: int, facts: EventFacts, found: Verdict, rule: StandingRule, row: Rule, now: datetime) -> None:
    actor = by_rule(row, wording(rule)).because(rule.reason)
    if found.does is Does.HOLD:
        hold_locked(event_pk, facts, actor, now=now)
        return
    plan = Plan(when=APPROVES[Action(rule.action)], overrides=accepted(rule))
    approve.decide(event_pk, actor, plan, now=now)
