"""Decisions looked at again: the second person agrees to a proposal, or somebody takes an approval back."""

from collections.abc import Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.conditions import When
from fleet.domain.entries import EntryKind
from fleet.domain.guards import Need, who_is_asked
from fleet.domain.states import LOOKS, ApprovalState, EventStatus
from fleet.models import Approval, Order
from fleet.operations import bells, holding, relaying
from fleet.operations.deciding import alone_with, asked, cleaned, judged
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.overcoming import overcome
from fleet.operations.rights import require_approve, require_override


def withdraw(
    *, approval_id: int, by: User, via: str, now: datetime, comment: str = "", token_name: str = ""
) -> Approval:
    """Take an approval back before an order was offered. What a rule decided is held then: no rule decides it again.

    Raises Refused: `not-permitted`, `validation`, `unknown-approval`, `too-late`.
    """
    require_approve(by, verb="Withdrawing")
    comment = cleaned(comment)
    event_pk = _event_of(approval_id)
    with transaction.atomic():
        facts = judged(event_pk, now=now)
        approval = Approval.objects.select_related("event").get(pk=approval_id)
        require_approve(by, facts.place, verb="Withdrawing")
        if Order.objects.filter(approval=approval).exists():
            look = LOOKS[ApprovalState(approval.state)]
            raise Refused(
                "too-late", f"It cannot be withdrawn: an order was offered to a machine. It stands at: {look.label}."
            )
        name = by.get_username()
        said = f" “{comment}”" if comment else ""
        closed = relaying.close(
            approval,
            ApprovalState.WITHDRAWN,
            facts=facts,
            now=now,
            reason=f"{name} withdrew it.{said}",
            actor=name,
            via=via,
            token_name=token_name,
            why=comment,
        )
        if not closed:
            look = LOOKS[ApprovalState(approval.state)]
            raise Refused("too-late", f"It cannot be withdrawn, since it has ended: {look.label}. {approval.reason}")
        if approval.decided_by_id is None and facts.hold is None and facts.status is EventStatus.SCHEDULED:
            holding.write_hold(
                facts,
                event_pk,
                text=f"{name} withdrew what the rule decided, so rules leave it alone.{said}",
                reason=comment or "What the rule decided was withdrawn.",
                by=by,
                via=via,
                token_name=token_name,
                now=now,
            )
    approval.refresh_from_db()
    return approval


def consent(
    *,
    approval_id: int,
    by: User,
    via: str,
    now: datetime,
    comment: str = "",
    token_name: str = "",
    overrides: Mapping[str, str] | None = None,
) -> Approval:
    """The second person agrees to a proposal: never the one who proposed it. It goes then, or waits for its condition.

    The guards are asked again: those that the proposer overcame stay so, a new one takes a reason in `overrides`.
    Raises Refused: `not-permitted`, `validation`, `unknown-approval`, `too-late`, `guarded` (details `guards`).
    """
    require_override(by, verb="Being the second person")
    comment = cleaned(comment)
    reasons = {code: cleaned(reason, what="reason") for code, reason in (overrides or {}).items()}
    event_pk = _event_of(approval_id)
    with alone_with(event_pk):
        facts = judged(event_pk, now=now)
        approval = Approval.objects.select_related("event", "decided_by").get(pk=approval_id)
        require_override(by, facts.place, verb="Being the second person")
        if approval.state != ApprovalState.PROPOSED.value:
            look = LOOKS[ApprovalState(approval.state)]
            raise Refused("too-late", f"It waits for no second person (any more). It stands at: {look.label}.")
        if approval.decided_by_id == by.pk:
            raise Refused("not-permitted", "The second person has to be somebody else: you proposed it yourself.")
        before = {one["code"] for one in approval.overrides} | {"already-decided"}
        found = [g for g in asked(facts, When(approval.when), now=now) if g.code not in before]
        name = by.get_username()
        agreed = [
            {"code": g.code, "sentence": g.sentence, "reason": comment or f"{name} agreed as the second person."}
            for g in found
            if g.needs is Need.SECOND
        ]
        # What stands here was overcome by the two of them; what comes later was seen by nobody.
        overridden = [*approval.overrides, *overcome(facts, found, by, reasons), *agreed]
        at_once = approval.when == When.NOW.value
        target = ApprovalState.GRANTED if at_once else ApprovalState.WAITING
        columns = {"consented_by": by, "consented_at": now, "consent_comment": comment, "overrides": overridden}
        if not relaying.move(approval, target, **columns, **({"granted_at": now} if at_once else {})):
            raise Refused("too-late", "Somebody was first: it waits for no second person any more.")
        write(
            [
                entry(
                    EntryKind.APPROVAL_CONSENTED,
                    f"{name} agreed as the second person." + (f" “{comment}”" if comment else ""),
                    at=now,
                    event_id=event_pk,
                    set_id=facts.set_id,
                    approval_id=approval.pk,
                    actor=name,
                    via=via,
                    token_name=token_name,
                    why=comment,
                    before={"approval": ApprovalState.PROPOSED.value},
                    after={"approval": target.value},
                    overrides=overridden,
                )
            ]
        )
        if at_once:
            relaying.offer(approval, facts, who_is_asked(facts)[0], now=now)
        transaction.on_commit(lambda: bells.hint_relay(approval.pk))
    approval.refresh_from_db()
    return approval


def _event_of(approval_id: int) -> int:
    event_pk = Approval.objects.filter(pk=approval_id).values_list("event_id", flat=True).first()
    if event_pk is None:
        raise Refused("unknown-approval", "There is no approval of this id.")
    return event_pk
