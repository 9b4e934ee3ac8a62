"""Facts for checking approvals again, for waves and due times, and experience from earlier events."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User

from fleet.domain import events
from fleet.domain.approvals.conditions import TIMED, Decision, When
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.event_types import DELETING_TYPES
from fleet.domain.events import compute_state
from fleet.domain.orders.next_step import OrderFacts, Relay
from fleet.domain.people import Right
from fleet.domain.policy import windows as policy
from fleet.domain.policy.rules import accepted_reasons, still_deciding_rule
from fleet.domain.reasons import Reason, read_reason
from fleet.domain.recommendation import NONE_YET, Experience
from fleet.domain.scheduling import QuarantineKind, at_the_latest, first_after
from fleet.domain.shapes import from_row, grouped
from fleet.domain.states import LIVE_APPROVALS, RELAYED_APPROVALS, ApprovalState, EventStatus, Presence
from fleet.domain.waves import Member, ReturnFacts, WaveState, due_at, judge
from fleet.models.approvals import Approval, Order, Wave
from fleet.models.driver import query
from fleet.models.events import ScheduledEvent
from fleet.models.facts.events import contact_times, load_facts, load_witnesses, machine_presence, order_timeouts
from fleet.models.machines import Machine
from fleet.models.people import ApiToken, prefetch_rights, rights_of
from fleet.models.policy import NoApprovalWindow, Rule, rule_of, rules_in_force, window_of
from fleet.models.reconcile import QuarantinedRow


def decision_of(approval: Approval, *, lost: Reason | None = None, accepts: Collection[str] | None = None) -> Decision:
    """Return the decision of an approval from its row, without checking whether the user or rule may still decide.

    `lost`: why they no longer may; `accepts`: guard codes that the rule accepts now.
    """
    of_rule = approval.rule_id is not None and approval.decided_by_id is None
    if of_rule and accepts is None:
        accepts = [one["code"] for one in approval.overrides]
    return Decision(
        version=approval.event_version,
        shown=approval.decided_on,
        overrides=tuple(approval.overrides),
        accepted=frozenset(accepts or ()) if of_rule else None,
        consented=approval.consented_by_id is not None,
        granted_at=approval.granted_at,
        lost=lost,
    )


def load_decisions(
    approvals: Collection[Approval], facts: Mapping[int, EventFacts], *, now: datetime
) -> dict[int, Decision]:
    """Return the decisions of these approvals by row id, with what users and rules may no longer decide. Runs at most
    five queries.

    `facts` are the facts of their events, by the event's row id.
    """
    ids = {pk for one in approvals for pk in (one.decided_by_id, one.consented_by_id) if pk is not None}
    people = User.objects.in_bulk(ids) if ids else {}
    prefetch_rights(people.values())
    token_ids = {pk for one in approvals for pk in (one.token_id, one.consent_token_id) if pk is not None}
    tokens = ApiToken.objects.in_bulk(token_ids) if token_ids else {}
    rule_ids = {one.rule_id for one in approvals if one.rule_id is not None and one.decided_by_id is None}
    names = dict(Rule.objects.filter(pk__in=rule_ids).values_list("pk", "name")) if rule_ids else {}
    rules = [rule_of(row) for row in rules_in_force(now=now).values()] if rule_ids else []
    found = {}
    for approval in approvals:
        of_event = facts[approval.event_id]
        if approval.rule_id is not None and approval.decided_by_id is None:
            rule = still_deciding_rule(rules, approval, of_event)
            lost = None if rule else Reason("rule-decides-otherwise", rule=names.get(approval.rule_id, ""))
            found[approval.pk] = decision_of(approval, lost=lost, accepts=accepted_reasons(rule) if rule else ())
        else:
            found[approval.pk] = decision_of(approval, lost=_lost(approval, of_event, people, tokens, now))
    return found


def _lost(
    approval: Approval,
    facts: EventFacts,
    people: Mapping[int, User],
    tokens: Mapping[int, ApiToken],
    now: datetime,
) -> Reason | None:
    """Return which of the two persons could not decide this any more, and why; None if both could."""
    # Only an approver overrides a guard that blocks; the second person is one.
    overrode = any(one["code"] == "set-in-flight" for one in approval.overrides)
    own = Right.OVERRIDE if overrode and approval.consented_by_id is None else Right.APPROVE
    deciders = (
        (approval.decided_by_id, own, "approve", approval.token_id),
        (approval.consented_by_id, Right.OVERRIDE, "consent", approval.consent_token_id),
    )
    for person_id, right, doing, token_id in deciders:
        person = people.get(person_id or 0)
        if person is None:
            continue
        name = person.get_username()
        if not person.is_active:
            return Reason("decider-lost-account", by=name)
        missing = rights_of(person).missing(right, facts.place, doing=doing)
        if missing is not None:
            return Reason("decider-lost-right", by=name, missing=missing)
        token = tokens.get(token_id or 0)
        if token is not None and (token.revoked_at is not None or (token.expires_at and token.expires_at <= now)):
            return Reason("decider-lost-token", by=name, token=token.name)
    return None


# When time alone may change an event or anything that belongs to it.


def load_due(event_ids: Collection[int], *, now: datetime) -> dict[int, datetime]:
    """Return when to check each of these events (row ids) again if nothing is reported about it until then.

    Runs three queries, and those of `load_facts` if an approval or rule needs them.
    """
    rows = list(ScheduledEvent.objects.filter(pk__any=event_ids))
    witnesses = load_witnesses(rows, now=now)
    decided = {row.event_id: row for row in Approval.objects.filter(event_id__any=event_ids, state__in=LIVE_APPROVALS)}
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
            due.append(Relay(ApprovalState(approval.state), facts[row.pk], mine, now, order_timeouts()).due_at())
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
    """Return, by event (row id), when its quarantined parts are retried. Runs one query."""
    homes = {approval.pk: approval.event_id for approval in approvals}
    known = set(event_ids)
    found: dict[int, list[datetime]] = defaultdict(list)
    for what, row_id, at in QuarantinedRow.objects.values_list("what", "row_id", "next_try_at"):
        event_id = homes.get(row_id) if what == QuarantineKind.APPROVAL.value else row_id
        if event_id in known and what in (QuarantineKind.APPROVAL, QuarantineKind.EVENT, QuarantineKind.RULES):
            found[event_id].append(at)
    return found


def orders_of(approval_ids: Collection[int]) -> dict[int, list[OrderFacts]]:
    """Return the orders of each approval (row id), oldest first. Runs one query."""
    orders = Order.objects.filter(approval_id__any=approval_ids).order_by("offered_at", "id")
    return grouped((order.approval_id, from_row(OrderFacts, order, order_id=order.pk)) for order in orders)


# Experience from earlier events: the newest of each set, by index and bounded.

# The most recent events of a set that count.
NEWEST = 50
# One walk along the index `event_by_set` for each set. Cancelled ones and those of unknown ending do not show how long
# a machine was unavailable.
EARLIER = """
SELECT wanted.set_id, past.event_type,
    count(*) FILTER (WHERE past.ended_as = 'completed' AND past.started_at IS NOT NULL),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY EXTRACT(EPOCH FROM past.ended_at - past.started_at))
        FILTER (WHERE past.ended_as = 'completed' AND past.started_at IS NOT NULL),
    count(*) FILTER (WHERE past.ended_as = 'cancelled'),
    max((SELECT EXTRACT(EPOCH FROM max(approval.accepted_at - approval.granted_at)) FROM fleet_approval approval
        WHERE approval.event_id = past.id AND approval.accepted_at IS NOT NULL))
