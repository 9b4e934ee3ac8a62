"""Group commit: one thread and one database connection write what all calls bring; answers wait for their commit.

While one commit runs, the next batch gathers. A batch that fails is halved until the bad delivery stands alone; that
one waits behind all others, and is taken report by report within a budget of time; the bad report is set aside. Until
its machine has brought something good, what it brings waits there, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain

import msgspec
import structlog
from django.db import InterfaceError, OperationalError, connections
from drydock_agent import wire
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
from fleet.operations.intake.spools import Taken
from fleet.operations.orders import queue

log = structlog.get_logger(__name__)

NOT_STORED = "it cannot be stored"

# After a commit of so many deliveries, the next waits so long for company.
GATHERING = 16
GATHER_SECONDS = 0.004


# A machine whose reports fail is given so much time at once, and after it the others so much.
SALVAGE_SECONDS = 0.3
SALVAGE_PAUSE = 1.5


class Lane(StrEnum):
    """In which order deliveries are written; under pressure the last ones are refused first."""

    RECEIPTS = "receipts"
    STARTED = "started"
    DOCUMENTS = "documents"
    CATCHING_UP = "catching-up"
    TROUBLED = "troubled"


# The part of the queue up to which a lane is let in.
SHARES = {Lane.RECEIPTS: 1.0, Lane.STARTED: 0.9, Lane.DOCUMENTS: 0.8, Lane.CATCHING_UP: 0.5, Lane.TROUBLED: 0.25}
# What is older than that when it comes is history.
HISTORY = timedelta(seconds=60)


def lane_of(delivery: Delivery, now: datetime) -> Lane:
    """Where a delivery queues, by the most urgent thing that it brings."""
    data = [report.data for report in delivery.reports]
    if any(isinstance(one, wire.ReceiptData) for one in data):
        return Lane.RECEIPTS
    if delivery.reports and delivery.reports[-1].at < now - HISTORY:
        return Lane.CATCHING_UP
    if any(isinstance(one, wire.DocumentData) and "started" in one.body.lower() for one in data):
        return Lane.STARTED
    return Lane.DOCUMENTS


@dataclass(slots=True)
class Written:
    """What became of one delivery: acknowledged up to, now and before; refused by the writer; orders waiting for the
    machine; documents that it is to send.
    """

    acknowledged: int
    refused: list[tuple[int, str]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    before: int | None = None
    wanted: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, taken: Taken, earlier: Written | None) -> Written:
        """By what was committed, after an earlier part of the same delivery."""
        acknowledged = wire.BEGIN_ANEW if taken.begin_anew else taken.acknowledged
        if earlier is None or earlier.before is None:
            return cls(acknowledged, before=taken.before, wanted=taken.wanted)
        wanted = [*earlier.wanted, *taken.wanted]
        return cls(max(acknowledged, earlier.acknowledged), earlier.refused, before=earlier.before, wanted=wanted)


@dataclass(slots=True)
class Pending:
    """A delivery, and the call that waits for it."""

    delivery: Delivery
    size: int
    weight: int
    since: float
    answer: asyncio.Future[Written]


REVOKED = "This machine was revoked: an admin has to admit it."


class Committer:
    """The writer and its queue."""

    def __init__(self, limits: GatewayLimits, events: asyncio.AbstractEventLoop) -> None:
        self.limits = limits
        self.events = events
        self.loop = Loop("writer", self.write, pause=1.0)
        self._lock = threading.Lock()
        self._lanes: dict[Lane, deque[Pending]] = {lane: deque() for lane in Lane}
        # Machines (row ids) whose reports failed.
        self._troubled: set[int] = set()
        self._salvaged = 0.0
        # Of the commit that runs: until when it may salvage, and whose deliveries have to wait behind the others.
        self._until: float | None = None
        self._behind: set[int] = set()
        self._running: list[Pending] = []
        self._reports = 0
        self._bytes = 0

    async def commit(self, delivery: Delivery, size: int) -> Written:
        """Hand over and wait for the commit. Raises Problem 503 under pressure or when it cannot be written now."""
        weight = max(len(delivery.reports) + len(delivery.refused), 1)
        pending = Pending(delivery, size, weight, time.monotonic(), self.events.create_future())
        lane = lane_of(delivery, datetime.now(UTC))
        with self._lock:
            lane = Lane.TROUBLED if delivery.machine_id in self._troubled else lane
            part = SHARES[lane]
            full = self._reports >= self.limits.queue_reports * part or self._bytes >= self.limits.queue_bytes * part
            if not full:
                self._lanes[lane].append(pending)
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
            late = [pending for pending in (*self._running, *chain(*self._lanes.values())) if pending.since < before]
        for pending in late:
            if not pending.answer.done():
                metrics.SHED.labels("slow").inc()
                pending.answer.set_exception(
                    busy("Writing takes too long right now: send this batch again in a moment.")
                )

    def write(self) -> None:
        """Commit batch after batch until the queue is empty."""
        while True:
            batch = self._take()
            if batch:
                self._commit(batch)
            # Nobody waits for ever, and whoever brings trouble takes a small part of the time.
            if not batch or time.monotonic() - self._salvaged > SALVAGE_PAUSE:
                behind = self._take_troubled()
                if behind:
                    self._commit(behind, salvage=True)
                    self._salvaged = time.monotonic()
                elif not batch:
                    return
            # Under load, one larger commit costs less than two small ones: let those come that were just answered.
            if len(batch) >= GATHERING and self._waiting() < len(batch):
                self.loop.sleep(GATHER_SECONDS)

    def _waiting(self) -> int:
        return sum(len(queue) for lane, queue in self._lanes.items() if lane is not Lane.TROUBLED)

    def _take(self) -> list[Pending]:
        """The oldest deliveries, up to a commit's size, one of each machine; nobody waits for those without a call."""
        batch: list[Pending] = []
        machines: set[int] = set()
        reports = size = 0
        with self._lock:
            for lane, queue in self._lanes.items():
                if lane is Lane.TROUBLED:
                    break
                later: list[Pending] = []
                while queue and reports < self.limits.commit_reports and size < self.limits.commit_bytes:
                    pending = queue.popleft()
                    if pending.answer.done():
                        self._forget(pending)
                    elif pending.delivery.machine_id in machines:
                        later.append(pending)
                    else:
                        machines.add(pending.delivery.machine_id)
                        batch.append(pending)
                        reports += pending.weight
                        size += pending.size
                queue.extendleft(reversed(later))
            batch.sort(key=lambda pending: pending.delivery.machine_id)
            self._running = batch
        return batch

    def _take_troubled(self) -> list[Pending]:
        """The oldest delivery of a machine whose reports failed."""
        with self._lock:
            queue = self._lanes[Lane.TROUBLED]
            while queue:
                pending = queue.popleft()
                if not pending.answer.done():
                    self._running = [pending]
                    return [pending]
                self._forget(pending)
        return []

    def _forget(self, pending: Pending) -> None:
        self._reports -= pending.weight
        self._bytes -= pending.size

    def _commit(self, batch: list[Pending], *, salvage: bool = False) -> None:
        began = time.monotonic()
        self._until = began + SALVAGE_SECONDS if salvage else None
        self._behind = set()
        done: dict[int, Written | Problem] = {}
        otherwise = busy("The database cannot take reports right now: send this batch again in a moment.")
        try:
            self._record([pending.delivery for pending in batch], done)
            if salvage:
                good = [machine_id for machine_id, one in done.items() if isinstance(one, Written) and not one.refused]
                self._troubled.difference_update(good)
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
                behind = [pending for pending in batch if pending.delivery.machine_id in self._behind]
                self._lanes[Lane.TROUBLED].extend(behind)
                answered = [pending for pending in batch if pending.delivery.machine_id not in self._behind]
                for pending in answered:
                    self._forget(pending)
            self.events.call_soon_threadsafe(_answer, answered, done, otherwise)
        metrics.COMMITS.observe(time.monotonic() - began)
        metrics.COMMIT_REPORTS.observe(sum(pending.weight for pending in batch))

    def _record(self, deliveries: list[Delivery], done: dict[int, Written | Problem], *, again: bool = True) -> None:
        """Record the deliveries in one transaction, else in halves. Raises what Postgres raises when it is away."""
        try:
            taken = with_connection(lambda: record.record(deliveries=deliveries, now=datetime.now(UTC)))
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
            elif self._until is None:
                self._troubled.add(deliveries[0].machine_id)
                self._behind.add(deliveries[0].machine_id)
            elif len(deliveries[0].reports) > 1:
                self._record_one_by_one(deliveries[0], done)
            else:
                self._set_aside(deliveries[0], error, done)
            return
        for delivery in deliveries:
            # An earlier part of the same delivery may have refused a report already.
            if delivery.key not in taken:
                done[delivery.machine_id] = Problem(401, "not-authenticated", REVOKED)
                continue
            earlier = done.get(delivery.machine_id)
            earlier = earlier if isinstance(earlier, Written) else None
            done[delivery.machine_id] = Written.of(taken[delivery.key], earlier)

    def _record_one_by_one(self, delivery: Delivery, done: dict[int, Written | Problem]) -> None:
        refused = dict(delivery.refused)
        parts: list[tuple[int, ParsedReport | None]] = [(report.seq, report) for report in delivery.reports]
        parts += [(seq, None) for seq in refused]
        for seq, report in sorted(parts, key=lambda part: part[0]):
            if self._until is not None and time.monotonic() > self._until and delivery.machine_id in done:
                # What was done so far is acknowledged; the rest comes again.
                return
            reports, aside = ([report], []) if report is not None else ([], [(seq, refused[seq])])
            self._record([replace(delivery, reports=reports, refused=aside)], done, again=False)

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
