"""What can be seen of tasks from outside: at the broker."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import redis

from tests.processes import wait_for

SECONDS = 40.0

Sent = TypeVar("Sent")


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
