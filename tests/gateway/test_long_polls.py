"""Long polls of a real gateway: orders, wake-ups, heartbeats and undo periods."""

import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import redis
import requests
from django.utils import timezone

from fleet.domain.approvals.conditions import When
from fleet.embedded import Urls, valkey_server
from fleet.embedded.folder import is_running
from fleet.models import Approval, Machine, Observation, Order, PresenceRow, Spool
from fleet.operations import wake_up
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import Plan
from tests.factories import acting, listing, operator
from tests.gateway_process import Agent, Gateway, document, now, running_gateway
from tests.processes import wait_for

pytestmark = pytest.mark.real_time


def approve_for(agent: Agent) -> Order:
    """Let this machine announce an event of its own and an operator approve it; no process sends a wake-up."""
    return Order.objects.get(approval=decide_for(agent, Plan()))


def decide_for(agent: Agent, plan: Plan) -> Approval:
    """The same, by this plan."""
    event_id = str(uuid4()).upper()
    name = f"vm-{agent.vm_id[:8]}"
    event = listing(event_id, resources=[name], not_before=timezone.now() + timedelta(minutes=10))
    assert agent.post(agent.document(incarnation=agent.seq + 1, events=(event,))).json()["refused"] == []
    return grant(event_id, plan)


def grant(event_id: str, plan: Plan = Plan()) -> Approval:  # noqa: B008 - it is frozen
    actor = acting(operator("olga"), via="api")
    return approve.grant(event_id=event_id, actor=actor, now=timezone.now(), plan=plan)


def held(gateway: Gateway, count: int) -> None:
    wait_for(lambda: gateway.metric("drydock_held_calls") == count, seconds=20, what=f"{count} calls are held")


