"""Guard of the sender process: an audit hook on connections and files, and resource limits.

Once set, it cannot be taken away. It lies below every library, so it does not matter who connects, in which thread, or
after how many redirects and names.
"""

from __future__ import annotations

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

# Whatever leaves this process, changes the machine, or gets around Python.
EVENTS = """
ctypes.dlsym fcntl.ioctl ftplib.connect mmap.__new__ os.chmod os.chown os.exec os.fork os.forkpty os.kill os.killpg
os.link os.mkdir os.posix_spawn os.remove os.rename os.rmdir os.setxattr os.spawn os.startfile os.symlink os.system
os.truncate os.utime pty.spawn resource.prlimit resource.setrlimit signal.pthread_kill socket.bind socket.sendto
sqlite3.connect subprocess.Popen syslog.openlog syslog.syslog tempfile.mkdtemp tempfile.mkstemp webbrowser.open
"""
FORBIDDEN = frozenset(EVENTS.split())
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# The code itself and what is installed; nothing of the machine's own. OpenSSL reads its certificates without asking.
READABLE = tuple(f"{folder}{os.sep}" for folder in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])})


class NotAllowed(PermissionError):
    """The guard said no. An OSError, so that libraries tidy up after it as after any failed connection."""


class Guard:
    """What the job in hand may reach, and what it was refused."""

    def __init__(self) -> None:
        self.allow: Sequence[Network] = ()
        self.proxy: frozenset[tuple[str, int]] = frozenset()
        self.refused: list[str] = []

    def begin(self, allow: Sequence[str], proxy: str) -> None:
        """A new job. Raises OSError if the proxy has no address, ValueError if a network is none."""
        self.refused = []
        self.allow = [ip_network(network, strict=False) for network in allow]
        self.proxy = frozenset()
        if proxy:
            host, _, port = proxy.rpartition(":")
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            self.proxy = frozenset((str(each[4][0]), int(each[4][1])) for each in found)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook."""
        if event == "socket.connect":
            self.connect(args[0], args[1])
        elif event == "open":
            self.open(args[0], args[1], args[2])
        elif event == "socket.__new__":
            # Neither packets nor the sockets of this machine.
            if args[1] not in (socket.AF_INET, socket.AF_INET6) or args[2] & 0xF != socket.SOCK_STREAM:
                self.refuse(event)
        elif event in FORBIDDEN or event.startswith("shutil."):
            self.refuse(event)
        elif event in ("socket.sendmsg", "ctypes.dlopen") and args[-1] is not None:
            # Without an address it goes to where the socket is connected; without a name no library is opened.
            self.refuse(event)

    def connect(self, connection: socket.socket, address: Any) -> None:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or type(address) is not tuple:
            self.refuse("family")
        host, port = address[0], address[1]
        if self.proxy:
            # Where it goes from there the proxy decides.
            if (host, port) not in self.proxy:
                self.refuse("beside_proxy")
        elif reason := refusal(host, port, allow=self.allow):
            self.refuse(reason)

    def check(self, host: str, port: int) -> None:
        """Judges a literal address before anybody tries; whatever is none is judged when it is connected to."""
        reason = refusal(host, port, allow=self.allow)
        if reason and reason is not AddressRefusal.NOT_LITERAL:
            self.refuse(reason)

    def open(self, path: object, mode: object, flags: object) -> None:
        # A number is something that is open already.
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
        """Raises NotAllowed, always."""
        self.refused.append(str(reason))
        raise NotAllowed(reason)


# Limits of the sender's process: of time for each job, and of what the whole process may ever do.


class Late(BaseException):
    """The job's time is over. No Exception, so that no library takes it for a failed connection and tries the next."""


def ring(number: int, frame: FrameType | None) -> None:
    raise Late


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises Late in the main thread when the time is over. Looking up a name is not interrupted by it."""
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def bind_process() -> None:
    """No file is written, no memory is dumped, and few files are open, whatever runs here."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
