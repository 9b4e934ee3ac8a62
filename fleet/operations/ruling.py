"""Rules at work: undecided events judged against the standing decisions, all events of a set or service together.

Asked for at once when a report has changed something, and by each sweep. Entries are written only when something is
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

from fleet.domain.conditions import When
from fleet.domain.guards import EventFacts
from fleet.domain.rules import APPROVES, Action, Does, Standing, Verdict, accepted, verdict, wording
from fleet.domain.states import EventStatus
from fleet.models import Approval, Hold, Rule, ScheduledEvent
from fleet.models.facts import load_facts
from fleet.models.standing import rules_in_force, standing_of
from fleet.operations import deciding, folding, waiting
from fleet.operations.claiming import hold_by_rule
from fleet.operations.deciding import Decider, Plan, alone_with
from fleet.operations.errors import Refused

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
    rules = [standing_of(row) for row in rows.values()]
    events = list(_undecided(now, event_pks))
    if not events:
        return 0
    facts = load_facts([event.pk for event in events], now=now)
    due: dict[str, list[ScheduledEvent]] = defaultdict(list)
    for event in events:
        found = _apart(event, partial(verdict, rules, facts[event.pk], now=now))
        if found is not None and found.acts:
            due[event.availability_set.service or f"set {event.availability_set_id}"].append(event)
    decided = [pk for together in due.values() for pk in _judge_together(together, rows, rules, now)]
    if decided:
        # What has nothing left to wait for does not wait for the next sweep.
        waiting.advance(now=now, event_pks=decided)
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
    events: Sequence[ScheduledEvent], rows: Mapping[int, Rule], rules: Sequence[Standing], now: datetime
) -> list[int]:
    """Judge events of one set or service again, one after the other; the row ids of those decided."""
    pks = [event.pk for event in events]
    with alone_with(*pks):
        # All at once and in the order of their ids, as everybody locks events.
        folding.lock(pks)
        return [event.pk for event in events if _apart(event, partial(_judge, event.pk, rows, rules, now))]


def _apart(event: ScheduledEvent, judge: Callable[[], T]) -> T | None:
    """What judging one event gives; None when it failed."""
    try:
        return judge()
    except Refused as refusal:
        logger.info("a rule did not decide event %s: %s", event.event_id, refusal.sentence)
    except Exception:
        # Whatever is wrong with one event or one rule, the others are judged.
        logger.exception("the rules could not judge event %s", event.event_id)
    return None


@transaction.atomic
def _judge(event_pk: int, rows: Mapping[int, Rule], rules: Sequence[Standing], now: datetime) -> bool:
    facts = deciding.judged(event_pk, now=now)
    if not _undecided(now, None).filter(pk=event_pk).exists():
        return False
    found = verdict(rules, facts, now=now)
    if found.rule is None or not found.acts:
        return False
    _carry_out(event_pk, facts, found, found.rule, rows[found.rule.rule_id], now)
    return True


def _carry_out(event_pk: int, facts: EventFacts, found: Verdict, rule: Standing, row: Rule, now: datetime) -> None:
    decider = Decider(via="rule", rule=row, wording=wording(rule))
    if found.does is Does.HOLD:
        hold_by_rule(event_pk, decider, facts, reason=rule.reason, now=now)
        return
    when: When = APPROVES[Action(rule.action)]
    deciding.decide(event_pk, decider, Plan(comment=rule.reason, when=when, overrides=accepted(rule)), now=now)
