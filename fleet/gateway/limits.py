"""Limits of one process. Configurable limits come from the settings; the others are constants here, with their
reasons.
"""

import math
import time
from dataclasses import dataclass, replace
from typing import Any, Self

from django.conf import settings
from drydock_agent import wire

from fleet.gateway import metrics
from fleet.gateway.http import Problem

HOLD_SECONDS = 40.0
# A part of the time after which a machine is no longer live: the rest is for the network, and for writing.
HOLD_SHARE = 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Limits of the gateway. Times are in seconds, sizes in bytes, call rates in calls a minute."""

    request_bytes: int = wire.MAX_REQUEST_BYTES
    document_bytes: int = wire.MAX_DOCUMENT_BYTES
    reports: int = wire.MAX_REPORTS
    depth: int = wire.MAX_DEPTH
    wait: float = wire.MAX_WAIT_SECONDS
    # Duration of long polls: a part of the time after which a machine is no longer live. `close_hold` applies to
    # sets with open events; at most `close_renewals` of these calls are renewed each second.
    hold: float = HOLD_SECONDS
    close_hold: float = 2.0
    close_renewals: int = 250
    agent_calls: int = 600
    enrolments: int = 6000
    credential: float = 600.0
    clock_tolerance: float = 2.0
    # Reports and bytes that may wait for the writer: memory, and an answer within a few seconds.
    queue_reports: int = 20_000
    queue_bytes: int = 128 * 1024 * 1024
    # Limits of one commit, so high that the disk is no bottleneck. Under load a commit takes about a second.
    commit_reports: int = 2_500
    commit_bytes: int = 8 * 1024 * 1024
    # How long a report waits for its commit before its agent has to send it again.
    commit_wait: float = 30.0
    ticker: float = 5.0
    streams: int = 2_000
    # Entries that a slow browser may be behind before its stream ends; it resumes where it was.
    stream_queue: int = 500
    stream: float = 200.0
    # For a stream by a session that depends on the login proxy: the proxy's headers are read only when a stream begins.
    proxied_stream: float = 30.0
    ping: float = 15.0
    # Held calls of one machine: one, and those whose end was not noticed yet.
    held_per_machine: int = 4
    # Threads for the few questions that need the database before an answer, and how many may wait for one.
    threads: int = 4
    thread_queue: int = 5_000
    # Requests to Django's pages, in its threads and waiting for them.
    django_threads: int = 8
    django_queue: int = 200

    @classmethod
    def from_settings(cls, **changes: Any) -> Self:
        """Return the limits from the settings; `changes` replace single values."""
        return replace(
            cls(
                agent_calls=settings.AGENT_CALLS_PER_MINUTE,
                enrolments=settings.ENROLMENTS_PER_MINUTE,
                credential=settings.CREDENTIAL_CACHE_SECONDS,
                hold=min(HOLD_SECONDS, settings.MACHINE_LIVE_SECONDS * HOLD_SHARE),
                clock_tolerance=settings.CLOCK_TOLERANCE_SECONDS,
                queue_reports=settings.INGEST_QUEUE_REPORTS,
                ticker=settings.FALLBACK_TICK_SECONDS,
                stream=settings.STREAM_SECONDS,
                proxied_stream=settings.PROXY_SIGN_IN_STREAM_SECONDS,
                ping=settings.STREAM_PING_SECONDS,
            ),
            **changes,
        )


class Buckets:
    """Token bucket for each key: `per_minute` calls on average, and up to `burst` at once."""

    def __init__(self, per_minute: int, *, burst: int | None = None, keys: int = 200_000) -> None:
        self.rate = per_minute / 60
        self.burst = float(burst if burst is not None else max(per_minute // 4, 1))
        self.keys = keys
        self._filled: dict[int | str, tuple[float, float]] = {}

    def take(self, key: int | str, now: float) -> float:
        """Take one token. Return 0.0 if one was available, else the seconds until the next one. `now` is a time of the
        monotonic clock.
        """
        tokens, since = self._filled.get(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate)
        if tokens < 1:
            return (1 - tokens) / self.rate
        if len(self._filled) >= self.keys and key not in self._filled:
            self._forget_full(now)
        self._filled[key] = (tokens - 1, now)
        return 0.0

    def _forget_full(self, now: float) -> None:
        full = [k for k, (tokens, since) in self._filled.items() if tokens + (now - since) * self.rate >= self.burst]
        for key in full:
            del self._filled[key]
        if not full:
            self._filled.clear()


def throttle(buckets: Buckets, key: int | str, sentence: str) -> None:
    """Take one token of the key. Raises Problem 429 with this sentence if none is available."""
    seconds = buckets.take(key, time.monotonic())
    if seconds:
        metrics.SHED.labels("rate").inc()
        raise Problem(429, "throttled", sentence, retry_after=math.ceil(seconds))
