"""Group commit: one thread and one database connection write what all calls bring; answers wait for their commit.

While one commit runs, the next batch gathers. A batch that fails is halved until the bad delivery stands alone; that
one is taken report by report, and the bad report is set aside.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec
import structlog
from django.db import InterfaceError, OperationalError, connections
from drydock_agent.wire import Order

from fleet.gateway import metrics
from fleet.gateway.clean import clean
from fleet.gateway.http import Problem, busy
from fleet.gateway.limits import GatewayLimits
from fleet.gateway.loops import Loop
from fleet.gateway.threads import with_connection
from fleet.operations import record
from fleet.operations.aside import is_away
from fleet.operations.intake.keep import Delivery, ParsedReport
from fleet.operations.orders import queue

log = structlog.get_logger(__name__)

NOT_STORED = "it cannot be stored"

# After a commit of so many deliveries, the next waits so long for company.
GATHERING = 16
GATHER_SECONDS = 0.004


@dataclass(slots=True)
class Written:
    """What became of one delivery: acknowledged up to, refused by the writer, orders waiting for the machine."""

    acknowledged: int
    refused: list[tuple[int, str]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)


@dataclass(slots=True)
class Pending:
    """A delivery, and the call that waits for it."""

    delivery: Delivery
    size: int
    weight: int
    since: float
    answer: asyncio.Future[Written]


REVOKED = "This machine was revoked: an admin has to readmit it."


class Committer:
    """The writer and its queue."""

    def __init__(self, limits: GatewayLimits, events: asyncio.AbstractEventLoop) -> None:
        self.limits = limits
        self.events = events
        self.loop = Loop("writer", self.write, pause=1.0)
        self._lock = threading.Lock()
        self._queue: deque[Pending] = deque()
        self._running: list[Pending] = []
        self._reports = 0
        self._bytes = 0

    async def commit(self, delivery: Delivery, size: int) -> Written:
        """Hand over and wait for the commit. Raises Problem 503 under pressure or when it cannot be written now."""
        weight = max(len(delivery.reports) + len(delivery.refused), 1)
        pending = Pending(delivery, size, weight, time.monotonic(), self.events.create_future())
        with self._lock:
            full = self._reports >= self.limits.queue_reports or self._bytes >= self.limits.queue_bytes
            if not full:
                self._queue.append(pending)
                self._reports += pending.weight
                self._bytes += size
        if full:
            metrics.SHED.labels("queue").inc()
            raise busy("Too many reports are waiting to be written: send this batch again in a moment.")
        self.loop.wake()
        return await pending.answer

    def send_away_late(self) -> None:
        """Answer calls that have waited too long, as when Postgres hangs. One round costs less than their timers."""
        with self._lock:
            before = time.monotonic() - self.limits.commit_wait
            late = [pending for pending in (*self._running, *self._queue) if pending.since < before]
        for pending in late:
            if not pending.answer.done():
                metrics.SHED.labels("slow").inc()
                pending.answer.set_exception(
                    busy("Writing takes too long right now: send this batch again in a moment.")
                )

    def write(self) -> None:
        """Commit batch after batch until the queue is empty."""
        while batch := self._take():
            self._commit(batch)
            # Under load, one larger commit costs less than two small ones: let those come that were just answered.
            if len(batch) >= GATHERING and len(self._queue) < len(batch):
                self.loop.sleep(GATHER_SECONDS)

    def _take(self) -> list[Pending]:
        """The oldest deliveries, up to a commit's size, one of each machine; nobody waits for those without a call."""
        batch: list[Pending] = []
        machines: set[int] = set()
        reports = size = 0
        with self._lock:
            later: list[Pending] = []
            while self._queue and reports < self.limits.commit_reports and size < self.limits.commit_bytes:
                pending = self._queue.popleft()
                if pending.answer.done():
                    self._forget(pending)
                elif pending.delivery.machine_id in machines:
                    later.append(pending)
                else:
                    machines.add(pending.delivery.machine_id)
                    batch.append(pending)
                    reports += pending.weight
                    size += pending.size
            self._queue.extendleft(reversed(later))
            batch.sort(key=lambda pending: pending.delivery.machine_id)
            self._running = batch
        return batch

    def _forget(self, pending: Pending) -> None:
        self._reports -= pending.weight
        self._bytes -= pending.size

    def _commit(self, batch: list[Pending]) -> None:
        began = time.monotonic()
        done: dict[int, Written | Problem] = {}
        otherwise = busy("The database cannot take reports right now: send this batch again in a moment.")
        try:
            self._record([pending.delivery for pending in batch], done)
            self._add_orders(done)
            self.loop.failing = False
        except (OperationalError, InterfaceError) as error:
            # Nothing is wrong with the reports: Postgres is away, or its disk is full. The agents keep them.
            connections.close_all()
            if not self.loop.failing:
                log.warning("writer.database", error=str(error).strip())
            self.loop.failing = True
            self.loop.sleep(0.2)
        finally:
            # Whatever happened, nobody waits for ever.
            with self._lock:
                self._running = []
                for pending in batch:
                    self._forget(pending)
            self.events.call_soon_threadsafe(_answer, batch, done, otherwise)
        metrics.COMMITS.observe(time.monotonic() - began)
        metrics.COMMIT_REPORTS.observe(sum(pending.weight for pending in batch))

    def _record(self, deliveries: list[Delivery], done: dict[int, Written | Problem], *, again: bool = True) -> None:
        """Record the deliveries in one transaction, else in halves. Raises what Postgres raises when it is away."""
        try:
            acknowledged = with_connection(lambda: record.record(deliveries=deliveries, now=datetime.now(UTC)))
        except Exception as error:
            # Whatever one report breaks, the others are not to suffer.
            if is_away(error):
                raise
            connections.close_all()
            if len(deliveries) > 1:
                middle = len(deliveries) // 2
                self._record(deliveries[:middle], done)
                self._record(deliveries[middle:], done)
            elif again:
                # It may only have met another process on its way.
                self._record(deliveries, done, again=False)
            elif len(deliveries[0].reports) > 1:
                self._record_one_by_one(deliveries[0], done)
            else:
                self._set_aside(deliveries[0], error, done)
            return
        for delivery in deliveries:
            # An earlier part of the same delivery may have refused a report already.
            key = (delivery.machine_id, delivery.spool)
            if key not in acknowledged:
                done[delivery.machine_id] = Problem(401, "not-authenticated", REVOKED)
                continue
            earlier = done.get(delivery.machine_id)
            refused = earlier.refused if isinstance(earlier, Written) else []
            done[delivery.machine_id] = Written(acknowledged[key], refused)

    def _record_one_by_one(self, delivery: Delivery, done: dict[int, Written | Problem]) -> None:
        refused = dict(delivery.refused)
        parts: list[tuple[int, ParsedReport | None]] = [(report.seq, report) for report in delivery.reports]
        parts += [(seq, None) for seq in refused]
        for seq, report in sorted(parts, key=lambda part: part[0]):
            reports, aside = ([report], []) if report is not None else ([], [(seq, refused[seq])])
            self._record([replace(delivery, reports=reports, refused=aside)], done)

    def _set_aside(self, delivery: Delivery, error: Exception, done: dict[int, Written | Problem]) -> None:
        """The bad report stands alone: keep of it what can be kept, and tell its agent."""
        said = (clean(str(error)).splitlines() or [type(error).__name__])[0]
        if not delivery.reports:
            log.error("writer.unwritable", machine=delivery.machine_id, error=said)
            done[delivery.machine_id] = Problem(500, "failed", "This batch cannot be written: see the backend's log.")
            return
        report = delivery.reports[0]
        if report.flag.startswith(NOT_STORED):
            # Not even as it came: the line on the timeline is what is left.
            self._record([replace(delivery, reports=[])], done)
            return
        reason = f"{NOT_STORED}: {said[:300]}"
        log.error("writer.set_aside", machine=delivery.machine_id, seq=report.seq, kind=report.kind, error=reason)
        kept = replace(report, data=msgspec.to_builtins(report.data), flag=reason)
        refused = [*delivery.refused, (report.seq, reason)]
        self._record([replace(delivery, reports=[kept], refused=refused)], done, again=False)
        written = done[delivery.machine_id]
        if isinstance(written, Written):
            written.refused.append((report.seq, reason))

    def _add_orders(self, done: dict[int, Written | Problem]) -> None:
        machines = sorted(machine_id for machine_id, written in done.items() if isinstance(written, Written))
        for machine_id, orders in queue.waiting_orders(machine_ids=machines).items():
            written = done.get(machine_id)
            if isinstance(written, Written):
                written.orders = [replace(order, via="report") for order in orders]


def _answer(batch: list[Pending], done: dict[int, Written | Problem], otherwise: Problem) -> None:
    for pending in batch:
        if pending.answer.done():
            continue
        outcome = done.get(pending.delivery.machine_id, otherwise)
        if isinstance(outcome, Written):
            pending.answer.set_result(outcome)
        else:
            pending.answer.set_exception(outcome)
