"""The environment of a measurement: servers, a fresh migrated database, and child processes, all removed afterwards."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import requests

from fleet.embedded import servers
from fleet.embedded.parent_death import bound

# On a machine that others use as well.
START_SECONDS = 120.0
ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Stage:
    """Running servers and a fresh database; `environment` is what a child process needs to use them."""

    folder: Path
    environment: dict[str, str]
    stack: ExitStack
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def upon(cls, folder: Path, environment: Mapping[str, str], stack: ExitStack) -> Stage:
        """A stage for these servers; its children end with `stack`, before what is in it already."""
        variables = {
            # Latency counts from the end of the time in which an approval can be undone.
            "APPROVAL_UNDO_SECONDS": "0",
            **environment,
            "ENROLMENT_POLICY": "token",
            "SECRET_KEY": "for this one measurement, thrown away afterwards",
            "DJANGO_SETTINGS_MODULE": "fleet.settings",
            # Every agent of a measurement lives in one process and hurries.
            "AGENT_CALLS_PER_MINUTE": "1000000",
        }
        return cls(folder, variables, stack.enter_context(ExitStack()))

    @property
    def database_url(self) -> str:
        return self.environment["DATABASE_URL"]

    def start(self, command: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        """Start a child of this process that ends with it; its output is written to the stage's folder."""
        log = (self.folder / f"child-{len(self.children)}.log").open("wb")
        self.stack.callback(log.close)
        child = subprocess.Popen(
            bound([sys.executable, *command]),
            env={**self.environment, **variables},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self.children.append(child)
        self.stack.callback(stop, child)
        return child

    def granian(
        self, application: str, *, interface: str = "asgi", path: str = "/", more: Sequence[str] = (), **variables: str
    ) -> int:
        """Granian with one worker, or as `more` says, on a free port; returns the port once `path` is answered."""
        port = free_port()
        command = ["-m", "granian", "--interface", interface, "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
        command += ["--backpressure", "20000", "--workers-kill-timeout", "5", "--no-log", *more]
        command += ["--blocking-threads", "8"] if interface == "wsgi" else []
        command += [application]
        child = self.start(command, BASE_URL=f"http://127.0.0.1:{port}", **variables)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                requests.get(f"http://127.0.0.1:{port}{path}", timeout=5)
            except requests.RequestException:
                if child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{application} does not answer: {self.said(child)}") from None
                time.sleep(0.05)
            else:
                return port

    def said(self, child: subprocess.Popen[bytes]) -> str:
        """Return the output of this child so far."""
        return (self.folder / f"child-{self.children.index(child)}.log").read_text(errors="replace")

    def manage(self, *arguments: str) -> str:
        """A management command's output."""
        return self._output(str(ROOT / "manage.py"), *arguments)

    def seed(self, *arguments: str) -> str:
        """Fill the database with a large fleet."""
        return self._output("-m", "bench.seed", *arguments)

    def _output(self, *arguments: str) -> str:
        command = bound([sys.executable, *arguments])
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
        ).stdout


def stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(8)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def stage(environment: Mapping[str, str] = os.environ) -> Iterator[Stage]:
    """Servers (those of `DATABASE_URL` and `REDIS_URL` where set) and a database that is dropped afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drydock-bench-")))
        # Only its owner can read a temporary folder, and Postgres may run as another user.
        folder.chmod(0o755)
        urls = stack.enter_context(servers(folder, dict(environment)))
        name = f"drydock_bench_{secrets.token_hex(4)}"
        with psycopg.connect(urls.database, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        stack.callback(_drop, urls.database, name)
        database = urlsplit(urls.database)._replace(path=f"/{name}").geturl()
        made = Stage.upon(folder, {**environment, **urls.environment, "DATABASE_URL": database}, stack)
        made.manage("migrate", "--verbosity=0")
        yield made


def _drop(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
