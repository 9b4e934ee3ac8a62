"""While Azure is busy it is asked less and less, at most twenty times, and the last minute is for trying."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.orders.next_step import Do, OrderFacts, Relay, Timeouts
from fleet.domain.states import ApprovalState, OrderState
from tests.facts import calm, machine

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TIMEOUTS = Timeouts.of(timedelta(seconds=3))


def facts(not_before: datetime | None, machines: int = 6) -> EventFacts:
    return calm(not_before=not_before, resources=("vm0",), machines=tuple(map(machine, range(machines))))


def asked(event: EventFacts, *, for_seconds: int, **answer: Any) -> list[float]:
    """Every order is answered so, at once; the seconds from now at which orders were offered."""
    orders: list[OrderFacts] = []
    for second in range(for_seconds):
        now = NOW + timedelta(seconds=second)
        relay = Relay(ApprovalState.RELAYING, event, orders, now, TIMEOUTS)
        step = relay.next_step()
        if step.do is not Do.OFFER or step.machine is None:
            told = relay.forecast()
            assert told is None or told.at > now
            continue
        orders.append(
            OrderFacts(
                order_id=UUID(int=len(orders) * 7919),
                machine_id=step.machine.machine_id,
                state=OrderState.ANSWERED,
                offered_at=now,
                delivered_at=now,
                answered_at=now,
                outcome="answered",
                **{"posts": 1, **answer},
            )
        )
    return [(order.offered_at - NOW).total_seconds() for order in orders]


@pytest.mark.parametrize("status", [202, 429, 500, 503])
@pytest.mark.parametrize("machines", [1, 6])
def test_it_is_asked_after_longer_and_longer_pauses_and_at_most_twenty_times(status: int, machines: int) -> None:
    event = facts(NOW + timedelta(seconds=900), machines)
    times = asked(event, for_seconds=899, azure_status=status)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] <= 3 and pauses[1] <= 3 and pauses[2] <= 6
    assert all(22 <= pause <= 38 for pause in pauses[6:15])
    assert (sum(at < 840 for at in times), sum(at >= 840 for at in times)) == (17, 3)


def test_without_a_not_before_attempts_are_limited() -> None:
    assert len(asked(facts(None), for_seconds=3000, azure_status=500)) == 17


def test_retry_after_is_honoured_but_not_into_the_last_minute() -> None:
    event = facts(NOW + timedelta(seconds=300))
    times = asked(event, for_seconds=299, azure_status=503, retry_after_seconds=100)
    assert times[:4] == [0, 100, 200, 240]
    assert all(after - before <= 15 for before, after in pairwise(times[3:]))


def test_agents_that_do_not_count_are_taken_to_have_asked_three_times() -> None:
    event = facts(NOW + timedelta(seconds=900))
    assert len(asked(event, for_seconds=899, azure_status=500, posts=None)) == 7


def test_a_machine_that_does_not_know_the_event_keeps_no_other_waiting() -> None:
    assert asked(facts(NOW + timedelta(seconds=900), 3), for_seconds=3, azure_status=404) == [0, 1, 2]


def test_what_an_agent_refused_itself_did_not_reach_azure() -> None:
    order = OrderFacts(UUID(int=1), 1, OrderState.ANSWERED, NOW, outcome="refused")
    assert order.asked == 0
    assert replace(order, outcome="failed", posts=3).asked == 3
