"""Deciding: the one door through which an approval comes into being, for people, rules and waves alike."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from fleet.domain.conditions import LATER, When
from fleet.domain.entries import EntryKind
from fleet.domain.guards import EventFacts, Guard, Need, guards, who_is_asked
from fleet.domain.states import ApprovalState
from fleet.models import Approval, Order, Rule, ScheduledEvent, Wave
from fleet.models.facts import load_facts
from fleet.operations import bells, folding, relaying
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.overcoming import overcome, told
from fleet.operations.rights import require_approve

MAX_TEXT = 2000
# The first key of the advisory locks that keep decisions about one service or set apart.
DECIDING_LOCK = 7_001_170


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides, and through what: a person (`by`), or a rule with its wording at this moment."""

    via: str
    by: User | None = None
    token_name: str = ""
    rule: Rule | None = None
    wording: str = ""

    @property
    def name(self) -> str:
        if self.by is not None:
            return self.by.get_username()
        return f"rule: {self.rule.name}" if self.rule else "Drydock"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided. `overrides`: reasons by the code of the guard that they overcome."""

    comment: str = ""
    when: When = When.NOW
    due_at: datetime | None = None
    overrides: Mapping[str, str] | None = None
    expected_version: int | None = None
    wave: Wave | None = None
    turn: int | None = None


@contextmanager
def alone_with(*event_pks: int) -> Iterator[None]:
    """A transaction in which nobody else decides about the service (or the set, where there is none) of these events.

    Two people who approve two events of one set at once would else each see nothing in flight. Taken before any row is
    locked.
    """
    with transaction.atomic():
        homes = ScheduledEvent.objects.filter(pk__in=event_pks).values_list(
            "availability_set__service", "availability_set_id"
        )
        with connection.cursor() as cursor:
            for name in sorted({service or f"set {set_id}" for service, set_id in homes}):
                cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [DECIDING_LOCK, name])
        yield


def row_id(event_id: str) -> int:
    """The row id of an event by its EventId. Raises Refused `unknown-event`."""
    found = ScheduledEvent.objects.filter(event_id=event_id.strip().upper()).values_list("pk", flat=True).first()
    if found is None:
        raise Refused("unknown-event", "No machine has reported an event of this id.")
    return found


def cleaned(text: str, *, what: str = "comment") -> str:
    """A text by a person, fit to be kept. Raises Refused `validation` when it is too long."""
    text = text.replace("\x00", "").strip()
    if len(text) > MAX_TEXT:
        raise Refused("validation", f"The {what} is longer than {MAX_TEXT:,} characters.")
    return text


def grant(
    *,
    event_id: str,
    by: User,
    via: str,
    comment: str,
    now: datetime,
    expected_version: int | None = None,
    token_name: str = "",
    when: When = When.NOW,
    due_at: datetime | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Approval:
    """A person decides that this event is started: now, once it is prepared, or at a time before NotBefore.

    "Now" writes the approval and its first order in one transaction. Where a guard or the set asks for a second person
    it is a proposal. What a rule has decided and not sent yet is withdrawn in favour of the person. `overrides` are
    reasons by guard code. `via` is `page` or `api`. Raises Refused: `not-permitted`, `validation`, `unknown-event`,
    `already-decided` (details `by`, `at`, `approval`), `too-late`, `version-changed` (details `version`), `guarded`
    (details `guards`).
    """
    require_approve(by)
    plan = Plan(
        comment=cleaned(comment),
        when=when,
        due_at=due_at if when is When.TIME else None,
        overrides={code: cleaned(reason, what="reason") for code, reason in (overrides or {}).items()},
        expected_version=expected_version,
    )
    event_pk = row_id(event_id)
    try:
        with alone_with(event_pk):
            return _decide(event_pk, Decider(via=via, by=by, token_name=token_name), plan, now=now)
    except IntegrityError as error:
        # The database holds one live approval per event, whatever this code believes.
        if "one_live_approval_per_event" not in str(error):
            raise
        raise Refused("already-decided", "Somebody has approved this event already.") from error


def decide(event_pk: int, decider: Decider, plan: Plan, *, now: datetime) -> Approval:
    """The same for rules and waves, inside `alone_with` of the event (row id). Raises Refused as `grant` does."""
    return _decide(event_pk, decider, plan, now=now)


def judged(event_pk: int, *, now: datetime) -> EventFacts:
    """Lock one event, fold it again, and load what guards judge."""
    events = folding.lock([event_pk])
    folding.refold(events, now=now)
    return load_facts([event_pk], now=now)[event_pk]


def _decide(event_pk: int, decider: Decider, plan: Plan, *, now: datetime) -> Approval:
    facts = judged(event_pk, now=now)
    if decider.by is not None:
        require_approve(decider.by, facts.place)
        facts = take_over(event_pk, facts, decider, now=now)
    _check_time(plan, facts, now)
    if plan.when is When.TIME and plan.due_at is not None:
        # The hours without approvals that count are those in which it is to go.
        facts = replace(facts, windows=load_facts([event_pk], now=plan.due_at)[event_pk].windows)
    found = asked(facts, plan.when, now=now, expected_version=plan.expected_version)
    overridden = overcome(facts, found, decider.by, plan.overrides or {})
    proposal = any(guard.needs is Need.SECOND for guard in found)
    if proposal and decider.by is None:
        raise Refused("guarded", "It needs two people.", guards=told(g for g in found if g.needs is Need.SECOND))
    at_once = plan.when is When.NOW and not proposal
    state = ApprovalState.PROPOSED if proposal else ApprovalState.GRANTED if at_once else ApprovalState.WAITING
    approval = Approval.objects.create(
        event_id=event_pk,
        state=state.value,
        decided_by=decider.by,
        rule=decider.rule,
        rule_wording=decider.wording,
        via=decider.via,
        token_name=decider.token_name,
        comment=plan.comment,
        event_version=facts.version,
        when=plan.when.value,
        due_at=plan.due_at,
        wave=plan.wave,
        turn=plan.turn,
        overrides=overridden,
        decided_at=now,
        granted_at=now if at_once else None,
    )
    kind, text = _words(state, decider, plan)
    write(
        [
            entry(
                kind,
                text,
                at=now,
                event_id=event_pk,
                set_id=facts.set_id,
                approval_id=approval.pk,
                actor=decider.name,
                via=decider.via,
                token_name=decider.token_name,
                why=plan.comment or decider.wording,
                before={"approval": None},
                after={"approval": state.value, "when": plan.when.value},
                overrides=overridden,
                warnings=[guard.code for guard in found],
                rule=decider.wording,
            )
        ]
    )
    if at_once:
        relaying.offer(approval, facts, who_is_asked(facts)[0], now=now)
    transaction.on_commit(lambda: bells.hint_relay(approval.pk))
    return approval


def asked(facts: EventFacts, when: When, *, now: datetime, expected_version: int | None = None) -> list[Guard]:
    """The guards that count for such a decision; all of them are asked again when it goes."""
    found = guards(facts, now=now, expected_version=expected_version)
    return [guard for guard in found if guard.code not in LATER.get(when, ())]


def take_over(event_pk: int, facts: EventFacts, decider: Decider, *, now: datetime) -> EventFacts:
    """A person's decision beats a rule's: one that has not been sent is withdrawn. Returns the facts after it."""
    if facts.decision is None or not facts.decision.by_rule:
        return facts
    approval = Approval.objects.get(pk=facts.decision.approval_id)
    if Order.objects.filter(approval=approval).exists():
        return facts
    reason = f"{decider.name} decided: that beats {facts.decision.by}."
    relaying.close(
        approval,
        ApprovalState.WITHDRAWN,
        facts=facts,
        now=now,
        reason=reason,
        actor=decider.name,
        via=decider.via,
        token_name=decider.token_name,
    )
    return load_facts([event_pk], now=now)[event_pk]


def _check_time(plan: Plan, facts: EventFacts, now: datetime) -> None:
    if plan.when is not When.TIME:
        return
    if plan.due_at is None or plan.due_at <= now:
        raise Refused("validation", "Say a time that is still to come, or approve now.")
    if facts.not_before is not None and plan.due_at >= facts.not_before:
        raise Refused("validation", "Say a time before NotBefore: from then on Azure may start it by itself.")


def _words(state: ApprovalState, decider: Decider, plan: Plan) -> tuple[EntryKind, str]:
    what = {
        When.NOW: "start now",
        When.PREPARED: "start when every machine is prepared",
        When.TIME: f"start at {plan.due_at:%Y-%m-%d %H:%M:%S} UTC" if plan.due_at else "start later",
        When.TURN: f"start in turn {plan.turn} of the wave",
    }[plan.when]
    said = f" “{plan.comment}”" if plan.comment else ""
    who = decider.name if decider.by is not None else f"The rule “{decider.rule.name if decider.rule else ''}”"
    if state is ApprovalState.PROPOSED:
        return EntryKind.APPROVAL_PROPOSED, f"{who} proposed: {what}. A second person has to agree.{said}"
    if state is ApprovalState.WAITING:
        return EntryKind.APPROVAL_PLANNED, f"{who} approved: {what}.{said}"
    return EntryKind.APPROVAL_GRANTED, f"{who} approved: {what}.{said}"
