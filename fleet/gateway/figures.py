"""The numbers of the fleet for `/metrics`: counted when somebody asks, at most every few seconds, by a thread of its
own, so that a scrape is answered in time also while Postgres is away or hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fleet.domain.gauges import UP, Sample
from fleet.gateway.loops import Loop

Measure = Callable[[], Sequence[Sample]]

# How long numbers are good, and how long a scrape waits for new ones.
FRESH_SECONDS = 5.0
WAIT_SECONDS = 2.0
# Nobody asks: nothing is counted.
IDLE_SECONDS = 3600.0


class Figures:
    """`current` gives the numbers, or none when they cannot be had in time."""

    def __init__(self, measure: Measure, events: asyncio.AbstractEventLoop) -> None:
        self._measure = measure
        self._events = events
        self._counted = asyncio.Event()
        self._samples: Sequence[Sample] = ()
        self._at = float("-inf")
        self._wanted = False
        self.loop = Loop("figures", self.count, pause=IDLE_SECONDS)

    def count(self) -> None:
        """Count once if somebody has asked, in the thread of the loop."""
        if not self._wanted:
            return
        samples = self._measure()
        self._samples, self._at, self._wanted = samples, time.monotonic(), False
        self._events.call_soon_threadsafe(self._counted.set)

    async def current(self) -> Sequence[Sample] | None:
        """At most a few seconds old; None when the database does not answer in time."""
        if not self._fresh():
            self._counted.clear()
            self._wanted = True
            self.loop.wake()
            try:
                # Where the last count failed there is little hope: the answer comes sooner.
                async with asyncio.timeout(WAIT_SECONDS / 4 if self.loop.failing else WAIT_SECONDS):
                    await self._counted.wait()
            except TimeoutError:
                return None
        return self._samples if self._fresh() else None

    def _fresh(self) -> bool:
        return time.monotonic() - self._at < FRESH_SECONDS


class Collected(Collector):
    """Samples as Prometheus' own library writes them; `drydock_up` first."""

    def __init__(self, samples: Sequence[Sample] | None) -> None:
        self._samples = samples

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        up = GaugeMetricFamily(UP.name, UP.help)
        up.add_metric([], 0.0 if self._samples is None else 1.0)
        yield up
        for sample in self._samples or ():
            kind = CounterMetricFamily if sample.gauge.counter else GaugeMetricFamily
            family = kind(sample.gauge.name, sample.gauge.help, labels=sample.gauge.labels)
            for labels, value in sample.values.items():
                family.add_metric(list(labels), value)
            yield family
