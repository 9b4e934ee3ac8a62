"""Approval of events by users, rules and waves. One transaction checks the guards and writes approval and order."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, IntegrityError, OperationalError, transaction
from django.db.models import Q

from fleet.domain.actor import Actor, ActorKind
from fleet.domain.approvals import guards as judging
from fleet.domain.approvals.conditions import LATER, TIMED, When, shown, undo_until
from fleet.domain.approvals.guards import EventFacts, Guard, Need
from fleet.domain.db_timeouts import is_timeout
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, as_json, require_found, require_version, stored_text
from fleet.domain.states import LIVE_APPROVALS, ApprovalState
from fleet.domain.texts import cleaned_reasons
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import Approval, Order, ScheduledEvent, Wave
from fleet.models.facts.events import facts_standing, load_facts, load_standing
from fleet.models.people import service_of
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.locks import Lock, short_lock_timeout, take, take_free
from fleet.operations.orders.advance import close, tell_approval, write_order
from fleet.operations.quarantine import is_quarantined
from fleet.operations.rights import acting, require
from fleet.operations.timeline.entries import gathered, trace_behind


def override(
    facts: EventFacts,
    found: list[Guard],
    actor: Actor,
    reasons: Mapping[str, str],
    shown: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the overrides of the guards `found` as an approval stores them. `reasons` are by guard code.

    `shown` are the hashes of the guards that the user saw (`Guard.shown`), by code, separated by spaces; a reason
    covers only these. Guards that need a second person are left to the caller. A guard that needs verification is
    satisfied by `actor.proved`, or if the set exempts service accounts. Raises Refused for each remaining guard.
    """
    # A rule accepts some guards in advance; past one that blocks only a person goes.
    may_be = judging.ACCEPTABLE if actor.person is None else [guard.code for guard in found]
    given = {g.code for g in found if g.takes_reason and g.code in may_be and reasons.get(g.code)}
    given -= {g.code for g in found if g.code in (shown or {}) and g.shown not in (shown or {})[g.code].split()}
    # A service account cannot verify; the holder of a personal token is unknown.
    spared = actor.kind is ActorKind.SERVICE and facts.exempt_service_accounts
    dealt_with = (Need.SECOND, Need.STEP_UP) if actor.proved or spared else (Need.SECOND,)
    standing = [guard for guard in judging.remaining_guards(found, given) if guard.needs not in dealt_with]
    if standing:
        refuse_by_guard(facts, standing)
    if actor.person is not None and any(guard.blocks for guard in found):
        require(actor, Right.OVERRIDE, facts.place, doing="override")
    return [kept_overrides(guard, reasons[guard.code]) for guard in found if guard.code in given]


def kept_overrides(guard: Guard, reason: str) -> dict[str, Any]:
    """Return an overridden guard as an approval stores it. `reason` is the user's text."""
    return {"code": guard.code, "values": as_json(guard.values), "reason": reason}


def override_entry_data(found: Iterable[Guard]) -> list[dict[str, object]]:
    """Return the guards as details of a refusal."""
    return [
        {"code": g.code, "sentence": g.sentence, "needs": g.needs.value, "overridable": g.overridable} for g in found
    ]


def refuse_by_guard(facts: EventFacts, standing: list[Guard]) -> None:
    """Raise Refused for the first of these guards, with all of them in the details."""
    first = standing[0]
    code = judging.PROBLEMS[first.code]
    shown: dict[str, str] = {}
    for guard in standing:
        shown[guard.code] = f"{shown.get(guard.code, '')} {guard.shown}".strip()
    details: dict[str, object] = {"guards": override_entry_data(standing), "shown": shown, "version": facts.version}
    if code == "already-decided" and facts.decision is not None:
        details |= {
            "by": facts.decision.by,
            "at": iso(facts.decision.at) if facts.decision.at else None,
            "approval": facts.decision.approval_id,
        }
    raise Refused(code, first.sentence, **details)


# Approving: the one door through which an approval comes into being, for people, rules and waves alike.


@dataclass(frozen=True, slots=True)
class Plan:
    """What a user decides about an event, and when it is sent.

    `when`: kind of dispatch. `undo` is sent at once if no undo period is possible (see `undo_until`), but at `due_at`
    if this is given, like others decided together. `overrides`: reasons by guard code. `shown`: hashes of the displayed
    guards, by code. `expected_version`: the displayed version of the event; `expected`: accepted versions, if several.
    """

    when: When = When.NOW
    due_at: datetime | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    expected_version: int | None = None
    expected: Collection[str] | None = None
    wave: Wave | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class LockedFacts:
    """Facts about an event that the caller has locked, and the event's row id. See `each`."""

    event_pk: int
    facts: EventFacts


