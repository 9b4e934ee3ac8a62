"""A real server in place of a cache, and a network path to it with faults on request."""

from __future__ import annotations

import random
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import redis

from fleet.embedded.valkey import binary
from tests.processes import free_port, start, wait_for

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
        self._tls = tls
        self._target = port
        self._random = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.swallows = False
        # Passes on so many bytes to a client, and swallows from then on.
        self.stops_after: int | None = None
        self.slices = False
        self.delay = 0.0
        self._open = True
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        self._threads: list[threading.Thread] = []

    def close(self) -> None:
        self._open = False
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while self._open:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self._tls is not None:
                near.settimeout(5)
                try:
                    near = self._tls.wrap_socket(near, server_side=True)
                except OSError:
                    near.close()
                    continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            thread = threading.Thread(target=self._pass, args=(near, far))
            thread.start()
            self._threads.append(thread)

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with near, far:
            while self._open:
                ready, _, _ = select.select([near, far], [], [], 0.05)
                for one in ready:
                    try:
                        data = one.recv(65536)
                        if not data:
                            return
                        self._send(other[one], data)
                    except OSError:
                        return

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
