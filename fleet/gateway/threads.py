"""Threads of the gateway: a bounded pool for queries, and loops that continue after failures."""

import asyncio
import gc
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import structlog
from django.db import InterfaceError, OperationalError, connections

from fleet.domain.db_timeouts import is_timeout, sqlstate, use_profile
from fleet.gateway.http import busy
from fleet.wording.problems import database_waits

log = structlog.get_logger(__name__)


class Loop(threading.Thread):
    """Thread that runs `step` repeatedly until it is stopped: at once after `wake()`, else `pause` seconds after the
    last run.

    A failing step is logged once until it succeeds again, and is retried with growing pauses. The thread has its own
    database connections with the timeouts of its role. They are closed when it ends and after each failure.
    """

    def __init__(self, name: str, step: Callable[[], None], *, pause: float, role: str = "gateway") -> None:
        super().__init__(name=name, daemon=True)
        self.role = role
        self.step = step
        self.pause = pause
        self.failing = False
        self._woken = threading.Event()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def wake(self) -> None:
        """Run the next step now. May be called from any thread."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread after the current step."""
        self._stopped.set()
        self._woken.set()

    def sleep(self, seconds: float) -> None:
        """Sleep this many seconds, or until the loop is stopped."""
        self._stopped.wait(seconds)

    def run(self) -> None:
        use_profile(self.role)
        failures = 0
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - this is the loop that must survive
                connections.close_all()
                failures += 1
                if failures == 1:
                    log.warning("loop.failing", loop=self.name, error=f"{type(error).__name__}: {error}")
                self.failing = True
                # Jittered, so that the processes of an installation do not come back in step.
                ceiling = min(0.25 * 2**failures, 5.0)
                self.sleep(random.uniform(ceiling / 2, ceiling))  # noqa: S311 - no secret
                continue
            if failures:
                log.info("loop.recovered", loop=self.name, failures=failures)
                failures = 0
                self.failing = False
            self._woken.wait(self.pause)
        connections.close_all()


# Questions to the database before an answer, in a few threads, with a bound on how many wait.

T = TypeVar("T")

# Thresholds of the garbage collector for young, older and all objects. With tens of thousands of long polls, a full
# collection takes half a second, during which no call is answered.
COLLECTED_AFTER = (20_000, 20, 100)


def collect_rarely() -> None:
    """Make full garbage collections rare in this process, so that they delay no call. Call it when everything is
    loaded.

    Python's thread switch interval stays at 5 ms: shorter intervals cost a fifth of a core under high load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def with_connection(call: Callable[[], T]) -> T:
    """Return the result of `call`. If the database connection was dead, for example after a restart of Postgres, call
    it once more on a new connection. It must therefore be safe to repeat.
    """
    try:
        return call()
    except (OperationalError, InterfaceError) as error:
        if is_timeout(error):
            raise
        connections.close_all()
    try:
        return call()
    except (OperationalError, InterfaceError) as error:
        if not is_timeout(error):
            connections.close_all()
        raise


class Threads:
    """Small thread pool in which each thread has its own database connection."""

    def __init__(self, *, threads: int, queue: int) -> None:
        self.queue = queue
        self.waiting = 0
        self._threads = threads
        self._shared: dict[Callable[..., Any], asyncio.Future[Any]] = {}
        self._pool = ThreadPoolExecutor(
            threads, thread_name_prefix="gateway", initializer=use_profile, initargs=("gateway",)
        )

    async def run(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a call in a thread and return its result. Raises Problem 503 if too many calls wait or the database is
        unavailable.
        """
        if self.waiting >= self.queue:
            raise busy("The gateway has too much to do right now: try again in a moment.")
        self.waiting += 1
        try:
            work = partial(with_connection, partial(call, *args, **kwargs))
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except (OperationalError, InterfaceError) as error:
            raise busy(f"{database_waits(sqlstate(error))} Try again in a moment.") from None
        finally:
            self.waiting -= 1

    async def share(self, call: Callable[..., T], *args: Any) -> T:
        """Do as `run` does, unless the same call is running: concurrent callers get one result. A caller that
        disconnects does not cancel the call for the others.
        """
        running = self._shared.get(call)
        if running is None or running.done():
            running = self._shared[call] = asyncio.ensure_future(self.run(call, *args))
        found: T = await asyncio.shield(running)
        return found

    def stop(self) -> None:
        """Wait for the running calls, then close the connections."""
        for _ in range(self._threads):
            self._pool.submit(connections.close_all)
        self._pool.shutdown(wait=True)
