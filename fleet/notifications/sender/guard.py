"""Guard of the sender process. It consists of an audit hook that checks connections and opened files, and of resource
limits.

The hook cannot be removed. It also applies to all libraries, threads, redirects and resolved names.
"""

import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from types import FrameType
from typing import Any

from fleet.domain.egress import AddressRefusal, Network, refusal

# Events that send data out of this process, change the machine, or bypass Python.
EVENTS = """
ctypes.dlsym fcntl.ioctl ftplib.connect mmap.__new__ os.chmod os.chown os.exec os.fork os.forkpty os.kill os.killpg
os.link os.mkdir os.posix_spawn os.remove os.rename os.rmdir os.setxattr os.spawn os.startfile os.symlink os.system
os.truncate os.utime pty.spawn resource.prlimit resource.setrlimit signal.pthread_kill socket.bind socket.sendto
sqlite3.connect subprocess.Popen syslog.openlog syslog.syslog tempfile.mkdtemp tempfile.mkstemp webbrowser.open
"""
FORBIDDEN = frozenset(EVENTS.split())
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# The code itself and installed packages; no other files of the machine. OpenSSL reads its certificates without an
# event.
READABLE = tuple(f"{folder}{os.sep}" for folder in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])})


class NotAllowed(PermissionError):
    """The guard refused an operation. It is an OSError, so that libraries handle it like a failed connection."""


class Guard:
    """The networks and proxy that the current job may connect to, and the refused operations."""

    def __init__(self) -> None:
        self.allow: Sequence[Network] = ()
        self.proxy: frozenset[tuple[str, int]] = frozenset()
        self.refused: list[str] = []

    def begin(self, allow: Sequence[str], proxy: str) -> None:
        """Set the permissions for a new job. Raises OSError if the proxy's name has no address, ValueError for an
        invalid network.
        """
        self.refused = []
        self.allow = [ip_network(network, strict=False) for network in allow]
        self.proxy = frozenset()
        if proxy:
            host, _, port = proxy.rpartition(":")
            addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            self.proxy = frozenset((str(address[4][0]), int(address[4][1])) for address in addresses)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Check one audit event. This is the function to pass to `sys.addaudithook`."""
        if event == "socket.connect":
            self.connect(args[0], args[1])
        elif event == "open":
            self.open(args[0], args[1], args[2])
        elif event == "socket.__new__":
            # No packet sockets and no Unix sockets.
            if args[1] not in (socket.AF_INET, socket.AF_INET6) or args[2] & 0xF != socket.SOCK_STREAM:
                self.refuse(event)
        elif event in FORBIDDEN or event.startswith("shutil."):
            self.refuse(event)
        elif event in ("socket.sendmsg", "ctypes.dlopen") and args[-1] is not None:
            # Without an address, data goes to the connected peer; without a name, no library is opened.
            self.refuse(event)

    def connect(self, connection: socket.socket, address: Any) -> None:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or type(address) is not tuple:
            self.refuse("family")
        host, port = address[0], address[1]
        if self.proxy:
            # The proxy checks the destination.
            if (host, port) not in self.proxy:
                self.refuse("beside_proxy")
        elif reason := refusal(host, port, allow=self.allow):
            self.refuse(reason)

    def check(self, host: str, port: int) -> None:
        """Check an IP address before connecting to it. Names are not resolved here; they are checked at the
        connection.
        """
        reason = refusal(host, port, allow=self.allow)
        if reason and reason is not AddressRefusal.NOT_LITERAL:
            self.refuse(reason)

    def open(self, path: object, mode: object, flags: object) -> None:
        # A number is the descriptor of a file that is already open.
        if isinstance(path, int):
            return
        if isinstance(flags, int) and flags & WRITING:
            self.refuse("open_to_write")
        if mode is not None and set(str(mode)) & set("wax+"):
            self.refuse("open_to_write")
        name = os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]  # noqa: PTH100
        if not name.startswith(READABLE):
            self.refuse("open")

    def refuse(self, reason: str) -> None:
        """Record the reason of a refusal and raise NotAllowed."""
        self.refused.append(str(reason))
        raise NotAllowed(reason)


# Limits of the sender process: time for each job, and permanent resource limits.


class Late(BaseException):
    """The time limit of a job has passed. It is not an Exception, so that no library handles it as a failed connection
    and retries.
    """


def ring(number: int, frame: FrameType | None) -> None:
    raise Late


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Late in the main thread after this time, as a context manager. Name resolution is not interrupted."""
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def bind_process() -> None:
    """Set the resource limits of this process: no written files, no core dumps, few open files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
