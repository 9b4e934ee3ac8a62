"""When time alone may change an event or anything that belongs to it."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime

from fleet.domain.approvals.conditions import TIMED, When
from fleet.domain.aside import What
from fleet.domain.due import at_the_latest, first_after
from fleet.domain.events import due as events
from fleet.domain.events.sightings import compute_state
from fleet.domain.orders import due as orders
from fleet.domain.orders.facts import OrderFacts
from fleet.domain.policy import due as policy
from fleet.domain.shapes import like
from fleet.domain.states import LIVE_APPROVALS, RELAYED_APPROVALS, EventStatus
from fleet.models.approvals import Approval
from fleet.models.events import ScheduledEvent
from fleet.models.facts.events import load_facts, load_witnesses, order_timeouts
from fleet.models.orders import Order
from fleet.models.policy import NoApprovalWindow, rule_of, rules_in_force, window_of
from fleet.models.reconcile import SetAside


def load_due(event_ids: Collection[int], *, now: datetime) -> dict[int, datetime]:
    """When each of these events (row ids) is to be looked at again, if there is no news of it until then.

    A fixed number of queries: three, and those of the facts where something waits.
    """
    rows = list(ScheduledEvent.objects.filter(pk__any=event_ids))
    witnesses = load_witnesses(rows, now=now)
    states = [state.value for state in LIVE_APPROVALS]
    decided = {row.event_id: row for row in Approval.objects.filter(event_id__any=event_ids, state__in=states)}
    rules = [rule_of(row) for row in rules_in_force(now=now).values()]
    open_to_rules = {
        row.pk
        for row in rows
        if rules and row.pk not in decided and not row.drill and row.status == EventStatus.SCHEDULED.value
    }
    facts = load_facts([*decided, *open_to_rules], now=now) if decided or open_to_rules else {}
    found_windows = NoApprovalWindow.objects.filter(deleted_at__isnull=True) if facts else []
    windows = [window_of(row) for row in found_windows]
    relayed = [row.pk for row in decided.values() if row.state in RELAYED_APPROVALS]
    sent = orders_of(relayed) if relayed else {}
    tried = _tried_again(decided.values(), event_ids)
    found: dict[int, datetime] = {}
    for row in rows:
        was_ended = row.status == EventStatus.ENDED.value
        state = compute_state(witnesses[row.pk], now=now, was_ended=was_ended)
        due = [events.due_at(state, witnesses[row.pk], now=now)]
        approval = decided.get(row.pk)
        if approval is not None and approval.state in RELAYED_APPROVALS:
            mine = sent.get(approval.pk, [])
            due.append(orders.due_at(facts=facts[row.pk], orders=mine, now=now, timeouts=order_timeouts()))
        elif approval is not None:
            on_time = approval.due_at if When(approval.when) in TIMED else None
            due.append(first_after(now, [row.not_before, on_time]))
            due.append(policy.windows_due_at(facts[row.pk], windows, now=now))
        elif row.pk in open_to_rules:
            due.append(policy.due_at(facts[row.pk], rules, windows, now=now))
        if approval is not None or not was_ended:
            due.append(at_the_latest(row.pk, now=now))
        due += tried.get(row.pk, [])
        found[row.pk] = min(due)
    return found


def _tried_again(approvals: Iterable[Approval], event_ids: Collection[int]) -> dict[int, list[datetime]]:
    """When what was set aside of these events (row ids) is tried again. One query."""
    homes = {approval.pk: approval.event_id for approval in approvals}
    known = set(event_ids)
    found: dict[int, list[datetime]] = defaultdict(list)
    for what, row_id, at in SetAside.objects.values_list("what", "row_id", "next_try_at"):
        event_id = homes.get(row_id) if what == What.APPROVAL.value else row_id
        if event_id in known and what in (What.APPROVAL.value, What.EVENT.value, What.RULES.value):
            found[event_id].append(at)
    return found


def orders_of(approval_ids: Collection[int]) -> dict[int, list[OrderFacts]]:
    """The orders of each approval (row ids), oldest first. One query."""
    found: dict[int, list[OrderFacts]] = defaultdict(list)
    for order in Order.objects.filter(approval_id__any=approval_ids).order_by("offered_at", "id"):
        found[order.approval_id].append(like(OrderFacts, order, order_id=order.pk))
    return found
