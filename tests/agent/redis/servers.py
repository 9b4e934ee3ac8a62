"""A real server in place of a cache, and a network path to it with faults on request."""

import random
import select
import socket
import socketserver
import ssl
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import redis

from fleet.embedded.valkey import binary
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
