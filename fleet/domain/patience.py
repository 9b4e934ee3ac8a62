"""How long the database may make somebody wait, by what a thread is for.

A row that somebody keeps locked, or a question that has become too large, must hold up whoever asked and nobody else.
Threads that say nothing have no limit: reports and the relay, which must not be cut short; migrating, sealing,
verifying.
"""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds: for one statement, for a lock, and for a transaction in which nothing is asked."""

    statement: float
    lock: float
    idle: float


ROLES = {
    # Whoever looks at a page has gone, or asks again, by then.
    "pages": Patience(statement=5, lock=2, idle=10),
}

_thread = threading.local()


def act_as(role: str) -> None:
    """From now on this thread's new connections are as patient as this role."""
    _thread.role = role


def sqlstate(error: BaseException) -> str:
    """Postgres' code of an error of Django's; empty where it has none, as when nobody answered."""
    return str(getattr(error.__cause__, "sqlstate", "") or "")


def role() -> str:
    """What this thread acts as; empty where it has not said."""
    return str(getattr(_thread, "role", ""))
