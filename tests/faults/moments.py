"""How each moment is reached: by something that can be seen, never by a sleep that hopes."""

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import redis
import requests

from tests.faults.scene import Grant, Scene, transactions_held, transactions_waiting
from tests.faults.schedule import Moment
from tests.processes import wait_for

SECONDS = 40.0
RELAY_TASK = "fleet.relay.tasks.relay_approval"
HANDED_OUT = re.compile(r"^drydock_orders_handed_out_total\{[^}]*\} ([0-9.]+)$", re.MULTILINE)

Sent = TypeVar("Sent")
Reach = Callable[[Scene, Callable[[], Grant], str, ExitStack], Grant]


def reach(scene: Scene, moment: Moment, ask: Callable[[], Grant], event_id: str, undo: ExitStack) -> Grant:
    """Approve, and return when the moment has come. `undo` lets go of everything that is held or frozen for it."""
    return REACH[moment](scene, ask, event_id, undo)


def _stands(scene: Scene) -> None:
    wait_for(
        lambda: transactions_waiting(scene.database.url) > 0, seconds=SECONDS, what="a transaction waits at the hold"
    )


def _held(where: str) -> Reach:
    def reach_it(scene: Scene, ask: Callable[[], Grant], event_id: str, undo: ExitStack) -> Grant:
        undo.enter_context(transactions_held(scene.database.url, where))
        grant = ask()
        _stands(scene)
        return grant

    return reach_it


def _after_the_commit(scene: Scene, ask: Callable[[], Grant], event_id: str, undo: ExitStack) -> Grant:
    with transactions_held(scene.database.url, "at fleet_approval GRANTED"):
        grant = ask()
        _stands(scene)
        # It will not read that its COMMIT went well.
        undo.enter_context(scene.frozen("web"))
    question = """SELECT 1 FROM fleet_approval a JOIN fleet_scheduledevent e ON e.id = a.event_id
                  WHERE e.event_id = %s"""
    wait_for(lambda: scene.rows(question, event_id), seconds=SECONDS, what="the approval is committed")
    return grant


def _task_popped(scene: Scene, ask: Callable[[], Grant], event_id: str, undo: ExitStack) -> Grant:
    with scene.broker_client() as client:
        grant: Grant = popped_by_a_frozen_worker(
            client, lambda: scene.frozen("worker"), ask, task=RELAY_TASK, undo=undo
        )
    return grant


def _order_handed(scene: Scene, ask: Callable[[], Grant], event_id: str, undo: ExitStack) -> Grant:
    before = _handed_out(scene)
    undo.enter_context(scene.frozen(f"agent-{scene.asked(event_id)}"))
    grant = ask()
    wait_for(lambda: _handed_out(scene) > before, seconds=SECONDS, what="the order is handed out")
    return grant


def _handed_out(scene: Scene) -> float:
    said = requests.get(f"{scene.ring.url}/metrics", timeout=10).text
    return sum(float(number) for number in HANDED_OUT.findall(said))


def _azure_acted(scene: Scene, ask: Callable[[], Grant], event_id: str, undo: ExitStack) -> Grant:
    simulator = scene.ring.simulator
    simulator.fault(scene.asked(event_id), "late-answer", method="POST", delay_seconds=1.0)
    undo.callback(simulator.clear_faults)
    grant = ask()
    wait_for(lambda: simulator.events.get(event_id)["approvals"], seconds=SECONDS, what="Azure has acted")
    return grant


REACH: dict[Moment, Reach] = {
    Moment.IN_THE_GRANT: _held("in fleet_order OFFERED"),
    Moment.AT_THE_COMMIT: _held("at fleet_approval GRANTED"),
    Moment.AFTER_THE_COMMIT: _after_the_commit,
    Moment.TASK_POPPED: _task_popped,
    Moment.TASK_RUNNING: _held("in fleet_approval RELAYING"),
    Moment.ORDER_HANDED: _order_handed,
    Moment.AZURE_ACTED: _azure_acted,
    Moment.BEFORE_THE_RECEIPT: _held("at fleet_order ANSWERED"),
}


def popped_by_a_frozen_worker(
    client: redis.Redis,
    freeze: Callable[[], AbstractContextManager[None]],
    send: Callable[[], Sent],
    *,
    task: str,
    undo: ExitStack,
) -> Sent:
    """Send a task while the only worker waits for one and is frozen.

    The task is then neither in the queue nor recorded as running, and no process has read it.
    """
    undo.enter_context(
        wait_for(lambda: _frozen_while_it_waits(client, freeze), seconds=SECONDS, what="the worker waits for a task")
    )
    with client.monitor() as monitor:
        # The broker pushes to the connection that waits for it, whether or not a process reads there.
        sent = send()
        deadline = time.monotonic() + SECONDS
        while task not in monitor.next_command()["command"]:
            assert time.monotonic() < deadline, f"no task {task} was sent"
    return sent


def _frozen_while_it_waits(client: redis.Redis, freeze: Callable[[], AbstractContextManager[None]]) -> ExitStack | None:
    """The worker, frozen while its connection is blocked in BRPOP; None when it happened to be elsewhere."""
    if not consumes(client):
        return None
    with ExitStack() as frozen:
        frozen.enter_context(freeze())
        if consumes(client):
            return frozen.pop_all()
    return None


def consumes(client: redis.Redis) -> bool:
    """Whether a connection is blocked in BRPOP: a worker waits for a task."""
    return any(each["cmd"] == "brpop" and "b" in each["flags"] for each in client.client_list())
