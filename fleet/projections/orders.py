"""Progress of orders: the agent that gets the next order, and the manual fallback if no agent answers."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.orders import by_hand as hand
from fleet.domain.orders.next_step import OrderFacts, Relay
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.domain.states import RELAYED_APPROVALS, Presence
from fleet.models import Machine
from fleet.models.facts.events import order_timeouts
from fleet.projections import approvals as rows
from fleet.projections.approvals import ApprovalRow, NextAsked
from fleet.projections.refs import MachineRef, facts_ref
from fleet.projections.visibility import load_facts


@dataclass(frozen=True, slots=True)
class HandMachine:
    """A machine on which the manual command can be run. `windows`: it needs the PowerShell command."""

    machine: MachineRef
    presence: Annotated[Presence, "How present its agent is."]
    lists_it: Annotated[bool, "Its newest document lists the event."]
    windows: Annotated[bool, "It wants the command for PowerShell."]


@dataclass(frozen=True, slots=True)
class ByHandRow:
    """Manual fallback for an approval that no agent can send: one of these commands, run on any of these machines."""

    reason: Annotated[Reason, "Why no agent does it."]
    event_id: Annotated[str, "Spelled as the machine spelled it."]
    linux: Annotated[str, "For a shell with curl."]
    windows: Annotated[str, "For PowerShell."]
    machines: Annotated[tuple[HandMachine, ...], "On any one of them."]


def _orders(row: ApprovalRow) -> list[OrderFacts]:
    said = ((order, order.reason if isinstance(order.reason, str) else "") for order in row.orders)
    return [
        from_row(OrderFacts, order, order_id=order.id, machine_id=order.machine.id, reason=reason)
        for order, reason in said
    ]


def followed(row: ApprovalRow, facts: EventFacts, *, now: datetime) -> ApprovalRow:
    """Return the approval with the agent that gets the next order, as the relay predicts it."""
    found = Relay(row.state, facts, _orders(row), now, order_timeouts()).forecast()
    if found is None:
        return row
    machine = facts_ref(found.machine)
    silent = facts_ref(found.silent) if found.silent else None
    return replace(row, next_asked=NextAsked(machine=machine, at=found.at, silent=silent))


def by_hand(
    facts: EventFacts, approval: ApprovalRow | None, machines: Collection[Machine], *, now: datetime
) -> ByHandRow | None:
    """Return the manual fallback; None while agents can send the approval. `approval` is the current one, else the
    newest; `machines` are the machines of the set.
    """
    state, sent = (approval.state, _orders(approval)) if approval else (None, [])
    found = hand.by_hand(Relay(state, facts, sent, now, order_timeouts()))
    if found is None:
        return None
    windows = {machine.pk for machine in machines if machine.os_type.lower() == "windows"}
    chosen = (
        from_row(HandMachine, machine, machine=facts_ref(machine), windows=machine.machine_id in windows)
        for machine in found.machines
    )
    return from_row(ByHandRow, found, machines=tuple(chosen))


def approval(*, approval_id: int, now: datetime) -> ApprovalRow | None:
    """Return one approval by row id with the agent that gets the next order; None if it does not exist. Two queries, or
    ten while the approval is in progress.
    """
    return approvals([approval_id], now=now).get(approval_id)


def approvals(approval_ids: Collection[int], *, now: datetime) -> dict[int, ApprovalRow]:
    """Return several approvals by row id, each with the agent that gets the next order. As many queries as for one."""
    found = rows.details(approval_ids, now=now)
    on_their_way = {row.id: event_pk for event_pk, row in found if row.state in RELAYED_APPROVALS}
    facts = load_facts(set(on_their_way.values()), now=now) if on_their_way else {}
    return {
        row.id: followed(row, facts[event_pk], now=now) if row.id in on_their_way else row for event_pk, row in found
    }
