"""Approvals that wait for a condition or a second person, and their withdrawal.

Runs in reconciliation every two seconds, and immediately after a report has changed the event.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

from django.db import transaction

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.approvals.conditions import Wait, WaitStep, When, differences, next_wait, uncovered
from fleet.domain.approvals.guards import Need
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, read_reason, require_version
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.texts import cleaned_reasons
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Order
from fleet.models.facts.decisions import load_decisions, whose_turn
from fleet.models.facts.events import load_facts
from fleet.models.people import service_of
from fleet.operations.approvals import approve
from fleet.operations.approvals.claims import hold_locked
from fleet.operations.control import one_person
from fleet.operations.orders.advance import close, give_back, move, tell_approval
from fleet.operations.quarantine import Quarantine
from fleet.operations.rights import acting, require

WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def advance(*, now: datetime, event_pks: Collection[int] | None = None) -> int:
    """Advance the waiting approvals of these events (row ids), or of all, that need not wait any longer. Return how
    many.

    The first check takes no locks; each approval then has its own transaction.
    """
    # As in most ticks.
    if event_pks is not None and not event_pks:
        return 0
    rows = Approval.objects.filter(state__in=WAITING).order_by("decided_at", "pk")
    if event_pks is not None:
        rows = rows.filter(event_id__any=list(event_pks))
    with Quarantine(QuarantineKind.APPROVAL, now=now) as apart:
        due = apart.look(list(rows.values_list("pk", flat=True)), partial(_due, now=now))
        return sum(apart.run(pk, partial(_move_on, pk, event_pk, now=now)) or False for pk, event_pk in due)


def due_for_dispatch(*, until: datetime) -> list[tuple[datetime, list[int]]]:
    """Return when undo periods end, up to `until`, each with the events (row ids) to dispatch then. Runs one query."""
    rows = Approval.objects.filter(state=ApprovalState.WAITING.value, when=When.UNDO.value, due_at__lte=until)
    found: dict[datetime, list[int]] = defaultdict(list)
    for at, event_pk in rows.order_by("due_at", "pk").values_list("due_at", "event_id"):
        if at is not None:
            found[at].append(event_pk)
    return list(found.items())


def _due(approval_ids: Sequence[int], *, now: datetime) -> list[tuple[int, int]]:
    """Return those of these approvals (row ids) that can be advanced, each with its event (row id)."""
    waiting = list(Approval.objects.filter(pk__in=approval_ids).order_by("decided_at", "pk"))
    facts = load_facts([approval.event_id for approval in waiting], now=now)
    decisions = load_decisions(waiting, facts, now=now)
    turns = whose_turn({approval.wave_id for approval in waiting if approval.wave_id}, now=now)

    def step(approval: Approval) -> WaitStep:
        of_event, decision = facts[approval.event_id], decisions[approval.pk]
        return next_wait(approval, of_event, decision, may_go=approval.pk in turns, now=now)

    return [(approval.pk, approval.event_id) for approval in waiting if step(approval).do is not Wait.STAY]


def _move_on(approval_id: int, event_pk: int, *, now: datetime) -> bool:
    with approve.decision_lock(event_pk):
        facts = approve.load_facts_locked(event_pk, now=now)
        approval = Approval.objects.select_related("event").get(pk=approval_id)
        if approval.state not in WAITING:
            return False
        turns = whose_turn({approval.wave_id} if approval.wave_id else set(), now=now)
        decision = load_decisions([approval], {event_pk: facts}, now=now)[approval.pk]
        step = next_wait(approval, facts, decision, may_go=approval.pk in turns, now=now)
        was = approval.state
        if step.do is Wait.VOID:
            return close(approval, ApprovalState.VOID, DRYDOCK, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.LAPSE:
            return close(approval, ApprovalState.LAPSED, DRYDOCK, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.RETURN:
            return give_back(approval, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.STAY or not move(approval, ApprovalState.GRANTED, granted_at=now):
            return False
        tell_approval(EntryKind.APPROVAL_DUE, DRYDOCK, approval, facts, was=was, now=now, reason=step.reason)
        approve.dispatch_first_order(approval, facts, now=now)
    return True


# The second person agrees to a proposal.


def consent(
    *,
    approval_id: int,
    actor: Actor,
    now: datetime,
    overrides: Mapping[str, str] | None = None,
    shown: Mapping[str, str] | None = None,
    undo: bool = False,
    expected_version: int | None = None,
    expected: Collection[str] | None = None,
) -> Approval:
    """Record that a second person agrees to a proposal. It is then sent, or waits for its condition or (`undo`) undo
    period.

    The guards are evaluated again; a new one needs a reason in `overrides` (`shown`: see `override`).
    `expected_version` is the displayed version of the event, `expected` are accepted ones. If the event has changed,
    the proposal returns to the proposer. Raises Refused: `not-permitted`, `validation`, `unknown-approval`, `too-late`,
    `precondition-failed`, `version-changed` (details `version`), `guarded` (details `guards`).
    """
    actor = acting(actor, Right.OVERRIDE, doing="consent")
    reasons = cleaned_reasons(overrides)
    event_pk = approve.event_of(approval_id)
    with approve.decision_lock(event_pk):
        facts = approve.load_facts_locked(event_pk, now=now)
        approval = Approval.objects.select_related("event", "decided_by").get(pk=approval_id)
        require(actor, Right.OVERRIDE, facts.place, doing="consent")
        if approval.state != ApprovalState.PROPOSED.value:
            raise Refused("too-late", Reason("consent-not-proposed", state=approval.state))
        if approval.decided_by_id == actor.person.pk:
            raise Refused("not-permitted", Reason("consent-of-proposer"))
        _require_other_person(approval, actor)
        require_version(facts.version, expected)
        decision = load_decisions([approval], {event_pk: facts}, now=now)[approval.pk]
        if changes := differences(decision, facts):
            reason = Reason("consent-of-changed", changes=changes)
            raise Refused("version-changed", reason, version=facts.version)
        if decision.lost is not None:
            raise Refused("too-late", decision.lost)
        found = approve.applicable_guards(facts, When(approval.when), now=now, expected_version=expected_version)
        found = [guard for guard in uncovered(decision, found) if guard.code != "already-decided"]
        agreed = [approve.kept_overrides(guard, actor.why) for guard in found if guard.needs is Need.SECOND]
        # The two people overrode the guards listed here; neither of them has seen later ones.
        overridden = [*approval.overrides, *approve.override(facts, found, actor, reasons, shown), *agreed]
        plan = approve.Plan(when=When(approval.when), due_at=approval.due_at)
        if undo and plan.when is When.NOW:
            plan = approve.with_undo(plan, facts, now=now)
        at_once = plan.when is When.NOW
        target = ApprovalState.GRANTED if at_once else ApprovalState.WAITING
        columns = {"consented_by": actor.person, "consented_at": now, "consent_comment": actor.why}
        columns["consent_token"] = actor.token
        columns |= {"when": plan.when.value, "due_at": plan.due_at}
        if not move(approval, target, **columns, overrides=overridden, **({"granted_at": now} if at_once else {})):
            raise Refused("too-late", Reason("consent-too-late"))
        was = ApprovalState.PROPOSED.value
        tell_approval(EntryKind.APPROVAL_CONSENTED, actor, approval, facts, was=was, now=now, overrides=overridden)
        approve.dispatch_first_order(approval, facts, now=now)
    approval.refresh_from_db()
    return approval


def _require_other_person(approval: Approval, actor: Actor) -> None:
    """Raise Refused if the actor is a service account, or the person behind the account that proposed.

    A personal token acts for its owner. Only the owner or a user of the server's command line can have created it.
    """
    if service_of(actor.person) is not None:
        raise Refused("not-permitted", Reason("consent-of-service"))
    also = () if approval.decided_for_id is None else (approval.decided_for_id,)
    if reason := one_person(approval.decided_by, actor.person, at=approval.decided_at, also=also):
        raise Refused("not-permitted", reason)


# Taking an approval back before it was sent.


def withdraw(*, approval_id: int, actor: Actor, now: datetime) -> Approval:
    """Withdraw an approval before an order was offered. A rule's approval becomes a hold, so that no rule approves it
    again.

    Raises Refused: `not-permitted`, `validation`, `unknown-approval`, `too-late`.
    """
    actor = acting(actor, Right.APPROVE, doing="withdraw")
    event_pk = approve.event_of(approval_id)
    with transaction.atomic():
        facts = approve.load_facts_locked(event_pk, now=now)
        approval = Approval.objects.select_related("event").get(pk=approval_id)
        require(actor, Right.APPROVE, facts.place, doing="withdraw")
        if Order.objects.filter(approval=approval).exists():
            raise Refused("too-late", Reason("withdraw-order-offered", state=approval.state))
        undone = approval.when == When.UNDO.value and approval.state == ApprovalState.WAITING.value
        reason = Reason("undone" if undone else "withdrawn", by=actor.name, comment=actor.why)
        if not close(approval, ApprovalState.WITHDRAWN, actor, facts=facts, now=now, reason=reason):
            raise Refused("too-late", Reason("withdraw-ended", state=approval.state, why=read_reason(approval.reason)))
        if approval.decided_by_id is None and facts.hold is None and facts.status is EventStatus.SCHEDULED:
            hold_locked(event_pk, facts, actor, now=now, withdrew_rule=True)
    approval.refresh_from_db()
    return approval
