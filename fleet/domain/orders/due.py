"""When time alone may change the next step of an approval that is relayed."""

from datetime import datetime

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.due import SOON, first_after
from fleet.domain.orders.facts import OrderFacts
from fleet.domain.orders.next_step import ends_of, may_yet_tell
from fleet.domain.orders.timeouts import Timeouts
from fleet.domain.states import EventStatus, OrderState


def due_at(*, facts: EventFacts, orders: list[OrderFacts], now: datetime, timeouts: Timeouts) -> datetime:
    """When to ask for its next step again, where there is no news of it. Turns of presence are news."""
    over = facts.status is not EventStatus.SCHEDULED or (facts.not_before is not None and facts.not_before <= now)
    # What a spool may still hold is told by polls, which turn nothing; who is not there yet is woken again.
    untold = over and any(may_yet_tell(facts, order, timeouts) for order in orders)
    to_wake = any(order.state is OrderState.OFFERED for order in orders)
    ends = {*ends_of(facts, orders, timeouts), facts.not_before}
    if untold or to_wake:
        ends.add(now + SOON)
    return first_after(now, ends)
