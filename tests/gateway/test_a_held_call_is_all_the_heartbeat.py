"""Long polls as heartbeats: an agent's call carries all that the backend needs while nothing happens."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import requests
from django.utils import timezone

from fleet.models import Machine, Observation, Order, PresenceRow, Spool
from tests.factories import listing
from tests.gateway.test_held_calls import approve_for, held
from tests.gateway_process import Agent, Gateway, document, now
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


def hold(agent: Agent, *, wait: float = 0, **said: str) -> requests.Response:
    """A held call as the newest agents make it."""
    query = {"wait": f"{wait:g}", "sent_at": now(), "last_poll_at": now(), "spool": agent.spool, **said}
    query = {"acknowledged": str(agent.seq), **query}
    return requests.get(f"{agent.url}/agent/v1/orders", params=query, headers=agent.headers, timeout=60)


def known(gateway: Gateway, **identity: str) -> tuple[Agent, str]:
    """A machine that reported its document; and that one's hash."""
    agent = gateway.agent(**identity)
    assert agent.post(agent.document()).status_code == 200
    return agent, document(1)["hash"]


def presence(agent: Agent) -> PresenceRow:
    return PresenceRow.objects.get(machine__vm_id=agent.vm_id)


def test_it_moves_the_poll_and_the_keys_and_writes_no_row(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    rows = Observation.objects.count(), Spool.objects.get(spool=agent.spool)
    before = datetime.now(UTC)
    said = hold(agent, document=newest, keys="").json()
    assert (said["takes_polls"], said["report"], said["remind"], said["renew_in"]) == (True, False, False, 0.0)

    def polled() -> bool:
        row = presence(agent)
        return row.last_poll_at is not None and row.last_poll_at >= before and row.signatures == "no-key"

    wait_for(polled, seconds=20, what="the poll is written")
    assert (Observation.objects.count(), Spool.objects.get(spool=agent.spool)) == rows


def test_an_agent_of_which_other_things_are_known_is_asked_for_a_report_once_at_once(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    other = "f" * 64
    wanted = {
        ("report",): hold(agent, wait=20, spool=str(uuid4()), document=newest),
        ("remind",): hold(known(gateway)[0], wait=20, document=other),
        # Acknowledged beyond what is here: the database was put back to an older state.
        ("remind", "report"): hold(known(gateway)[0], wait=20, document=other, acknowledged="7"),
    }
    for what, answer in wanted.items():
        assert {name for name in ("report", "remind") if answer.json()[name]} == set(what)
    # The gateway requests the report again at the end of the wait, but does not make its agent call in a loop.
    began = time.monotonic()
    assert hold(agent, wait=1, spool=str(uuid4()), document=newest).json()["report"]
    assert time.monotonic() - began > 0.9


def test_an_older_spool_of_the_machine_is_asked_for_a_report(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    first = agent.spool
    agent.spool, agent.seq = str(uuid4()), 0
    agent.post(agent.document())
    assert hold(agent, document=newest).json()["report"] is False
    # A clone with the same credential, or a state folder that was put back.
    assert hold(agent, spool=first, document=newest).json()["report"] is True


@pytest.mark.parametrize("what", ["spool", "acknowledged", "document", "keys"])
def test_nonsense_counts_as_not_said(gateway: Gateway, what: str) -> None:
    agent, newest = known(gateway)
    for nonsense in ("", "\x00", "-1", "9" * 30, "x" * 2000, "²"):
        said = hold(agent, **{"document": newest, what: nonsense})
        assert said.status_code == 200, said.text


def test_a_poll_from_the_future_is_none_of_tomorrow(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    hold(agent, document=newest, last_poll_at=(datetime.now(UTC) + timedelta(hours=9)).isoformat())
    wait_for(lambda: presence(agent).clock_offset is not None, seconds=20, what="the contact is written")
    polled = presence(agent).last_poll_at
    assert polled is not None and polled <= datetime.now(UTC)


def test_holding_the_orders_of_others_delivers_nothing(gateway: Gateway) -> None:
    agent, _ = known(gateway)
    order = approve_for(agent)
    stranger, newest = known(gateway)
    hold(stranger, document=newest, held=f"{order.pk}:celery")
    # Once the order's own machine reports it, the delivery is recorded.
    hold(agent, held=f"{order.pk}:celery")

    def delivered() -> Order | None:
        return Order.objects.filter(pk=order.pk, state="DELIVERED").first()

    found = wait_for(delivered, seconds=20, what="the order is delivered")
    assert found.machine.vm_id == agent.vm_id


def test_agent_that_renews_without_waiting_is_throttled(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    session = requests.Session()
    session.headers.update(agent.headers)
    query = {"wait": "0", "spool": agent.spool, "document": newest}
    url = f"{agent.url}/agent/v1/orders"
    statuses = {session.get(url, params=query, timeout=20).status_code for _ in range(400)}
    assert statuses == {200, 429}


def test_where_something_is_under_way_calls_are_held_shortly(gateway: Gateway) -> None:
    place = f"availability_set:close-{uuid4().hex[:8]}"
    agent, newest = known(gateway, availability_set=place)
    beside, _ = known(gateway, availability_set=place)
    far, _ = known(gateway)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(hold, one, wait=50, document=newest) for one in (beside, far)]
        held(gateway, 2)
        event = listing(str(uuid4()).upper(), resources=["vm"], not_before=timezone.now() + timedelta(minutes=10))
        assert agent.post(agent.document(incarnation=2, events=(event,))).json()["refused"] == []
        # The one that was held already, and the next one.
        assert calls[0].result(25).json()["orders"] == []
        began = time.monotonic()
        hold(beside, wait=50, document=newest)
        assert time.monotonic() - began < 20
        assert not calls[1].done()
        Machine.objects.filter(vm_id=far.vm_id).update(revoked_at=timezone.now(), credential_hash="")
        calls[1].result(20)


def test_simultaneous_agents_are_looked_up_together_and_all_admitted(gateway: Gateway) -> None:
    known_ones = [gateway.agent() for _ in range(3)]
    before = gateway.metric("drydock_shed_total", why="queue")
    barrier = threading.Barrier(60)

    def come(number: int) -> int:
        agent = known_ones[number % 3]
        barrier.wait()
        return hold(Agent(agent.url, agent.credential, agent.vm_id, agent.spool)).status_code

    with ThreadPoolExecutor(60) as pool:
        assert set(pool.map(come, range(60))) == {200}
    assert gateway.metric("drydock_shed_total", why="queue") == before