@contextmanager
def long_poll(gateway: Gateway, agent: Agent) -> Iterator[Future[requests.Response]]:
    """Hold a call of this agent for orders open, as the only one of the gateway."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.orders, wait=20)
        held(gateway, 1)
        yield call


def test_a_wake_up_ends_the_held_call_at_once(gateway: Gateway) -> None:
    rung: list[float] = []
    for _ in range(30):
        agent = gateway.agent()
        with long_poll(gateway, agent) as call:
            order = approve_for(agent)
            began = time.monotonic()
            wake_up.wake_machines([order.machine_id], via="celery")
            (answer,) = call.result(10).json()["orders"]
        assert (answer["id"], answer["machine_id"]) == (str(order.pk), agent.vm_id)
        # Asking once a second may be faster than the wake-up now and then.
        assert answer["via"] in ("celery", "look")
        if answer["via"] == "celery":
            rung.append(time.monotonic() - began)
        if len(rung) == 5:
            break
    assert len(rung) == 5
    # About 20 ms where nothing else runs; a look would take half a second on average.
    assert min(rung) < 0.1
    assert statistics.median(rung) < 0.4


def test_a_machine_that_plans_to_prepare_hears_of_the_decision_within_about_a_second(gateway: Gateway) -> None:
    agent, other = gateway.agent(), gateway.agent()
    approval = decide_for(agent, Plan(when=When.PREPARED))
    data = {"event_id": approval.event.event_id, "phase": "prepare", "step": "plan", "outcome": "planned"}
    planned_at = (timezone.now() + timedelta(minutes=5)).isoformat()
    assert agent.orders(wait=0).json()["prepare"] == []
    with long_poll(gateway, agent) as call:
        began = time.monotonic()
        assert agent.post(agent.report("hook", {**data, "planned_at": planned_at})).json()["refused"] == []
        answer = call.result(30).json()
    assert time.monotonic() - began < 8
    assert (answer["prepare"], answer["orders"]) == ([approval.event.event_id], [])
    assert other.orders(wait=0).json()["prepare"] == []


def test_an_order_that_waits_already_is_in_the_first_look_until_the_agent_holds_it(gateway: Gateway) -> None:
    agent = gateway.agent()
    order = approve_for(agent)
    began = time.monotonic()
    (found,) = agent.orders(wait=20).json()["orders"]
    assert time.monotonic() - began < 8
    assert (found["id"], found["via"]) == (str(order.pk), "look")
    (reported,) = agent.post().json()["orders"]
    assert (reported["id"], reported["via"]) == (str(order.pk), "report")
    stranger, newest = known(gateway)
    hold(stranger, document=newest, held=f"{order.pk}:look")
    assert Order.objects.get(pk=order.pk).state == "OFFERED", "another machine's word counts for nothing"
    assert agent.orders(wait=0, held=f"{order.pk}:celery").json()["orders"] == []
    assert agent.post(held=[f"{order.pk}:celery"]).json()["orders"] == []
    delivered = Order.objects.filter(pk=order.pk, state="DELIVERED", delivered_by="celery")
    wait_for(delivered.exists, seconds=20, what="the order is delivered")


def test_a_wait_that_runs_out_or_whose_client_vanishes_ends(gateway: Gateway) -> None:
    agent = gateway.agent()
    began = time.monotonic()
    content = agent.orders(wait=1).json()
    assert 0.9 < time.monotonic() - began < 8
    assert content["orders"] == [] and content["server_time"].endswith("Z")
    address = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as client:
        head = f"GET /agent/v1/orders?wait=50 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {agent.credential}\r\n\r\n"
        client.sendall(head.encode())
        held(gateway, 1)
    held(gateway, 0)


def test_of_too_many_calls_of_one_machine_the_oldest_ends(gateway: Gateway) -> None:
    agent = gateway.agent()
    with ThreadPoolExecutor(5) as pool:
        calls = []
        for count in range(1, 5):
            calls.append(pool.submit(agent.orders, wait=40))
            held(gateway, count)
        calls.append(pool.submit(agent.orders, wait=40))
        assert calls[0].result(20).json()["orders"] == []
        order = approve_for(agent)
        wake_up.wake_machines([order.machine_id], via="celery")
        found = [call.result(20).json()["orders"][0]["id"] for call in calls[1:]]
    assert found == [str(order.pk)] * 4


def test_without_redis_the_dispatcher_finds_an_order_within_about_a_second(without_redis: Gateway) -> None:
    assert requests.get(without_redis.url + "/readyz", timeout=5).json()["status"] == "degraded"
    # The ticker, which passes by every five seconds, is sometimes faster.
    for _ in range(4):
        agent = without_redis.agent()
        with long_poll(without_redis, agent) as call:
            order = approve_for(agent)
            began = time.monotonic()
            (answer,) = call.result(30).json()["orders"]
        # Without the look it would be the end of the wait.
        assert time.monotonic() - began < 8
        assert answer["id"] == str(order.pk)
        if answer["via"] == "look":
            return
    raise AssertionError("Only the ticker found orders.")


def test_redis_comes_and_goes_the_ticker_reconciles_and_the_worker_ends_with_its_server(
    servers: Urls, folder: Path
) -> None:
    with ExitStack() as stack:
        # A path short enough for a socket: a longer one would be reached by a link, which is another one each time.
        folder_of_redis = Path(stack.enter_context(TemporaryDirectory(prefix="redis-")))
        with valkey_server(folder_of_redis) as server, redis.Redis.from_url(server.url) as client:
            urls = Urls(servers.database, server.url)
            gateway = stack.enter_context(running_gateway(urls, folder, environment={"FALLBACK_TICK_SECONDS": "1"}))
            # The queue is declared, which is the last thing before a message, and there is no message.
            wait_for(lambda: client.exists("_kombu.binding.drydock") == 1, seconds=10, what="the queue is declared")
            assert client.llen("drydock") == 0
            wait_for(lambda: redis_of(gateway) == "ok", seconds=20, what="redis is there")
            ask_the_next_machine(gateway)
        wait_for(lambda: redis_of(gateway) == "away", seconds=20, what="redis is gone")
        # The same socket path, so that the gateway finds the new server under the old address.
        with valkey_server(folder_of_redis) as again:
            assert again.url == server.url
            wait_for(lambda: redis_of(gateway) == "ok", seconds=12, what="redis is back")
            agent = gateway.agent()
            with long_poll(gateway, agent) as call:
                approve_for(agent)
                assert call.result(10).json()["orders"]
        worker = gateway.worker
        os.kill(gateway.process.pid, signal.SIGKILL)
        gateway.process.child.wait(20)
        wait_for(lambda: not is_running(worker), seconds=20, what="the worker is gone")


def redis_of(gateway: Gateway) -> str:
    return str(requests.get(gateway.url + "/readyz", timeout=5).json()["redis"])


def ask_the_next_machine(gateway: Gateway) -> None:
    """Only the ticker reconciles, without Celery: an order without an answer still moves to the next machine."""
    agents = [gateway.agent(availability_set="availability_set:ticking") for _ in range(2)]
    names = [f"vm-{agent.vm_id[:8]}" for agent in agents]
    event_id = str(uuid4()).upper()
    event = listing(event_id, resources=names, not_before=timezone.now() + timedelta(minutes=10))
    for agent in agents:
        agent.post(agent.document(incarnation=5, events=(event,)))
    time.sleep(2.5)
    grant(event_id)
    first = Order.objects.get(approval__event__event_id=event_id)
    other = next(agent for agent in agents if agent.vm_id != first.machine.vm_id)
    began = time.monotonic()
    (order,) = other.orders(wait=50).json()["orders"]
    assert time.monotonic() - began < 25
    assert (order["via"], order["event_id"]) == ("ticker", event_id)


def test_order_reaches_the_agent_when_the_undo_period_ends(gateway: Gateway, settings: Any) -> None:
    """Neither Celery nor an open page is needed."""
    settings.APPROVAL_UNDO_SECONDS = 2
    agent = gateway.agent()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.orders, wait=20)
        approval = decide_for(agent, Plan(when=When.UNDO))
        assert (approval.state, approval.orders.count()) == ("WAITING", 0)
        (order,) = call.result(20).json()["orders"]
        arrived = timezone.now()
    offered = approval.orders.get()
    assert (str(offered.pk), approval.due_at is not None) == (order["id"], True)
    # Some 20 ms where nothing else runs; reconciling would come after five seconds. Any gateway of the package may
    # offer it, and that without Redis sends no wake-up: then the next look finds it, up to a second later.
    assert approval.due_at <= offered.offered_at < approval.due_at + timedelta(seconds=2)
    assert arrived < offered.offered_at + timedelta(seconds=3)


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


def test_it_moves_the_poll_and_the_keys_and_writes_no_row(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    rows = Observation.objects.count(), Spool.objects.get(spool=agent.spool)
    before = datetime.now(UTC)
    answer = hold(agent, document=newest, keys="").json()
    assert (answer["takes_polls"], answer["report"], answer["remind"], answer["renew_in"]) == (True, False, False, 0.0)
    presence = PresenceRow.objects.filter(machine__vm_id=agent.vm_id, last_poll_at__gte=before, signatures="no-key")
    wait_for(presence.exists, seconds=20, what="the poll is written")
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


def test_nonsense_counts_as_not_said(gateway: Gateway) -> None:
    agent, newest = known(gateway)
    for name in ("spool", "acknowledged", "document", "keys"):
        for nonsense in ("", "\x00", "-1", "9" * 30, "x" * 2000, "²"):
            answer = hold(agent, **{"document": newest, name: nonsense})
            assert answer.status_code == 200, answer.text


def test_where_something_is_under_way_calls_are_held_shortly(gateway: Gateway) -> None:
    place = f"availability_set:close-{uuid4().hex[:8]}"
    agent, newest = known(gateway, availability_set=place)
    neighbour, _ = known(gateway, availability_set=place)
    far, _ = known(gateway)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(hold, one, wait=50, document=newest) for one in (neighbour, far)]
        held(gateway, 2)
        event = listing(str(uuid4()).upper(), resources=["vm"], not_before=timezone.now() + timedelta(minutes=10))
        assert agent.post(agent.document(incarnation=2, events=(event,))).json()["refused"] == []
        # The one that was held already, and the next one.
        assert calls[0].result(25).json()["orders"] == []
        began = time.monotonic()
        hold(neighbour, wait=50, document=newest)
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
