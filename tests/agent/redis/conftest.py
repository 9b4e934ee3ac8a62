"""A cache's server, a path to it, and one listener in a thread, as the agent runs it; with hooks on request."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.clock import Clock, from_text
from drydock_agent.connections import Interrupted
from drydock_agent.redis.hooks import CacheHooks
from drydock_agent.redis.listener import CacheListener, Timing
from drydock_agent.redis.login import Login, TokenClient
from drydock_agent.settings.caches import Cache, read_caches
from drydock_agent.spool.store import Spool

from tests.agent.agents import context_of
from tests.agent.redis.servers import CacheServer, FaultyPath
from tests.processes import wait_for

HOST = "shop.redis.cache.windows.net"

# As the real one, in fewer seconds.
QUICK = Timing(
    read=0.05,
    ping=0.3,
    # An answer that is only slow, where others keep the processor busy, is no lost connection.
    pong=1.0,
    hurry=(0.01, 0.05),
    hurry_for=5.0,
    refused=(0.2, 0.3),
    renew=(600, 600),
    margin=1.0,
    least=0.2,
    steady=0.0,
)


def at_least(count: int, read: Callable[[], list[Any]], *, seconds: float = 10.0) -> list[Any]:
    """What `read` returns once that is so many."""
    return wait_for(lambda: len(items := read()) >= count and items, seconds=seconds, what=f"{count} of them")


class NoTokens(TokenClient):
    """For caches with a password."""

    def fetch(self, cache: Cache) -> Login:
        raise AssertionError(f"unexpected request of a token for {cache.host}")


class Running:
    """A thread of its own for a part, as in the agent."""

    def __init__(self, part: CacheListener | CacheHooks) -> None:
        self._part = part
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        self._part.interrupt()
        self._part.wake.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        with suppress(Interrupted):
            while not self._part._stopping.is_set():
                self._part.wake.clear()
                if pause := self._part.step():
                    self._part.wake.wait(pause)


class Listening:
    """One listener of one cache, with a thread of its own as in the agent, and everything that it wrote down."""

    def __init__(
        self,
        spool: Spool,
        cache: Cache,
        *,
        timing: Timing = QUICK,
        tokens: TokenClient | None = None,
        hooks: CacheHooks | None = None,
    ) -> None:
        self.spool = spool
        context = context_of(spool, Clock())
        self.part = CacheListener(context, cache, tokens=tokens or NoTokens(""), hooks=hooks, timing=timing)
        self._running = Running(self.part)

    def reports(self, kind: str) -> list[dict[str, Any]]:
        batch = self.spool.batch(10_000, 1 << 30)
        return [{**json.loads(each.data), "at": from_text(each.at)} for each in batch if each.kind == kind]

    def lines(self) -> list[str]:
        return [data["raw"] for data in self.reports(wire.REDIS)]

    def states(self) -> list[str]:
        return [data["state"] for data in self.reports(wire.COVERAGE)]

    def until(self, state: str, *, seconds: float = 30.0) -> datetime:
        """When the newest report of coverage came to be `state`."""

        def found() -> datetime | None:
            reports = self.reports(wire.COVERAGE)
            return reports[-1]["at"] if reports and reports[-1]["state"] == state else None

        return wait_for(found, seconds=seconds, what=state)

    def heard(self, count: int, *, seconds: float = 30.0) -> list[str]:
        return at_least(count, self.lines, seconds=seconds)

    def stop(self) -> None:
        self._running.stop()


def cache_at(port: int, query: str = "", *, user: str = "") -> Cache:
    """The shop's cache, reached at a port of loopback."""
    (cache,) = read_caches(f"redis://{user}{HOST}?tls=false&connect=127.0.0.1:{port}{query}")
    return replace(cache, tier="premium")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CacheServer]:
    server = CacheServer(tmp_path)
    yield server
    server.stop()


class CacheStage:
    """A cache's server, a faulty path to it on request, and the listeners of a test."""

    def __init__(self, server: CacheServer, spool: Spool, stack: ExitStack) -> None:
        self.server = server
        self.spool = spool
        self._stack = stack

    @cached_property
    def path(self) -> FaultyPath:
        path = FaultyPath(self.server.port)
        self._stack.callback(path.close)
        return path

    def listen(self, cache: Cache | int = 0, *, until: str = "", **more: Any) -> Listening:
        """Start a listener of this cache, or of the one at this port, or of the server."""
        cache = cache_at(cache or self.server.port) if isinstance(cache, int) else cache
        listening = Listening(self.spool, cache, **more)
        self._stack.callback(listening.stop)
        if until:
            listening.until(until)
        return listening


@pytest.fixture
def stage(server: CacheServer, spool: Spool) -> Iterator[CacheStage]:
    with ExitStack() as stack:
        yield CacheStage(server, spool, stack)


@pytest.fixture
def listener(stage: CacheStage) -> Listening:
    """A listener that is subscribed at the cache's server."""
    return stage.listen(until="subscribed")


class Hooked:
    """Listens to a cache and runs the hooks in `folder`/redis.d; `until_done` waits until none is left to run."""

    def __init__(self, spool: Spool, cache: Cache, folder: Path, *, timeout: float = 10.0) -> None:
        context = context_of(spool, Clock(), hooks_dir=folder, hook_timeout_seconds=timeout)
        self.hooks = CacheHooks(context, cache, resource_name=lambda: "web-vm1")
        self._running = Running(self.hooks)
        self.listening = Listening(spool, cache, hooks=self.hooks)

    def stop(self) -> None:
        self.listening.stop()
        self._running.stop()
