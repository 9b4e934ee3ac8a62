"""Database timeouts by the role of a thread, and the number of connections of each process."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

PREFIX = "drydock"
# One process notifies this many channels at once, each in a thread with its own connection. Two more threads route
# notifications and report to the watchdog.
CHANNELS_AT_ONCE = 16
TELLING = CHANNELS_AT_ONCE + 2
# Of an `application_name`.
MOST_CHARACTERS = 63
NAME = re.compile(rf"{PREFIX} (?P<kind>\w+) (?P<most>\d{{1,6}}) \S+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Connections:
    """Database connections.

    `processes` of Drydock that are connected, by kind, and how many connections they open at `most`. `others` belong to
    other clients of the server; `room` is its limit for all without superuser rights.
    """

    processes: Mapping[str, int]
    most: int
    others: int
    room: int

    @property
    def fit(self) -> bool:
        return self.most + self.others <= self.room


def name_of(kind: str, *, most: int, process: str) -> str:
    """Return the connection name of a process of this kind at Postgres; `process` distinguishes it from all others."""
    return f"{PREFIX} {kind} {most} {process}"[:MOST_CHARACTERS]


def read_names(ours: Mapping[str, int], *, others: int, room: int) -> Connections:
    """Return the connections from the names of sessions in our own database, with how many sessions have each. A
    session without a readable name, as of a command or of release 0.1.0, counts with its present number.
    """
    found = {name: NAME.fullmatch(name) for name in ours}
    processes: dict[str, int] = {}
    for match in found.values():
        if match is not None:
            processes[match["kind"]] = processes.get(match["kind"], 0) + 1
    most = sum(max(int(match["most"]), ours[name]) if match else ours[name] for name, match in found.items())
    return Connections(processes, most, others, room)


# Database timeouts, by the role of a thread.


@dataclass(frozen=True, slots=True)
class TimeoutProfile:
    """The timeouts in seconds: for one statement, for a lock, and for an idle transaction."""

    statement: float
    lock: float
    idle: float


ROLES = {
    # A person who waits for a page has left or reloaded it by then.
    "pages": TimeoutProfile(statement=5, lock=2, idle=10),
    # All agents' reports wait for it. In a storm, writers of several processes have the same events to write, and a
    # commit takes about a second. One after the other costs less than each retrying.
    "writer": TimeoutProfile(statement=10, lock=1, idle=10),
    # All agents' orders wait for it.
    "dispatcher": TimeoutProfile(statement=10, lock=0.2, idle=10),
    # Reconciling comes again in two seconds.
    "relay": TimeoutProfile(statement=15, lock=0.5, idle=15),
    # No caller waits for it: a notification not sent now is sent a moment later.
    "messages": TimeoutProfile(statement=15, lock=2, idle=15),
    # The other queries of a gateway: authentication, presence, news.
    "gateway": TimeoutProfile(statement=10, lock=1, idle=10),
}
# For a caller that delays many others and has met a lock already.
SHORT_LOCK_SECONDS = 0.05

# Errors about a locked row, or about one query; the database can serve all others.
LOCKED, TOO_SLOW = "55P03", "57014"

_thread = threading.local()
_process = {"role": ""}


def use_profile(role: str) -> None:
    """From now on this thread's new connections are as patient as this role."""
    _thread.role = role


def use_profile_everywhere(role: str) -> None:
    """Set the profile of every thread of this process that sets none itself."""
    _process["role"] = role


@contextmanager
def profile_in_use(role: str) -> Iterator[None]:
    """Meanwhile this thread's new connections are as patient as this role."""
    before = getattr(_thread, "role", "")
    _thread.role = role
    try:
        yield
    finally:
        _thread.role = before


def sqlstate(error: BaseException) -> str:
    """Return Postgres's code of a Django error; empty where it has none, as when the server did not answer."""
    return str(getattr(error.__cause__, "sqlstate", "") or "")


def is_timeout(error: BaseException) -> bool:
    """Whether the error is a lock conflict or a slow query; the database itself is available."""
    return sqlstate(error) in (LOCKED, TOO_SLOW)


def role() -> str:
    """Return the role of this thread; empty when not set."""
    return str(getattr(_thread, "role", "") or _process["role"])