AT_ONCE = Plan()
# The service and the set (row id) of an event.
HOME = ("availability_set__service", "availability_set_id")
Home = tuple[str, int]
MEANWHILE = Reason("approved-meanwhile")
NEW_KINDS = {
    ApprovalState.PROPOSED: EntryKind.APPROVAL_PROPOSED,
    ApprovalState.WAITING: EntryKind.APPROVAL_PLANNED,
    ApprovalState.GRANTED: EntryKind.APPROVAL_GRANTED,
}


@contextmanager
def decision_lock(*event_pks: int, meanwhile: Reason = MEANWHILE, homes: Collection[Home] = ()) -> Iterator[None]:
    """Open a transaction in which no other process decides about the service (or else the set) of these events (row
    ids).

    Otherwise two users who approve two events of one set at the same time would both see nothing in flight. The lock is
    taken before any row lock. `homes` are those of the events, if the caller has just read them. Raises Refused
    `already-decided` with the reason `meanwhile` if another decision came first.
    """
    try:
        with gathered():
            found = homes or ScheduledEvent.objects.filter(pk__in=event_pks).values_list(*HOME)
            for name in sorted({home_name(*home) for home in found}):
                take(Lock.DECISIONS, of=name)
            yield
    except IntegrityError as error:
        # The database holds one live approval per event, whatever this code believes.
        if "one_live_approval_per_event" not in str(error):
            raise
        raise Refused("already-decided", meanwhile) from error


def home_name(service: str, set_id: int) -> str:
    """Return the name of the decision lock: the service, or the set (row id) if it belongs to no service."""
    return service or f"set {set_id}"


def row_id(event_id: str) -> int:
    """Return the row id of an event by its EventId. Raises Refused `unknown-event`."""
    found = ScheduledEvent.objects.filter(event_id=event_id.strip().upper()).values_list("pk", flat=True).first()
    return require_found(found, "unknown-event", Reason("event-unknown"))


def event_of(approval_id: int) -> int:
    """Return the row id of an approval's event. Raises Refused `unknown-approval`."""
    found = Approval.objects.filter(pk=approval_id).values_list("event_id", flat=True).first()
    return require_found(found, "unknown-approval", Reason("approval-unknown"))


def grant(
    *, event_id: str, actor: Actor, now: datetime, plan: Plan = AT_ONCE, ahead: LockedFacts | None = None
) -> Approval:
    """Record a user's approval of an event, and its first order if it is sent at once, in one transaction.

    If a guard or the set requires a second person, the approval is only proposed. A rule's approval that is not sent
    yet is withdrawn. `ahead` are facts that the caller has already locked and loaded. Raises Refused: `not-permitted`,
    `validation`, `unknown-event`, `already-decided` (details `by`, `at`, `approval`), `too-late`,
    `precondition-failed`, `version-changed` (details `version`), `guarded` (details `guards`).
    """
    actor = acting(actor, Right.APPROVE, doing="approve")
    due_at = plan.due_at if plan.when in TIMED else None
    plan = replace(plan, due_at=due_at, overrides=cleaned_reasons(plan.overrides))
    if ahead is not None:
        return decide(ahead.event_pk, actor, plan, now=now, facts=ahead.facts)
    rows = ScheduledEvent.objects.filter(event_id=event_id.strip().upper()).values_list("pk", *HOME)
    event_pk, *home = require_found(rows.first(), "unknown-event", Reason("event-unknown"))
    _refuse_decided(event_pk, actor, plan, now=now)
    with decision_lock(event_pk, homes=[(home[0], home[1])]):
        return decide(event_pk, actor, plan, now=now)


def _refuse_decided(event_pk: int, actor: Actor, plan: Plan, *, now: datetime) -> None:
    """Raise Refused if another person has already decided the event, without waiting for the decision lock.

    If several users approve the same events at once, later ones are refused here and delay no other decision.
    """
    decided = Approval.objects.filter(event=event_pk, state__in=LIVE_APPROVALS)
    if not decided.filter(Q(decided_by__isnull=False) | Q(consented_by__isnull=False)).exists():
        return
    facts = load_facts([event_pk], now=now)[event_pk]
    if facts.decision is None or facts.decision.by_rule:
        return
    require(actor, Right.APPROVE, facts.place, doing="approve")
    require_version(facts.version, plan.expected)
    override(
        facts,
        applicable_guards(facts, plan.when, now=now, expected_version=plan.expected_version),
        actor,
        plan.overrides,
    )


def load_facts_locked(event_pk: int, *, now: datetime, expected: Collection[str] | None = None) -> EventFacts:
    """Lock one event (row id), compute its state again, and load the facts for guards.

    Raises Refused `precondition-failed` if its version is not one of the `expected` ones.
    """
    events = compute.lock([event_pk])
    # Read once for both: deciding about a hundred events does this a hundred times.
    standing = load_standing(events, now=now)
    compute.compute_state(events, now=now, standing=standing)
    for event in events:
        require_version(event.version, expected)
    return facts_standing(events, standing, now=now)[event_pk]


