"""Limits of one process that no setting changes, with their reasons, and a limit for the rate of calls."""

import math
import time

from fleet.gateway import metrics
from fleet.gateway.http import Problem

# Duration of long polls in seconds, and of those in sets with open events. At most so many of the latter are renewed
# each second.
HOLD_SECONDS = 40.0
CLOSE_HOLD_SECONDS = 2.0
CLOSE_RENEWALS = 250
# A long poll takes at most this part of the time after which a machine is no longer live: the rest is for the network,
# and for writing.
HOLD_SHARE = 2 / 3
# Held calls of one machine: one, and those whose end was not noticed yet.
HELD_PER_MACHINE = 4
# Bytes that may wait for the writer: memory, and an answer within a few seconds.
QUEUE_BYTES = 128 * 1024 * 1024
# Limits of one commit, so high that the disk is no bottleneck. Under load a commit takes about a second.
COMMIT_REPORTS = 2_500
COMMIT_BYTES = 8 * 1024 * 1024
# How long a report waits for its commit before its agent has to send it again.
COMMIT_WAIT_SECONDS = 30.0
STREAMS = 2_000
# Entries that a slow browser may be behind before its stream ends; it resumes where it was.
STREAM_QUEUE = 500
# Threads for the few questions that need the database before an answer, and how many may wait for one.
THREADS = 4
THREAD_QUEUE = 5_000
# Requests to Django's pages, in its threads and waiting for them.
DJANGO_THREADS = 8
DJANGO_QUEUE = 200


# Keys of one kind of calls: more than the machines that one process serves.
MOST_KEYS = 200_000


class Buckets:
    """Token bucket for each key: `per_minute` calls on average, and up to `burst` at once."""

    def __init__(self, per_minute: int, *, burst: int | None = None) -> None:
        self.rate = per_minute / 60
        self.burst = float(burst if burst is not None else max(per_minute // 4, 1))
        self._filled: dict[int | str, tuple[float, float]] = {}

    def take(self, key: int | str, now: float) -> float:
        """Take one token. Return 0.0 if one was available, else the seconds until the next one. `now` is a time of the
        monotonic clock.
        """
        tokens, since = self._filled.get(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate)
        if tokens < 1:
            return (1 - tokens) / self.rate
        if len(self._filled) >= MOST_KEYS and key not in self._filled:
            full = {k for k, (free, then) in self._filled.items() if free + (now - then) * self.rate >= self.burst}
            # Those that are full count as unknown ones; if none is, all begin again.
            self._filled = {k: one for k, one in self._filled.items() if full and k not in full}
        self._filled[key] = (tokens - 1, now)
        return 0.0


def throttle(buckets: Buckets, key: int | str, sentence: str) -> None:
    """Take one token of the key. Raises Problem 429 with this sentence if none is available."""
    if seconds := buckets.take(key, time.monotonic()):
        raise throttled(sentence, seconds)


def throttled(sentence: str, seconds: float) -> Problem:
    """Count a call beyond a limit, and return Problem 429."""
    metrics.SHED.labels("rate").inc()
    return Problem(429, "throttled", sentence, retry_after=math.ceil(seconds))