FROM unnest(%s::bigint[]) AS wanted (set_id)
CROSS JOIN LATERAL (
    SELECT id, event_type, started_at, ended_at, ended_as, drill FROM fleet_scheduledevent
    WHERE availability_set_id = wanted.set_id ORDER BY first_seen_at DESC, id DESC LIMIT %s
) AS past
WHERE NOT past.drill
GROUP BY wanted.set_id, past.event_type
"""


class Experiences:
    """Experience from earlier events, by set (row id) and event type."""

    def __init__(self, found: Mapping[int, Mapping[str, Experience]]) -> None:
        self._found = found

    def of(self, set_id: int, event_type: str) -> Experience:
        here = self._found.get(set_id, {})
        slowest = max((one.relay_seconds for one in here.values() if one.relay_seconds is not None), default=None)
        known = here.get(event_type, NONE_YET)
        # The way to Azure is the same for every type.
        return Experience(known.count, known.median_seconds, known.cancelled, slowest)


def experiences(set_ids: Collection[int]) -> Experiences:
    """Return the experience from the newest events of these sets (row ids). Runs one query."""
    found: dict[int, dict[str, Experience]] = defaultdict(dict)
    if set_ids:
        for set_id, event_type, count, median, cancelled, relay in query(EARLIER, sorted(set(set_ids)), NEWEST):
            found[set_id][event_type] = Experience(
                count=count,
                median_seconds=None if median is None else float(median),
                cancelled=cancelled,
                relay_seconds=None if relay is None else float(relay),
            )
    return Experiences(found)


# Loading what waves judge, in a fixed number of queries.


def return_timeout() -> timedelta:
    """Return how long a machine may take to return after an event before the wave stops, from the settings."""
    return timedelta(seconds=settings.WAVE_RETURN_SECONDS)


def load_members(wave_ids: Collection[int], *, now: datetime) -> dict[int, list[Member]]:
    """Return the events of each wave (row id) in their order. Runs two queries."""
    if not wave_ids:
        return {}
    approvals = list(
        Approval.objects.filter(wave_id__in=wave_ids)
        .select_related("event__availability_set")
        .order_by("wave_id", "turn", "pk")
    )
    machines: dict[int, list[Machine]] = defaultdict(list)
    rows = Machine.objects.filter(
        availability_set_id__in={approval.event.availability_set_id for approval in approvals}, revoked_at__isnull=True
    )
    for machine in rows.select_related("presence", "latest_document").defer("compute").order_by("resource_name", "pk"):
        machines[machine.availability_set_id].append(machine)
    found: dict[int, list[Member]] = {wave_id: [] for wave_id in wave_ids}
    for approval in approvals:
        found[approval.wave_id or 0].append(
            _member(approval, approval.event, machines[approval.event.availability_set_id], now=now)
        )
    return found


def _member(approval: Approval, event: ScheduledEvent, machines: Collection[Machine], *, now: datetime) -> Member:
    named = {name.lower() for name in event.resources}
    hit: dict[str, Machine] = {}
    heard_at: datetime | None = None
    for machine in machines:
        heard = contact_times(machine)[0]
        heard_at = max(filter(None, (heard, heard_at)), default=None)
        name = machine.resource_name.lower()
        known = hit.get(name)
        known_heard = contact_times(known)[0] if known else None
        # Of several machines of one name it is the one that was heard last.
        if name in named and (known is None or (heard is not None and (known_heard is None or heard > known_heard))):
            hit[name] = machine
    deleted = event.event_type in DELETING_TYPES
    return from_row(
        Member,
        event,
        approval_id=approval.pk,
        turn=approval.turn or 0,
        set_id=event.availability_set_id,
        set_kind=event.availability_set.kind,
        set_name=event.availability_set.name,
        set_suffix=event.availability_set.name_suffix,
        set_subscription=event.availability_set.subscription,
        set_resource_group=event.availability_set.resource_group,
        approval_state=ApprovalState(approval.state),
        event_status=EventStatus(event.status),
        started=event.started_at is not None,
        machines=() if deleted else tuple(_returner(machine, event, now=now) for machine in hit.values()),
        last_heard_at=heard_at,
        reason=read_reason(approval.reason),
        event_pk=event.pk,
        decision=decision_of(approval),
    )


def _returner(machine: Machine, event: ScheduledEvent, *, now: datetime) -> ReturnFacts:
    live = machine_presence(machine, now=now) is Presence.LIVE
    heard = contact_times(machine)[0]
    # For a minute a machine counts as live though it is just starting again: it has to speak after the end.
    since = heard is not None and (event.ended_at is None or heard >= event.ended_at)
    return ReturnFacts(name=machine.resource_name, back=live and since)


def load_due_waves(wave_ids: Collection[int], *, now: datetime) -> dict[int, datetime]:
    """Return when to judge each wave (row id) again if nothing is reported about its events until then. Runs two
    queries.
    """
    members = load_members(wave_ids, now=now)
    return {
        wave_id: min(due_at(found, now=now, return_timeout=return_timeout()), at_the_latest(wave_id, now=now))
        for wave_id, found in members.items()
    }


def whose_turn(wave_ids: Collection[int], *, now: datetime) -> set[int]:
    """Return the row ids of the approvals that these waves may send now. Runs three queries, or none without waves."""
    if not wave_ids:
        return set()
    running = Wave.objects.filter(pk__in=wave_ids, state=WaveState.RUNNING.value).values_list("pk", flat=True)
    members = load_members(list(running), now=now)
    found = {judge(of_wave, now=now, return_timeout=return_timeout()).approval_id for of_wave in members.values()}
    return {approval_id for approval_id in found if approval_id is not None}


def events_in_turn(wave_ids: Collection[int], *, now: datetime) -> list[int]:
    """Return the row ids of the events that these waves (row ids) may approve now. Runs at most four queries."""
    approvals = whose_turn(set(wave_ids), now=now)
    return list(Approval.objects.filter(pk__in=approvals).values_list("event_id", flat=True)) if approvals else []
