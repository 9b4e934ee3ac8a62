"""The second person agrees to a proposal."""

from collections.abc import Collection, Mapping
from datetime import datetime

from fleet.domain.actor import Actor
from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import Need
from fleet.domain.approvals.recheck import differences, uncovered
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, refuse_other
from fleet.domain.states import ApprovalState
from fleet.domain.texts import cleaned_reasons
from fleet.domain.timeline import EntryKind
from fleet.models import Approval
from fleet.models.facts.decisions import load_decisions
from fleet.models.service_accounts import service_of
from fleet.operations.approvals.approve import Plan, alone_with, asked, event_of, judged, set_off, with_undo
from fleet.operations.approvals.override import kept, override
from fleet.operations.orders.states import move, tell_approval
from fleet.operations.people.control import one_person
from fleet.operations.people.rights import acting, require


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
    """The second person agrees to a proposal: never the one who proposed it. It goes then, or waits for its condition;
    with `undo` for the seconds in which it can be undone.

    The guards are asked again: those that the proposer overrode stay so, a new one takes a reason in `overrides` (see
    `override` for `shown`).
    `expected_version` is the event's version that was looked at, `expected` some of which any will do. A proposal about
    an event that has changed since returns to its proposer and cannot be agreed to.
    Raises Refused: `not-permitted`, `validation`, `unknown-approval`, `too-late`, `precondition-failed`,
    `version-changed` (details `version`), `guarded` (details `guards`).
    """
    actor = acting(actor, Right.OVERRIDE, doing="consent")
    reasons = cleaned_reasons(overrides)
    event_pk = event_of(approval_id)
    with alone_with(event_pk):
        facts = judged(event_pk, now=now)
        approval = Approval.objects.select_related("event", "decided_by").get(pk=approval_id)
        require(actor, Right.OVERRIDE, facts.place, doing="consent")
        if approval.state != ApprovalState.PROPOSED.value:
            raise Refused("too-late", Reason("consent-not-proposed", state=approval.state))
        if approval.decided_by_id == actor.person.pk:
            raise Refused("not-permitted", Reason("consent-of-proposer"))
        _require_other_person(approval, actor)
        refuse_other(facts.version, expected)
        decision = load_decisions([approval], {event_pk: facts}, now=now)[approval.pk]
        if changes := differences(decision, facts):
            reason = Reason("consent-of-changed", changes=changes)
            raise Refused("version-changed", reason, version=facts.version)
        if decision.lost is not None:
            raise Refused("too-late", decision.lost)
        found = asked(facts, When(approval.when), now=now, expected_version=expected_version)
        found = [guard for guard in uncovered(decision, found) if guard.code != "already-decided"]
        agreed = [kept(guard, actor.why) for guard in found if guard.needs is Need.SECOND]
        # What stands here was overridden by the two of them; what comes later was seen by nobody.
        overridden = [*approval.overrides, *override(facts, found, actor, reasons, shown), *agreed]
        plan = Plan(when=When(approval.when), due_at=approval.due_at)
        if undo and plan.when is When.NOW:
            plan = with_undo(plan, facts, now=now)
        at_once = plan.when is When.NOW
        target = ApprovalState.GRANTED if at_once else ApprovalState.WAITING
        columns = {"consented_by": actor.person, "consented_at": now, "consent_comment": actor.why}
        columns["consent_token"] = actor.token
        columns |= {"when": plan.when.value, "due_at": plan.due_at}
        if not move(approval, target, **columns, overrides=overridden, **({"granted_at": now} if at_once else {})):
            raise Refused("too-late", Reason("consent-too-late"))
        was = ApprovalState.PROPOSED.value
        tell_approval(EntryKind.APPROVAL_CONSENTED, actor, approval, facts, was=was, now=now, overrides=overridden)
        set_off(approval, facts, now=now)
    approval.refresh_from_db()
    return approval


def _require_other_person(approval: Approval, actor: Actor) -> None:
    """A service account is no person, and whoever stood behind the account that proposed is no second one.

    A token of a person's acts for that person, and whoever made it is that person or runs commands on the server.
    """
    if service_of(actor.person) is not None:
        raise Refused("not-permitted", Reason("consent-of-service"))
    also = () if approval.decided_for_id is None else (approval.decided_for_id,)
    if reason := one_person(approval.decided_by, actor.person, at=approval.decided_at, also=also):
        raise Refused("not-permitted", reason)
