"""Metrics for Prometheus: of the gateway process, of the fleet, and of Celery."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite

import redis
from django.conf import settings
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.domain import gauges
from fleet.domain.clock import at, seconds_since
from fleet.domain.gauges import BEAT, CELERY_HASH, COUNT, OUTCOMES, QUANTILE, SECONDS, UP, Sample
from fleet.gateway.threads import Loop
from fleet.operations import clock
from fleet.operations.wake_up import redis_client, takes_writes

# A scrape waits two seconds in all, and the fleet is counted in the same time.
ANSWER_SECONDS = 0.5
# A client that can write to Redis creates no more series than that.
MOST_FIELDS = 500

Labels = tuple[str, ...]


def measure() -> Sequence[Sample]:
    """Return Celery's gauges. `drydock_redis_up` is 0 if Redis accepts no writes; if Redis does not answer, it is the
    only gauge.
    """
    try:
        with redis_client(ANSWER_SECONDS) as client, client.pipeline(transaction=False) as pipe:
            pipe.hgetall(CELERY_HASH)
            pipe.llen(settings.CELERY_TASK_DEFAULT_QUEUE)
            left, waiting = pipe.execute()
        writes = takes_writes()
    except (redis.RedisError, OSError):
        return [Sample(gauges.REDIS_UP, {(): 0.0})]
    return [
        Sample(gauges.REDIS_UP, {(): float(writes)}),
        Sample(gauges.QUEUE, {(): float(waiting)}),
        *read(left, clock.now()),
    ]


def read(left: Mapping[bytes, bytes], now: datetime) -> Sequence[Sample]:
    """Return the samples that Celery's processes left in a Redis hash, as of `now`. Unknown fields are skipped."""
    counted: dict[Labels, float] = {}
    seconds: dict[Labels, float] = {}
    beat: dict[Labels, float] = {}
    for field, value in list(left.items())[:MOST_FIELDS]:
        try:
            what, *rest = field.decode("ascii").split(" ")
            number = float(value)
        except ValueError:
            continue
        if not isfinite(number) or number < 0:
            continue
        match what, rest:
            case str(kind), [outcome, task] if kind == COUNT and outcome in OUTCOMES:
                counted[task, outcome] = number
            case str(kind), [task] if kind == SECONDS:
                seconds[task,] = number
            case str(kind), [] if kind == BEAT:
                beat[()] = seconds_since(at(number), now=now)
    # Prometheus does not see the first increase of a counter that starts at 1, so each starts at 0.
    for task in {task for task, _ in counted}:
        counted = {(task, outcome): 0.0 for outcome in OUTCOMES} | counted
    return [Sample(gauges.TASKS, counted), Sample(gauges.TASK_SECONDS, seconds), Sample(gauges.BEAT_AGE, beat)]


# The numbers of the fleet for `/metrics`, counted on request, at most every few seconds. A separate thread counts, so
# that a scrape is answered in time even while Postgres is unavailable.

Measure = Callable[[], Sequence[Sample]]

# How long numbers are good, and how long a scrape waits for new ones.
FRESH_SECONDS = 5.0
WAIT_SECONDS = 2.0
# Without a request for this long, nothing is counted.
IDLE_SECONDS = 3600.0
# Gauges that need all machines are measured at most this often.
SLOW_SECONDS = 60.0


def at_most_every(seconds: float, measure: Measure) -> Measure:
    """Return a function that measures at most once in this many seconds, and otherwise returns the last samples."""
    last: tuple[float, Sequence[Sample]] = (float("-inf"), ())

    def measured() -> Sequence[Sample]:
        nonlocal last
        if time.monotonic() - last[0] >= seconds:
            last = (time.monotonic(), measure())
        return last[1]

    return measured