def decide(event_pk: int, actor: Actor, plan: Plan, *, now: datetime, facts: EventFacts | None = None) -> Approval:
    """Record a decision of a user, rule or wave. Call it inside `decision_lock` of the event (row id).

    Raises Refused as `grant` does.
    """
    if facts is None:
        facts = load_facts_locked(event_pk, now=now, expected=plan.expected)
    require_version(facts.version, plan.expected)
    if actor.person is not None:
        require(actor, Right.APPROVE, facts.place, doing="approve")
        facts = supersede_rule_decision(event_pk, facts, actor, now=now)
    _check_time(plan, facts, now)
    if plan.when is When.TIME and plan.due_at is not None:
        # The hours without approvals that count are those in which it is to go.
        facts = replace(facts, windows=load_facts([event_pk], now=plan.due_at)[event_pk].windows)
    found = applicable_guards(facts, plan.when, now=now, expected_version=plan.expected_version)
    overridden = override(facts, found, actor, plan.overrides, plan.shown)
    proposal = any(guard.needs is Need.SECOND for guard in found)
    if plan.when is When.UNDO:
        # A proposal can be withdrawn until a second person agrees; the agreement is what can be undone.
        plan = with_undo(plan, facts, now=now) if not proposal else replace(plan, when=When.NOW, due_at=None)
    if proposal and actor.person is None:
        raise Refused(
            "guarded",
            Reason("needs-two-people"),
            guards=override_entry_data(g for g in found if g.needs is Need.SECOND),
        )
    at_once = plan.when is When.NOW and not proposal
    state = ApprovalState.PROPOSED if proposal else ApprovalState.GRANTED if at_once else ApprovalState.WAITING
    approval = Approval.objects.create(
        event_id=event_pk,
        state=state.value,
        **_decided_by(actor),
        event_version=facts.version,
        decided_on=shown(facts),
        when=plan.when.value,
        due_at=plan.due_at,
        wave=plan.wave,
        turn=plan.turn,
        overrides=overridden,
        decided_at=now,
        granted_at=now if at_once else None,
    )
    tell_approval(
        NEW_KINDS[state],
        actor,
        approval,
        facts,
        was=None,
        now=now,
        after={"when": plan.when.value},
        due_at=plan.due_at,
        turn=plan.turn,
        overrides=overridden,
        warnings=[guard.code for guard in found],
        rule=actor.wording,
    )
    dispatch_first_order(approval, facts, now=now)
    return approval


def _decided_by(actor: Actor) -> dict[str, Any]:
    """Return the columns of an approval that describe the actor: account or rule, interface and reason."""
    service, trace = service_of(actor.person), trace_behind(actor)
    return {
        "decided_by": actor.person,
        # The person who answers for the service account that acts.
        "decided_for": service.owner if service is not None else None,
        "rule": actor.rule,
        "rule_wording": stored_text(actor.wording),
        "via": actor.via,
        "token_name": actor.token_name,
        "token": actor.token,
        "comment": actor.why,
        "request_id": trace.request_id,
        "trace_id": trace.trace_id,
    }


def with_undo(plan: Plan, facts: EventFacts, *, now: datetime) -> Plan:
    """Return the plan with the time until which the approval can be undone.

    If no undo period is possible, the returned plan sends the approval at once.
    """
    until = undo_until(facts, now=now, seconds=settings.APPROVAL_UNDO_SECONDS)
    if until is None:
        return replace(plan, when=When.NOW, due_at=None)
    # Those that are decided together go together.
    together = plan.due_at if plan.due_at is not None and plan.due_at > now else None
    return replace(plan, when=When.UNDO, due_at=together or until)


def dispatch_first_order(approval: Approval, facts: EventFacts, *, now: datetime) -> None:
    """Offer the first order of an approval that was just granted, and wake the machine after the commit."""
    if approval.state == ApprovalState.GRANTED.value:
        # It has no order yet that this one would supersede.
        write_order(approval, facts, judging.start_candidates(facts)[0], now=now)
    transaction.on_commit(lambda: wake_up.hint_approval(approval.pk, approval.trace))


def applicable_guards(
    facts: EventFacts, when: When, *, now: datetime, expected_version: int | None = None
) -> list[Guard]:
    """Return the guards that apply to a decision of this kind. All guards are evaluated again before dispatch."""
    found = judging.guards(facts, now=now, expected_version=expected_version)
    return [guard for guard in found if guard.code not in LATER.get(when, ())]


