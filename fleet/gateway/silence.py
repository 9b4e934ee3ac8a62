"""Closes connections on which a client never sends anything: the server waits for the first byte without a time limit.

The server itself closes connections that stop inside a request or between two. This works on Linux only; on other
systems a proxy must do it.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from fleet.gateway.threads import Loop

SILENT_SECONDS = 30.0
PAUSE_SECONDS = 10.0
FOLDER = Path("/proc/self/fd")
# Offsets in `struct tcp_info`: milliseconds since the last data (or the connection's start), and received bytes.
LAST_CAME, BYTES_CAME = 52, 128
TCP_INFO_BYTES = BYTES_CAME + 8


class Silence:
    """Loop that closes connections to this process on which no client has sent anything."""

    def __init__(self, seconds: float = SILENT_SECONDS) -> None:
        self.seconds = seconds
        self.loop = Loop("silence", self.step, pause=PAUSE_SECONDS)
        # Connections that need no further check: the file of each descriptor, which shows when its number is reused.
        self._spoken: dict[int, int] = {}

    def step(self) -> None:
        """Close the connections that have been silent for too long."""
        if not hasattr(socket, "TCP_INFO") or not FOLDER.is_dir():
            return
        found: dict[int, int] = {}
        unknown: list[tuple[int, int]] = []
        for entry in FOLDER.iterdir():
            number = int(entry.name)
            with suppress(OSError):
                file = os.fstat(number).st_ino
                if self._spoken.get(number) == file:
                    found[number] = file
                else:
                    unknown.append((number, file))
        ports = {port for number, _ in unknown if (port := _listens(number))}
        spoken = [one for one in unknown if _listens(one[0]) is None and self._has_spoken(one[0], ports)]
        self._spoken = found | dict(spoken)

    def _has_spoken(self, number: int, ports: set[int]) -> bool:
        """Return whether the file descriptor `number` needs no further check: it has received data, or is no connection
        to one of these ports. Close it if it has been silent for too long.
        """
        try:
            with _own(number) as one:
                if one.family not in (socket.AF_INET, socket.AF_INET6) or one.getsockname()[1] not in ports:
                    return True
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
                if len(info) < TCP_INFO_BYTES or struct.unpack_from("Q", info, BYTES_CAME)[0]:
                    return True
                if struct.unpack_from("I", info, LAST_CAME)[0] > self.seconds * 1000:
                    one.shutdown(socket.SHUT_RDWR)
                return False
        except OSError:
            return True


@contextmanager
def _own(number: int) -> Iterator[socket.socket]:
    """Yield the socket of this file descriptor as a duplicate, so that a reuse of the number in the meantime does no
    harm. Raises OSError if it is no socket.
    """
    copy = os.dup(number)
    try:
        one = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with closing(one):
        yield one


def _listens(number: int) -> int | None:
    """Return the port on which this file descriptor listens; None if it does not listen or is no socket."""
    try:
        with _own(number) as one:
            listens = one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            )
            return int(one.getsockname()[1]) if listens else None
    except OSError:
        return None
