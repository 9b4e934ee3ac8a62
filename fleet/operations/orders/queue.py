"""What waits for machines: their open orders, and what drills ask of them. The rows are the queue."""

from collections import defaultdict
from collections.abc import Collection

from django.db.models import Exists, F
from drydock_agent import wire

from fleet.domain.approvals.recheck import recheck
from fleet.domain.states import OPEN_ORDERS
from fleet.models import Instruction, Order, Stop, driver
from fleet.models.facts.decisions import load_decisions
from fleet.models.facts.events import load_facts
from fleet.operations import clock
from fleet.operations.orders import instructions, sign

OPEN = ", ".join(f"'{state.value}'" for state in OPEN_ORDERS)
WAITED_FOR = f"""
    SELECT machine_id FROM {Order._meta.db_table} WHERE state IN ({OPEN})
    UNION SELECT machine_id FROM {Instruction._meta.db_table} WHERE closed_at IS NULL
"""


def waited_for() -> set[int]:
    """The machines (row ids) for which anything may wait. One statement over two partial indexes, which hold what is
    open and nothing else: so it is asked of whole fleets, many times a second.
    """
    with driver.cursor() as cursor:
        return {machine_id for (machine_id,) in cursor.execute(WAITED_FOR)}


def waiting_orders(*, machine_ids: Collection[int] | None = None) -> dict[int, list[wire.Order]]:
    """Open orders by machine (row ids), signed, for these machines or for all, and what drills ask of them.

    `via` is left to who delivers. While all approvals are stopped no order is handed out. Neither is one whose decision
    does not cover its event as it is now; the next tick ends that.
    """
    # In one statement with the orders: nothing is handed out that was read after the stop.
    rows = Order.objects.filter(~Exists(Stop.objects.filter(lifted_at__isnull=True)))
    rows = rows.filter(machine__revoked_at__isnull=True, state__in=[state.value for state in OPEN_ORDERS])
    # Who has moved into another set meanwhile has no part in the event.
    rows = rows.filter(machine__availability_set=F("approval__event__availability_set"))
    rows = rows.select_related("machine", "approval__event")
    if machine_ids is not None:
        rows = rows.filter(machine_id__any=machine_ids)
    waiting = _still_decided(list(rows.defer("machine__compute").order_by("offered_at", "id")))
    orders = [
        wire.Order(
            id=str(order.pk),
            machine_id=order.machine.vm_id,
            event_id=order.spelled,
            issued_at=order.offered_at,
            expires_at=order.expires_at,
            drill={"step": instructions.APPROVE} if order.approval.event.drill else None,
            request_id=order.approval.request_id,
            trace_id=order.approval.trace_id,
        )
        for order in waiting
    ]
    drilled = instructions.waiting(machine_ids=machine_ids)
    whose = [order.machine_id for order in waiting] + [machine_id for machine_id, _ in drilled]
    orders += [order for _, order in drilled]
    found: dict[int, list[wire.Order]] = defaultdict(list)
    for machine_id, signed in zip(whose, sign.signed(orders, now=clock.now()), strict=True):
        found[machine_id].append(signed)
    return found


def _still_decided(orders: list[Order]) -> list[Order]:
    """Those whose approvals may still be sent. What is checked is read after the orders."""
    if not orders:
        return []
    now = clock.now()
    approvals = {order.approval_id: order.approval for order in orders}
    facts = load_facts([approval.event_id for approval in approvals.values()], now=now)
    decisions = load_decisions(list(approvals.values()), facts, now=now)
    sent = {
        pk for pk, approval in approvals.items() if recheck(decisions[pk], facts[approval.event_id], now=now) is None
    }
    return [order for order in orders if order.approval_id in sent]