def supersede_rule_decision(event_pk: int, facts: EventFacts, actor: Actor, *, now: datetime) -> EventFacts:
    """Withdraw a rule's approval that was not sent yet, because a user decides now. Return the facts after that."""
    if facts.decision is None or not facts.decision.by_rule:
        return facts
    approval = Approval.objects.get(pk=facts.decision.approval_id)
    if Order.objects.filter(approval=approval).exists():
        return facts
    reason = Reason("beaten-by-person", by=actor.name, rule=facts.decision.by)
    # The person's comment belongs to the following decision, not to this one.
    close(approval, ApprovalState.WITHDRAWN, actor.because(""), facts=facts, now=now, reason=reason)
    return load_facts([event_pk], now=now)[event_pk]


def _check_time(plan: Plan, facts: EventFacts, now: datetime) -> None:
    if plan.when is not When.TIME:
        return
    if plan.due_at is None or plan.due_at <= now:
        raise Refused("validation", Reason("due-time-past"))
    if facts.not_before is not None and plan.due_at >= facts.not_before:
        raise Refused("validation", Reason("due-time-too-late"))


# Several events decided in one call, each on its own: one refusal stops no other, and a locked event delays no other.

T = TypeVar("T")

# This many events are read at once: any other decision about one of them waits for all of these.
MAX_TOGETHER = 20
# This many events that stay locked at the second try are awaited in full; further locked ones are not.
SECOND_TRIES = 2


def each(
    event_ids: Sequence[str],
    act: Callable[[str, LockedFacts | None], T],
    held: Callable[[str, OperationalError], T],
    *,
    clock: Callable[[], datetime],
    ahead: bool,
) -> list[T]:
    """Run `act` for each event (EventId) and return the results in the given order.

    `held` returns the result for an event that stays locked too long. With `ahead`, events are first locked and loaded
    together, and `act` gets these facts; else None. `act` may be called twice for an event, after the first call was
    rolled back. `clock` returns the time, since the run may be long. Raises Postgres's error if Postgres is
    unavailable.
    """
    found: dict[str, T] = {}
    locked: list[str] = []
    for at in range(0, len(event_ids), MAX_TOGETHER):
        portion = event_ids[at : at + MAX_TOGETHER]
        if ahead and len(portion) > 1:
            try:
                found |= _together(portion, act, now=clock())
            except DatabaseError as error:
                # Their results cannot be written together just now: each is written alone.
                if is_quarantined(error):
                    raise
        for event_id in portion:
            if event_id in found:
                continue
            try:
                # After the first one the others do not wait as long for theirs.
                found[event_id] = _alone(event_id, act, hurried=bool(locked))
            except OperationalError as error:
                if not is_timeout(error):
                    raise
                locked.append(event_id)
    # Others may have decided about the same events meanwhile, or about others of the same service, which takes a moment
    # each. Only what stays locked is given up.
    patience = SECOND_TRIES
    for event_id in locked:
        try:
            found[event_id] = _alone(event_id, act, hurried=patience <= 0)
        except OperationalError as error:
            if not is_timeout(error):
                raise
            patience -= 1
            found[event_id] = held(event_id, error)
    return [found[event_id] for event_id in event_ids]


def _alone(event_id: str, act: Callable[[str, LockedFacts | None], T], *, hurried: bool) -> T:
    with transaction.atomic(), short_lock_timeout() if hurried else nullcontext():
        return act(event_id, None)


@gathered()
def _together(event_ids: Sequence[str], act: Callable[[str, LockedFacts | None], T], *, now: datetime) -> dict[str, T]:
    """Run `act` in one transaction for the events that are not locked. Return the results by EventId; failed events are
    omitted.
    """
    found = {}
    for event_id, judged in _judged(event_ids, now=now).items():
        try:
            with gathered():
                found[event_id] = act(event_id, judged)
        except DatabaseError as error:
            if is_quarantined(error):
                raise
    return found


def _judged(event_ids: Sequence[str], *, now: datetime) -> dict[str, LockedFacts]:
    """Lock the events whose rows and decision locks are free, and return their facts by EventId.

    Only one event for each set or service, because its decision affects the others. Events with a decision are omitted,
    because withdrawing it would already write.
    """
    rows = ScheduledEvent.objects.filter(event_id__in=event_ids).values_list("event_id", "pk", *HOME)
    known = {event_id: (pk, home_name(service, set_id)) for event_id, pk, service, set_id in rows}
    first = {known[event_id][1]: known[event_id][0] for event_id in reversed(event_ids) if event_id in known}
    free = take_free(Lock.DECISIONS, sorted(first))
    events = compute.lock([first[name] for name in free], pass_by=True)
    standing = load_standing(events, now=now)
    compute.compute_state(events, now=now, standing=standing)
    facts = facts_standing(events, standing, now=now)
    return {
        event.event_id: LockedFacts(event.pk, facts[event.pk]) for event in events if facts[event.pk].decision is None
    }
