from __future__ import annotations

import os
import signal
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import redis
import requests
from django.utils import timezone

from fleet.accounts import services as account_services
from fleet.embedded import Urls, valkey
from fleet.models import Approval, Order
from fleet.operations import wake_up
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import Plan
from tests.factories import acting, listing
from tests.gateway_process import Agent, Gateway, running_gateway
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


def approve_for(agent: Agent) -> Order:
    """Let this machine announce an event of its own and an operator approve it; no process sends a wake-up."""
    return Order.objects.get(approval=decide_for(agent, Plan()))


def decide_for(agent: Agent, plan: Plan) -> Approval:
    """The same, by this plan."""
    event_id = str(uuid4()).upper()
    name = f"vm-{agent.vm_id[:8]}"
    event = listing(event_id, resources=[name], not_before=timezone.now() + timedelta(minutes=10))
    assert agent.post(agent.document(incarnation=agent.seq + 1, events=(event,))).json()["refused"] == []
    person = account_services.ensure_person(
        username="olga", group="operator", password="long enough to be one", now=timezone.now()
    )
    return approve.grant(event_id=event_id, actor=acting(person, via="api"), now=timezone.now(), plan=plan)


def held(gateway: Gateway, count: int) -> None:
    wait_for(lambda: gateway.metric("drydock_held_calls") == count, seconds=20, what=f"{count} calls are held")


def test_a_wake_up_ends_the_held_call_at_once(gateway: Gateway) -> None:
    rung: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(30):
            agent = gateway.agent()
            call = pool.submit(agent.orders, wait=20)
            held(gateway, 1)
            order = approve_for(agent)
            began = time.monotonic()
            wake_up.wake_machines([order.machine_id], via="celery")
            orders = call.result(10).json()["orders"]
            assert [one["id"] for one in orders] == [str(order.pk)]
            assert orders[0]["machine_id"] == agent.vm_id
            # Asking once a second may be faster than the wake-up now and then.
            assert orders[0]["via"] in ("celery", "look")
            if orders[0]["via"] == "celery":
                rung.append(time.monotonic() - began)
            if len(rung) == 5:
                break
    assert len(rung) == 5
    # About 20 ms where nothing else runs; a look would take half a second on average.
    assert min(rung) < 0.1
    assert statistics.median(rung) < 0.4


def test_without_a_wake_up_the_dispatcher_finds_it_within_about_a_second(gateway: Gateway) -> None:
    with ThreadPoolExecutor(1) as pool:
        # The ticker, which passes by every five seconds, is sometimes faster.
        for _ in range(4):
            agent = gateway.agent()
            call = pool.submit(agent.orders, wait=20)
            held(gateway, 1)
            order = approve_for(agent)
            began = time.monotonic()
            (found,) = call.result(30).json()["orders"]
            # Without the look it would be the end of the wait.
            assert time.monotonic() - began < 8
            assert found["id"] == str(order.pk)
            if found["via"] == "look":
                return
    raise AssertionError("Only the ticker found orders.")


def test_an_order_that_waits_already_is_in_the_first_look(gateway: Gateway) -> None:
    agent = gateway.agent()
    order = approve_for(agent)
    began = time.monotonic()
    (found,) = agent.orders(wait=20).json()["orders"]
    assert time.monotonic() - began < 8
    assert (found["id"], found["via"]) == (str(order.pk), "look")
    (reported,) = agent.post().json()["orders"]
    assert (reported["id"], reported["via"]) == (str(order.pk), "report")


def test_what_the_agent_holds_is_noted_and_not_sent_again(gateway: Gateway) -> None:
    agent = gateway.agent()
    order = approve_for(agent)
    assert agent.orders(wait=0, held=f"{order.pk}:celery").json()["orders"] == []
    assert agent.post(held=[f"{order.pk}:celery"]).json()["orders"] == []

    def delivered() -> bool:
        order.refresh_from_db()
        return (order.state, order.delivered_by) == ("DELIVERED", "celery")

    wait_for(delivered, seconds=20, what="the order is delivered")


