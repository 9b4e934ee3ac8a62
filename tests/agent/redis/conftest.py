"""A cache's server, a path to it, and one listener in a thread, as the agent runs it; with hooks on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
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


class NoTokens(TokenClient):
    """For caches with a password."""

    def fetch(self, cache: Cache) -> Login:
        raise AssertionError(f"unexpected request of a token for {cache.host}")


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
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

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
        return wait_for(
            lambda: ((found := self.lines()) and len(found) >= count and found) or None,
            seconds=seconds,
            what=f"{count} lines",
        )

    def stop(self) -> None:
        self.part.interrupt()
        self.part.wake.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while True:
                self.part.wake.clear()
                pause = self.part.step()
                if pause:
                    self.part.wake.wait(pause)
        except Interrupted:
            return


ListeningFactory = Callable[..., Listening]


def cache_at(port: int, query: str = "", *, user: str = "") -> Cache:
    """The shop's cache, reached at a port of loopback."""
    (cache,) = read_caches(f"redis://{user}{HOST}?tls=false&connect=127.0.0.1:{port}{query}")
    return replace(cache, tier="premium")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CacheServer]:
    server = CacheServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def path(server: CacheServer) -> Iterator[FaultyPath]:
    path = FaultyPath(server.port)
    yield path
    path.close()


@pytest.fixture
def listening(spool: Spool) -> Iterator[ListeningFactory]:
    with ExitStack() as stack:

        def make(cache: Cache | int, *, until: str = "", **more: Any) -> Listening:
            made = Listening(spool, cache_at(cache) if isinstance(cache, int) else cache, **more)
            stack.callback(made.stop)
            if until:
                made.until(until)
            return made

        yield make


@pytest.fixture
def listener(server: CacheServer, listening: ListeningFactory) -> Listening:
    """A listener that is subscribed at the cache's server."""
    return listening(server.port, until="subscribed")


class Hooked:
    """Listens to a cache and runs the hooks in `folder`/redis.d; `until_done` waits until none is left to run."""

    def __init__(self, spool: Spool, cache: Cache, folder: Path, *, timeout: float = 10.0) -> None:
        context = context_of(spool, Clock(), hooks_dir=folder, hook_timeout_seconds=timeout)
        self.hooks = CacheHooks(context, cache, resource_name=lambda: "web-vm1")
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        self.listening = Listening(spool, cache, hooks=self.hooks)

    def stop(self) -> None:
        self.listening.stop()
        self.hooks.interrupt()
        self.hooks.wake.set()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while not self.hooks._stopping.is_set():
                self.hooks.wake.clear()
                pause = self.hooks.step()
                if pause:
                    self.hooks.wake.wait(pause)
        except Interrupted:
            return