class Figures:
    """Fleet gauges for `/metrics`, measured on request in a separate thread. A scrape is answered in time even if
    Postgres hangs.
    """

    def __init__(self, measure: Measure, events: asyncio.AbstractEventLoop) -> None:
        self._measure = measure
        self._events = events
        self._counted = asyncio.Event()
        self._samples: Sequence[Sample] = ()
        self._at = float("-inf")
        self._wanted = False
        self.loop = Loop("figures", self.count, pause=IDLE_SECONDS)

    def count(self) -> None:
        """Measure once if a request is waiting. Called in the loop's thread."""
        if not self._wanted:
            return
        samples = self._measure()
        self._samples, self._at, self._wanted = samples, time.monotonic(), False
        self._events.call_soon_threadsafe(self._counted.set)

    async def current(self) -> Sequence[Sample] | None:
        """Return samples that are at most a few seconds old; None if the database does not answer in time."""
        if not self._fresh():
            self._counted.clear()
            self._wanted = True
            self.loop.wake()
            try:
                # If the last measurement failed, this one probably fails, too: wait for a shorter time.
                async with asyncio.timeout(WAIT_SECONDS / 4 if self.loop.failing else WAIT_SECONDS):
                    await self._counted.wait()
            except TimeoutError:
                return None
        return self._samples if self._fresh() else None

    def _fresh(self) -> bool:
        return time.monotonic() - self._at < FRESH_SECONDS


class Collected(Collector):
    """Collector that returns these samples to the Prometheus library, `drydock_up` first. It is 0 if `samples` is
    None.
    """

    def __init__(self, samples: Sequence[Sample] | None) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(UP.name, UP.help)
        up.add_metric([], 0.0 if self._samples is None else 1.0)
        yield up
        for sample in self._samples or ():
            kind = CounterMetricFamily if sample.gauge.counter else GaugeMetricFamily
            family = kind(sample.gauge.name, sample.gauge.help, labels=sample.gauge.labels)
            if QUANTILE in sample.gauge.labels:
                # Prometheus reserves this label for summaries.
                family.type = "summary"
            for labels, value in sample.values.items():
                family.add_metric(list(labels), value)
            yield family


# The counts of one process, for Prometheus. Numbers of the fleet come from the database when scraped.

BUILD = Gauge("drydock_build_info", "1, with the version of the process.", ["version"])
BUILD.labels(settings.VERSION).set(1)
REPORTS = Counter("drydock_reports", "Committed reports, including repeated ones.")
REFUSED = Counter("drydock_reports_refused", "Reports that were refused permanently.")
COMMITS = Histogram(
    "drydock_commit_seconds",
    "Duration of one group commit.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
)
COMMIT_REPORTS = Histogram(
    "drydock_commit_reports", "Reports in one group commit.", buckets=(1, 3, 10, 30, 100, 300, 1000, 3000)
)
SHED = Counter("drydock_shed", "Requests rejected under load, by reason.", ["why"])
# Prometheus does not see the first increase of a counter that starts at 1, so these start at 0.
for _why in ("queue", "slow", "pages"):
    SHED.labels(_why)
ENROLMENTS_REFUSED = Counter("drydock_enrolments_refused", "Refused enrolments by problem code.", ["code"])
for _code in ("attestation-refused", "join-token-refused", "admissions-full", "validation", "not-permitted"):
    ENROLMENTS_REFUSED.labels(_code)
DELIVERED = Counter("drydock_orders_handed_out", "Orders sent to machines, by delivery path.", ["via"])
HELD = Gauge("drydock_held_calls", "Open long polls for orders.")
STREAMS = Gauge("drydock_streams", "Open event streams of browsers.")
REQUESTS = Counter(
    "drydock_http_requests",
    "Requests by route, method and status class, such as `2xx`; `none` if the client disconnected first.",
    ["route", "method", "status"],
)
REQUEST_SECONDS = Histogram(
    "drydock_http_request_seconds",
    "Duration of a request including its response; long polls and streams take long.",
    ["route", "method"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