def test_a_wait_that_runs_out_ends_empty(gateway: Gateway) -> None:
    agent = gateway.agent()
    began = time.monotonic()
    said = agent.orders(wait=1).json()
    assert 0.9 < time.monotonic() - began < 8
    assert said["orders"] == []
    assert said["server_time"].endswith("Z")


def test_a_client_that_vanishes_is_noticed(gateway: Gateway) -> None:
    agent = gateway.agent()
    address = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as client:
        request = (
            f"GET /agent/v1/orders?wait=50 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {agent.credential}\r\n\r\n"
        )
        client.sendall(request.encode())
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


def test_without_redis_an_order_arrives_within_about_a_second(without_redis: Gateway) -> None:
    assert requests.get(without_redis.url + "/readyz", timeout=5).json()["status"] == "degraded"
    agent = without_redis.agent()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.orders, wait=20)
        held(without_redis, 1)
        order = approve_for(agent)
        began = time.monotonic()
        assert call.result(30).json()["orders"][0]["id"] == str(order.pk)
        assert time.monotonic() - began < 8


def test_redis_is_connected_before_an_approval_and_again_after_an_outage(servers: Urls, folder: Path) -> None:
    with ExitStack() as stack:
        # A path short enough for a socket: a longer one would be reached by a link, which is another one each time.
        folder_of_redis = Path(stack.enter_context(TemporaryDirectory(prefix="redis-")))
        with valkey(folder_of_redis) as address, redis.Redis.from_url(address) as client:
            gateway = stack.enter_context(running_gateway(Urls(servers.database, address), folder))
            # The queue is declared, which is the last thing before a message, and there is no message.
            wait_for(lambda: client.exists("_kombu.binding.drydock") == 1, seconds=10, what="the queue is declared")
            assert client.llen("drydock") == 0
            wait_for(lambda: redis_of(gateway) == "ok", seconds=20, what="redis is there")
        wait_for(lambda: redis_of(gateway) == "away", seconds=20, what="redis is gone")
        # The same socket path, so that the gateway finds the new server under the old address.
        with valkey(folder_of_redis) as again:
            assert again == address
            wait_for(lambda: redis_of(gateway) == "ok", seconds=12, what="redis is back")
            agent = gateway.agent()
            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(agent.orders, wait=20)
                held(gateway, 1)
                approve_for(agent)
                assert call.result(10).json()["orders"]


def redis_of(gateway: Gateway) -> str:
    return str(requests.get(gateway.url + "/readyz", timeout=5).json()["redis"])


def test_nothing_due_waits_for_celery(servers: Urls, folder: Path) -> None:
    """Only the ticker reconciles: an order without an answer still moves to the next machine."""
    with running_gateway(servers, folder, environment={"FALLBACK_TICK_SECONDS": "1"}) as gateway:
        agents = [gateway.agent(availability_set="availability_set:ticking") for _ in range(2)]
        names = [f"vm-{agent.vm_id[:8]}" for agent in agents]
        event_id = str(uuid4()).upper()
        event = listing(event_id, resources=names, not_before=timezone.now() + timedelta(minutes=10))
        for agent in agents:
            agent.post(agent.document(incarnation=5, events=(event,)))
        time.sleep(2.5)
        person = account_services.ensure_person(
            username="olga", group="operator", password="long enough to be one", now=timezone.now()
        )
        approve.grant(event_id=event_id, actor=acting(person, via="api"), now=timezone.now())
        first = Order.objects.get(approval__event__event_id=event_id)
        other = next(agent for agent in agents if agent.vm_id != first.machine.vm_id)
        began = time.monotonic()
        (order,) = other.orders(wait=50).json()["orders"]
        assert time.monotonic() - began < 25
        assert order["via"] == "ticker"
        assert order["event_id"] == event_id


def test_the_worker_ends_when_the_server_above_it_is_killed(servers: Urls, folder: Path) -> None:
    with running_gateway(servers, folder) as gateway:
        worker = gateway.worker
        os.kill(gateway.process.pid, signal.SIGKILL)
        gateway.process.child.wait(20)

        def gone() -> bool:
            try:
                return Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except FileNotFoundError:
                return True

        wait_for(gone, seconds=20, what="the worker is gone")
