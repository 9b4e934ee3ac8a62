"""What the tests of deciding share: refusals, hooks, and what stands where."""

from collections.abc import Callable
from typing import Any

import pytest
from drydock_agent import wire

from fleet.domain import actor
from fleet.domain.reasons import Refused
from fleet.models import Approval, Entry, Hold, Order, Rule, ScheduledEvent
from fleet.operations.approvals import approve, claims
from fleet.operations.approvals.approve import Plan
from tests.factories import EVENT, Fleet, acting, listing, seconds, the_event

OTHER = "0A1B2C3D-0000-4000-8000-000000000001"


def refused(call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


def codes(refusal: Refused) -> list[str]:
    """The guards that a refusal names."""
    return [guard["code"] for guard in refusal.details["guards"]]


def hook(fleet: Fleet, name: str, event_id: str, step: str, outcome: str, **fields: Any) -> None:
    """A machine reports its prepare hooks: `plan` planned, `begin` running, `end` succeeded, failed or nothing."""
    data = wire.HookData(event_id=event_id, step=step, outcome=outcome, **{"phase": "prepare", **fields})
    fleet.report(name, data)


def prepared(fleet: Fleet, *names: str) -> None:
    """The hooks of these machines for the event have run."""
    for name in names:
        hook(fleet, name, EVENT, "begin", "running")
        hook(fleet, name, EVENT, "end", "succeeded")


def two_events(fleet: Fleet) -> tuple[ScheduledEvent, ScheduledEvent]:
    """Two events of one set, which hit vm1 and vm2."""
    fleet.enrol_set()
    fleet.later(1)
    due = fleet.now + seconds(900)
    fleet.all_say(listing(resources=["vm1"], not_before=due), listing(OTHER, resources=["vm2"], not_before=due))
    return the_event(), the_event(OTHER)


def a_rule(fleet: Fleet, name: str = "freezes") -> Rule:
    return Rule.objects.create(
        name=name, reason="they pass", action="approve", created_at=fleet.now, changed_at=fleet.now
    )


def by_rule(fleet: Fleet, event: ScheduledEvent, plan: Plan) -> Approval:
    """What a rule decides about an event."""
    with approve.decision_lock(event.pk):
        return approve.decide(event.pk, actor.rule(a_rule(fleet), "Freeze: approve"), plan, now=fleet.now)


def held(fleet: Fleet, event: ScheduledEvent, by: Any, reason: str = "the shop is open") -> Hold:
    return claims.hold(event_id=event.event_id, actor=acting(by, why=reason), now=fleet.now)


def entries(kind: str, **about: Any) -> list[Entry]:
    return list(Entry.objects.filter(kind=kind, **about).order_by("id"))


def orders(approval: Approval) -> int:
    return Order.objects.filter(approval=approval).count()
