"""A walker for drills: the machines' side of one, as their agents play it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drydock_agent import wire

from fleet.models import Approval, Drill, ScheduledEvent
from fleet.operations import drills as drilling
from fleet.operations.drills import Wanted
from fleet.operations.orders import queue
from tests.factories import Fleet, acting, after, operator


def begin(fleet: Fleet, *, comment: str = "every spring", **wanted: Any) -> Drill:
    """An operator begins a drill of the first machine's set."""
    if not fleet.agents:
        fleet.enrol_set(3)
    machine = next(iter(fleet.agents.values())).machine
    machine.refresh_from_db()
    return drilling.begin(
        set_id=machine.availability_set_id,
        actor=acting(operator(), why=comment),
        now=fleet.now,
        wanted=Wanted(**wanted),
    )


def waiting(fleet: Fleet, name: str) -> list[wire.Order]:
    """The orders that wait for this machine."""
    pk = fleet.agents[name].machine.pk
    return queue.waiting_orders(machine_ids=[pk]).get(pk, [])


def the_order(fleet: Fleet, name: str, step: str) -> wire.Order:
    """The one that asks for this step of a drill."""
    (order,) = [order for order in waiting(fleet, name) if (order.drill or {}).get("step") == step]
    return order


def answer(
    fleet: Fleet,
    name: str,
    order: wire.Order,
    *,
    outcome: str = wire.ANSWERED,
    reason: str = "",
    status: int | None = None,
) -> None:
    """The machine has the order, and answers it."""
    queue.note_held(held=[(fleet.agents[name].machine.pk, UUID(order.id), "look")], now=fleet.now)
    data = wire.ReceiptData(
        order_id=order.id, event_id=order.event_id, outcome=outcome, azure_status=status, reason=reason, via="look"
    )
    fleet.report(name, data)


def say(fleet: Fleet, name: str, order_id: str, step: str, reason: str = "") -> None:
    """The machine reports how far its rehearsal is; `order_id` is the order that began it."""
    fleet.report(name, wire.RehearsalData(rehearsal=order_id, event_id="", step=step, reason=reason))


def hooks(fleet: Fleet, name: str, event_id: str, phase: str, outcome: str = "succeeded") -> None:
    """The machine's hooks for a phase begin and end."""
    for step, word in (("begin", "running"), ("end", outcome)):
        fleet.report(name, wire.HookData(event_id=event_id, phase=phase, step=step, outcome=word))


class Walk:
    """A drill in which every live machine takes part, step by step."""

    def __init__(self, fleet: Fleet, **wanted: Any) -> None:
        self.fleet = fleet
        self.drill_id = begin(fleet, **wanted).pk
        self.began: dict[str, str] = {}

    @property
    def drill(self) -> Drill:
        """The drill as it is now."""
        return Drill.objects.select_related("event").get(pk=self.drill_id)

    @property
    def event(self) -> ScheduledEvent:
        """Its event as it is now."""
        return self.drill.event

    def announced(self, *names: str) -> Walk:
        """These machines (or all that are asked) begin to rehearse."""
        self.fleet.later(1)
        self.fleet.heard()
        for name in names or self.fleet.agents:
            order = the_order(self.fleet, name, "rehearse")
            self.began[name] = order.id
            answer(self.fleet, name, order)
            say(self.fleet, name, order.id, "announced")
        return self

    def all_say(self, step: str, reason: str = "") -> Walk:
        self.fleet.later(1)
        self.fleet.heard()
        for name, order_id in self.began.items():
            say(self.fleet, name, order_id, step, reason)
        self.fleet.advance()
        return self

    def approved(self) -> Approval:
        """An operator approves, and the machine's rehearsal answers 200."""
        self.fleet.later(1)
        approval = self.fleet.approve(self.event.event_id)
        asked = approval.orders.get().machine.resource_name
        order = the_order(self.fleet, asked, "approve")
        answer(self.fleet, asked, order, status=200)
        self.fleet.advance()
        return after(approval)

    def reconciled(self, seconds: float = 0) -> Drill:
        """Time passes, and whatever is due is reconciled."""
        self.fleet.tick(seconds)
        return self.drill
