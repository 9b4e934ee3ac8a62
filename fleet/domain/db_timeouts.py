"""Database timeouts for each role of a thread, and the number of database connections of each process."""

import re
import threading
from collections import Counter
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
    """Database connections, from Postgres's list of sessions.

    `processes` counts Drydock's processes by kind; `most` is how many connections they may open in total. `others` are
    connections of other clients. `room` is the server's connection limit without those reserved for superusers.
    """

    processes: Mapping[str, int]
    most: int
    others: int
    room: int

    @property
    def fit(self) -> bool:
        return self.most + self.others <= self.room


def name_of(kind: str, *, most: int, process: str) -> str:
    """Return the `application_name` for the Postgres connections of a process. `most` is how many connections the
    process may open; `process` is unique among all processes.
    """
    return f"{PREFIX} {kind} {most} {process}"[:MOST_CHARACTERS]


def read_names(ours: Mapping[str, int], *, others: int, room: int) -> Connections:
    """Count connections from the names of the sessions in Drydock's database.

    `ours` maps each session name to its number of sessions. A name that `name_of` did not create, such as that of a
    command or of release 0.1.0, counts with its number of sessions.
    """
    found = {name: NAME.fullmatch(name) for name in ours}
    processes = Counter(match["kind"] for match in found.values() if match)
    most = sum(max(int(match["most"]), ours[name]) if match else ours[name] for name, match in found.items())
    return Connections(processes, most, others, room)


# Database timeouts, by the role of a thread.


@dataclass(frozen=True, slots=True)
class TimeoutProfile:
    """Database timeouts in seconds: for one statement, for a lock, and for an idle transaction."""

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
# All connections are in use. A client that cannot connect gets no SQLSTATE, so that only the text of the error tells;
# in other languages than English it counts as unavailable.
NO_CONNECTION_FREE = "53300"
NO_CONNECTION_FREE_TEXT = re.compile(
    "too many clients already|connection slots are reserved|too many connections for|no more connections allowed"
)

_thread = threading.local()
_process = {"role": ""}


def use_profile(role: str) -> None:
    """Use the timeouts of this role for all further connections that this thread opens."""
    _thread.role = role


def use_profile_everywhere(role: str) -> None:
    """Use the timeouts of this role for every thread of this process that has not set a role itself."""
    _process["role"] = role


@contextmanager
def profile_in_use(role: str) -> Iterator[None]:
    """Use the timeouts of this role for connections that this thread opens inside the `with` block."""
    before = getattr(_thread, "role", "")
    _thread.role = role
    try:
        yield
    finally:
        _thread.role = before


def sqlstate(error: BaseException) -> str:
    """Return Postgres's error code (SQLSTATE) of a Django database error; empty if it has none, for example if the
    server did not answer.
    """
    found = str(getattr(error.__cause__, "sqlstate", "") or "")
    return found or (NO_CONNECTION_FREE if NO_CONNECTION_FREE_TEXT.search(str(error)) else "")


def is_timeout(error: BaseException) -> bool:
    """Return whether the error is a lock timeout or a statement timeout, so that the database itself is available."""
    return sqlstate(error) in (LOCKED, TOO_SLOW)


def role() -> str:
    """Return the role whose database timeouts apply to this thread; empty if none is set."""
    return str(getattr(_thread, "role", "") or _process["role"])
