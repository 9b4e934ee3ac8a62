"""The gateway's own clock lets approvals go when the seconds to undo them are over, without Celery or an open tab."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from fleet.domain.approvals.conditions import When
from fleet.operations.approvals.approve import Plan
from tests.gateway.test_held_calls import decide_for
from tests.gateway_process import Gateway

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


@pytest.fixture(autouse=True)
def some_seconds(settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 2


def test_its_order_reaches_the_agent_when_its_time_comes(gateway: Gateway) -> None:
    agent = gateway.agent()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.orders, wait=20)
        approval = decide_for(agent, Plan(when=When.UNDO))
        assert (approval.state, approval.orders.count()) == ("WAITING", 0)
        (order,) = call.result(20).json()["orders"]
        arrived = timezone.now()
    offered = approval.orders.get()
    assert (str(offered.pk), approval.due_at is not None) == (order["id"], True)
    # Some 20 ms where nothing else runs; reconciling would come after five seconds.
    late = timedelta(seconds=1)
    assert approval.due_at <= offered.offered_at < approval.due_at + late
    assert arrived < offered.offered_at + late
