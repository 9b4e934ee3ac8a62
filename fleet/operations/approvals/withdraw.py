"""Taking an approval back before it was sent."""

from datetime import datetime

from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.approvals.conditions import When
from fleet.domain.people import Right
from fleet.domain.reason import Reason, read_reason
from fleet.domain.refusal import Refused
from fleet.domain.states import ApprovalState, EventStatus
from fleet.models import Approval, Order
from fleet.operations.approvals.approve import event_of, judged
from fleet.operations.approvals.claims import hold_locked
from fleet.operations.orders.states import close
from fleet.operations.people.rights import acting, require


def withdraw(*, approval_id: int, actor: Actor, now: datetime) -> Approval:
    """Take an approval back before an order was offered. What a rule decided is held then: no rule decides it again.

    Raises Refused: `not-permitted`, `validation`, `unknown-approval`, `too-late`.
    """
    actor = acting(actor, Right.APPROVE, doing="withdraw")
    event_pk = event_of(approval_id)
    with transaction.atomic():
        facts = judged(event_pk, now=now)
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
