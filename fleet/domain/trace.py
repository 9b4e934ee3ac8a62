"""Identifiers of one request in all logs: request id and trace id."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from random import Random, SystemRandom

# Where the scope and the META of a request keep its `Call`.
CALL = "drydock.call"
# What others may name their requests; anything else could be an attempt to write into our logs.
SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
# W3C Trace Context: version, trace, parent, flags. Later versions may add more behind a hyphen; ff is none.
TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,400})?", re.ASCII)
TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
NO_TRACE, NO_PARENT = "0" * 32, "0" * 16
# An id is no secret, and each call has one. Asking the system for random bytes gives way to another thread each time,
# behind which the one that answers all calls waited for a millisecond.
_numbers = Random(SystemRandom().getrandbits(128))  # noqa: S311 - no secret
# A forked process, such as Celery's, would create the same numbers.
os.register_at_fork(after_in_child=lambda: _numbers.seed(SystemRandom().getrandbits(128)))


@dataclass(frozen=True, slots=True)
class Trace:
    """Request id and trace id of an action.

    `request_id` has at most 128 characters. `trace_id` has 32 hexadecimal digits; empty without tracing.
    """

    request_id: str
    trace_id: str = ""

    @classmethod
    def new(cls) -> Trace:
        """Return a new trace for work that no request started."""
        return cls(_new_id())

    @property
    def words(self) -> dict[str, str]:
        """The fields of the trace for a log line, without empty ones."""
        named = {"request_id": self.request_id, "trace_id": self.trace_id}
        return {name: value for name, value in named.items() if value}


@dataclass(slots=True)
class Call:
    """One request in progress. The request handler records the user and the URL pattern (`route`) here for the log."""

    trace: Trace
    route: str = ""
    person: str = ""
    token: str = ""
    machine: int | None = None


def trace_of(request_id: str, traceparent: str) -> Trace:
    """Return the trace from the headers `X-Request-ID` and `traceparent`. A request id that is not valid, and a
    `traceparent` that does not conform to W3C Trace Context, are replaced by new ones.
    """
    sane = request_id if SANE_ID.fullmatch(request_id) else _new_id()
    found = TRACEPARENT.fullmatch(traceparent)
    if found is not None:
        version, trace_id, parent, _, more = found.groups()
        if version != "ff" and trace_id != NO_TRACE and parent != NO_PARENT and not (more and version == "00"):
            return Trace(sane, trace_id)
    return Trace(sane, _new_id() if traceparent else "")


def trace_as_kept(request_id: object, trace_id: object) -> Trace | None:
    """Return the trace that was stored in the database or sent with a task; None if the request id is not valid."""
    if not isinstance(request_id, str) or not SANE_ID.fullmatch(request_id):
        return None
    return Trace(request_id, trace_id if isinstance(trace_id, str) and TRACE_ID.fullmatch(trace_id) else "")


def _new_id() -> str:
    return f"{_numbers.getrandbits(128):032x}"
