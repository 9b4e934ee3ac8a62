"""Access log: each request is counted by route and logged in one line when it ends.

Paths and headers are not logged, because paths contain ids and sometimes secrets. Calls of agents and probes are
frequent, so they are logged at DEBUG. Only failed or slow ones are logged as warnings, at a limited rate.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

import prometheus_client
import structlog
from drydock_agent import wire
from prometheus_client import Histogram

from fleet.domain.trace import CALL, Call, trace_of
from fleet.gateway import metrics
from fleet.gateway.http import Message, Scope, Send
from fleet.gateway.limits import Buckets

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# A request that no route wants.
UNMATCHED = "unmatched"
# A call of an agent, or a probe, that takes longer than this is slow.
SLOW_SECONDS = 5.0
# The lines of each kind that may be logged in a minute, and how many at once.
QUIET_LINES_PER_MINUTE = 60
QUIET_LINES_AT_ONCE = 20
PROBES = ("/healthz", "/readyz", "/metrics")

log = structlog.get_logger(__name__)
LOGGER = logging.getLogger(__name__)


class Access:
    """The access log and request metrics of one process."""

    def __init__(self) -> None:
        self._lines = Buckets(QUIET_LINES_PER_MINUTE, burst=QUIET_LINES_AT_ONCE)
        self._unsaid: Counter[str] = Counter()
        # Looked up once: the time of a route and method, and the count of each class of status.
        self._counts: dict[tuple[str, str], tuple[Histogram, dict[int, prometheus_client.Counter]]] = {}

    def note(self, call: Call, method: str, sent: CountingSend, seconds: float) -> None:
        """Count and log a request that has ended. `seconds` is its duration."""
        route, method = call.route or UNMATCHED, method if method in METHODS else "other"
        times, by_kind = self._counts.get((route, method)) or self._begin(route, method)
        kind = sent.status // 100
        counts = by_kind.get(kind)
        if counts is None:
            counts = by_kind[kind] = metrics.REQUESTS.labels(route, method, f"{kind}xx" if kind else "none")
        counts.inc()
        times.observe(seconds)
        # Called again and again by machines.
        quiet = route in PROBES or route.startswith("/agent/")
        # A long poll is open until there are orders, so its duration is no problem.
        is_slow = seconds > SLOW_SECONDS and route != wire.ORDERS_PATH
        if quiet and sent.status < 400 and not is_slow and not LOGGER.isEnabledFor(logging.DEBUG):
            return
        said: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": sent.status or None,
            "ms": round(seconds * 1000, 1),
            "bytes": sent.bytes,
        }
        said |= {"person": call.person} if call.person else {}
        said |= {"token": call.token} if call.token else {}
        said |= {"machine": call.machine} if call.machine is not None else {}
        if not quiet:
            (log.warning if sent.status >= 500 else log.info)("request", **said)
        elif sent.status >= 400 or is_slow:
            self._seldom(f"{route} {sent.status}", said)
        else:
            log.debug("request", **said)

    def _begin(self, route: str, method: str) -> tuple[Histogram, dict[int, prometheus_client.Counter]]:
        # Errors begin at 0 with the first request, so that the first of them is one more.
        counts = {5: metrics.REQUESTS.labels(route, method, "5xx")}
        found = self._counts[route, method] = (metrics.REQUEST_SECONDS.labels(route, method), counts)
        return found

    def _seldom(self, kind: str, said: dict[str, Any]) -> None:
        """Log a line at a limited rate for each `kind`. The next logged line states how many were omitted."""
        if self._lines.take(kind, time.monotonic()):
            self._unsaid[kind] += 1
            return
        unsaid = self._unsaid.pop(kind, 0)
        log.warning("request", **said, **({"unsaid": unsaid} if unsaid else {}))


class CountingSend:
    """Wrapper of an ASGI `send` that records the status and the sent bytes, and adds the header `X-Request-ID`."""

    __slots__ = ("_request_id", "_send", "bytes", "status")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode("ascii")
        self.status = 0
        self.bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ())]
            if not any(name == b"x-request-id" for name, _ in headers):
                headers.append((b"x-request-id", self._request_id))
            message = {**message, "headers": headers}
        await self._send(message)
        # What Granian did not take did not go out.
        self.bytes += len(message.get("body", b""))


def call_of(scope: Scope) -> Call:
    """Return the call with the ids of its request (`X-Request-ID`, `traceparent`), and store it in the request's
    scope.
    """
    named: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (b"x-request-id", b"traceparent"):
            # A header that occurs twice is ignored, because it is unclear which value is right.
            named[name] = b"twice, so none" if name in named else value
    given = named.get(b"x-request-id", b"").decode("latin-1")
    call = Call(trace_of(given, named.get(b"traceparent", b"").decode("latin-1").strip()))
    scope[CALL] = call
    return call
