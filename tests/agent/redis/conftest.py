"""A server in place of a cache, a path to it with faults, and a listener as the agent runs it, also with hooks."""

import json
import random
import select
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import redis
from drydock_agent import wire
from drydock_agent.clock import Clock, from_text
from drydock_agent.connections import Interrupted
from drydock_agent.redis.hooks import CacheHooks
from drydock_agent.redis.listener import CacheListener, Timing
from drydock_agent.redis.login import Login, TokenClient
from drydock_agent.settings.caches import Cache, read_caches
from drydock_agent.spool.store import Spool

from fleet.embedded.valkey import binary
from tests.agent.agents import context_of
from tests.processes import free_port, start, wait_for
from tests.receivers import in_a_thread

CHANNEL = "AzureRedisEvents"


class CacheServer:
    """Valkey on a port of loopback. It may be stopped and started again on the same port."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.port = free_port()
        self._folder = folder
        self.options = options
        self.start()

    def start(self) -> None:
        options = {"port": str(self.port), "save": "", "appendonly": "no", "bind": "127.0.0.1", **self.options}
        command = [str(binary()), *(word for name, value in options.items() for word in (f"--{name}", value))]
        self._process = start(command, environment={}, log=self._folder / "cache.log", cwd=self._folder)
        wait_for(self._answers, seconds=20, what="the cache's server answers")

    def stop(self) -> None:
        self._process.kill()

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.options.get("requirepass"))

    def configure(self, name: str, value: str) -> None:
        """Set an option, also for later starts."""
        with self.client() as client:
            client.config_set(name, value)
        self.options[name] = value

    def allow(self, user: str, *rights: str) -> None:
        """Change the rights of a user."""
        with self.client() as client:
            client.execute_command("ACL", "SETUSER", user, *rights)

    def say(self, *lines: str | bytes) -> int:
        """Publish lines; how many subscribers got the last."""
        with self.client() as client:
            return [int(client.publish(CHANNEL, line)) for line in lines][-1]

    def kill_subscribers(self) -> int:
        with self.client() as client:
            return int(client.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))

    def listeners(self) -> int:
        with self.client() as client:
            return int(client.pubsub_numsub(CHANNEL)[0][1])

    def _answers(self) -> bool:
        # An answer of any kind will do, also that a password is missing.
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return bool(connection.recv(1))
        return False


class FaultyPath:
    """A TCP path to a server: passes on, swallows, slices or delays; with `seed` it always does the same.

    With `tls` its near end speaks TLS.
    """

    def __init__(self, port: int, *, seed: int = 1, tls: ssl.SSLContext | None = None) -> None:
        path = self

        class Here(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                path._pass(self.request)

        self._target = port
        self._random = random.Random(seed)
        self.swallows = False
        # Passes on so many bytes to a client, and swallows from then on.
        self.stops_after: int | None = None
        self.slices = False
        self.delay = 0.0
        self._open = True
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Here)
        self.port = int(server.server_address[1])
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self._stack = ExitStack()
        self._stack.enter_context(in_a_thread(server))

    def close(self) -> None:
        self._open = False
        self._stack.close()

    def _pass(self, near: socket.socket) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._target), timeout=5) as far:
            other = {near: far, far: near}
            while self._open:
                for source in select.select([near, far], [], [], 0.05)[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    self._send(other[source], data)

    def _send(self, to: socket.socket, data: bytes) -> None:
        # The path acknowledges swallowed data and never forwards it.
        if self.stops_after is not None:
            data = data[: self.stops_after]
            self.swallows = True
            self.stops_after = None
        elif self.swallows:
            return
        time.sleep(self.delay)
        while data:
            size = self._random.randint(1, 7) if self.slices else len(data)
            to.sendall(data[:size])
            data = data[size:]
            if self.slices:
                time.sleep(self._random.uniform(0, 0.004))


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
