"""Group commit: one thread with one database connection writes all deliveries; each call is answered after its commit.

While a commit runs, the next batch collects. A batch that fails is split in halves until the bad delivery is found.
That delivery is written after all others, one report at a time within a time limit, and the bad report is quarantined.
Further deliveries of its machine also wait until the machine has sent a good report.
"""

import asyncio
import time
from dataclasses import replace

import msgspec
import structlog
from django.db import InterfaceError, OperationalError, connections

from fleet.domain.db_timeouts import LOCKED, is_timeout
from fleet.domain.texts import storable
from fleet.gateway import limits, metrics
from fleet.gateway.http import Problem, busy
from fleet.gateway.threads import Loop, with_connection
from fleet.gateway.write_queue import COSTLY, ONE_REPORT, Lane, Lanes, Pending, Written, parts_of
from fleet.operations import clock
from fleet.operations import reports as reporting
from fleet.operations.intake.keep import Delivery
from fleet.operations.orders import queue
from fleet.operations.quarantine import is_quarantined
from fleet.wording.problems import database_waits

log = structlog.get_logger(__name__)

NOT_STORED = "it cannot be stored"

# After a commit of this many deliveries, the next one gathers for this long.
GATHERING = 16
GATHER_SECONDS = 0.004
# When many machines report the same events at once, each event is computed once for each commit. A commit that took at
# least this long is therefore followed by a pause of the same length, up to the second limit.
SLOW_SECONDS = 0.1
GATHER_SLOW_SECONDS = 0.25
# Urgent deliveries wait for the running commit and for their own. So a commit takes as many reports as the last one
# would have written in this time, but at least this many. With longer commits, an order would seem unanswered, and
# would be sent to another machine.
COMMIT_SECONDS = 1.0
LEAST_REPORTS = 100

# A machine whose reports fail gets this much time, then the other machines get this much.
SALVAGE_SECONDS = 0.3
SALVAGE_PAUSE = 1.5
# Costly deliveries are written for this long; then the others get this multiple of that time, up to this long.
COSTLY_SECONDS = 0.05
COSTLY_PAUSES = 4.0
COSTLY_LONGEST_PAUSE = 2.0
# How long the deliveries that locks delay are searched for.
SPLIT_SECONDS = 1.0

REVOKED = "This machine was revoked: an admin has to admit it."


def pause_after(deliveries: int, waiting: int, *, took: float) -> float:
    """Return how many seconds to collect deliveries before the next commit, from the size and duration (`took`,
    seconds) of the last one.

    Zero if few deliveries arrived, or if as many are waiting already.
    """
    if deliveries < GATHERING or waiting >= deliveries:
        return 0.0
    return GATHER_SECONDS if took < SLOW_SECONDS else min(took, GATHER_SLOW_SECONDS)


def most_after(reports: int, *, took: float, limit: int) -> int:
    """Return the maximum number of reports for the next commit, from the size and duration (`took`, seconds) of the
    last one.
    """
    return min(limit, max(LEAST_REPORTS, round(reports / max(took, 0.001) * COMMIT_SECONDS)))


class Committer:
    """Writer thread of all deliveries, with its queue."""

    def __init__(self, events: asyncio.AbstractEventLoop) -> None:
        self.events = events
        self.lanes = Lanes()
        self.loop = Loop("writer", self.write, pause=1.0, role="writer")
        self._salvaged = 0.0
        self._most = LEAST_REPORTS
        self._costly_at = self._wakes_at = 0.0
        # Of the commit that runs: since when, its results by machine (row id), whether it may salvage, and whose
        # deliveries go behind the others.
        self._began = 0.0
        self._done: dict[int, Written | Problem] = {}
        self._salvages = False
        self._behind: set[int] = set()

    async def commit(self, delivery: Delivery, size: int, set_id: int | None = None) -> Written:
        """Queue the delivery and return its result after the commit. `size` is in bytes; `set_id` is the row id of the
        machine's set, if known. Raises Problem 503 if the queue is full or the delivery cannot be written now.
        """
        weight = max(len(delivery.reports) + len(delivery.refused), 1)
        pending = Pending(delivery, size, weight, time.monotonic(), self.events.create_future(), set_id)
        if not self.lanes.put(pending, clock.now()):
            metrics.SHED.labels("queue").inc()
            raise busy("Too many reports are waiting to be written: send this batch again in a moment.")
        self.loop.wake()
        return await pending.answer

    def send_away_late(self) -> None:
        """Answer 503 to calls whose delivery has waited too long, for example while Postgres hangs. One check of all
        calls costs less than a timer for each.
        """
        for pending in self.lanes.since(time.monotonic() - limits.COMMIT_WAIT_SECONDS):
            if not pending.answer.done():
                metrics.SHED.labels("slow").inc()
                pending.answer.set_exception(
                    busy("Writing takes too long right now: send this batch again in a moment.")
                )

    def write(self) -> None:
        """Commit batches until the queue is empty."""
        while True:
            batch = self.lanes.take(self._most)
            if batch:
                self._commit(batch)
            wrote = bool(batch)
            # No delivery waits for ever, and failing machines use a small part of the time.
            alone = not batch and not self.lanes.waits_apart(Lane.COSTLY)
            if alone or time.monotonic() - self._salvaged > SALVAGE_PAUSE:
                behind = self.lanes.take_one(Lane.TROUBLED)
                if behind:
                    self._commit(behind, salvage=True)
                    self._salvaged = time.monotonic()
                    wrote = True
            wrote = self._write_costly() or wrote
            if not wrote:
                return
            # Under load, one larger commit costs less than two small ones: wait for reports of the answered agents.
            if pause := pause_after(len(batch), self.lanes.waiting(), took=time.monotonic() - self._began):
                self.loop.sleep(pause)

    def _write_costly(self) -> bool:
        """Write a part of a costly delivery if it is due, and return whether anything was written. Costly deliveries
        get only a small share of the time, even if no other delivery waits, because another one may arrive at any
        moment.
        """
        began = time.monotonic()
        if not self.lanes.waits_apart(Lane.COSTLY):
            return False
        if began < self._costly_at:
            self._wake_at(self._costly_at)
            return False
        if found := self.lanes.take_one(Lane.COSTLY):
            self._commit(found, in_parts=True)
        took = time.monotonic() - began
        self._costly_at = began + took + min(took * COSTLY_PAUSES, COSTLY_LONGEST_PAUSE)
        return bool(found)

    def _wake_at(self, at: float) -> None:
        """Wake the writer at this time of the monotonic clock, with one timer for each time."""
        if self._wakes_at != at:
            self._wakes_at = at
            delay = max(0.0, at - time.monotonic())
            self.events.call_soon_threadsafe(self.events.call_later, delay, self.loop.wake)

    def _commit(self, batch: list[Pending], *, salvage: bool = False, in_parts: bool = False) -> None:
        self._began, self._done, self._salvages, self._behind = time.monotonic(), {}, salvage, set()
        otherwise = busy("The database cannot take reports right now: send this batch again in a moment.")
        try:
            if in_parts:
                self._record_in_parts(batch[0].delivery)
            else:
                self._record([pending.delivery for pending in batch], careful=salvage)
            if salvage:
                done = self._done.items()
                self.lanes.trust([pk for pk, one in done if isinstance(one, Written) and not one.refused])
            self._add_orders()
            self.loop.failing = False
        except (OperationalError, InterfaceError) as error:
            # The reports are not at fault: Postgres is unavailable, or its disk is full. The agents keep them.
            connections.close_all()
            if not self.loop.failing:
                log.warning("writer.database", error=str(error).strip())
            self.loop.failing = True
            self.loop.sleep(0.2)
        finally:
            # Answer the calls after any error, so that none waits for ever.
            answered = self.lanes.done(batch, behind=self._behind)
            self.events.call_soon_threadsafe(_answer, answered, self._done, otherwise)
        took, reports = time.monotonic() - self._began, sum(pending.weight for pending in batch)
        if self.loop.failing:
            # Nothing was written, so the speed is unknown.
            self._most = LEAST_REPORTS
        elif not salvage and not in_parts:
            self._most = most_after(reports, took=took, limit=limits.COMMIT_REPORTS)
        metrics.COMMITS.observe(took)
        metrics.COMMIT_REPORTS.observe(reports)

    def _record(self, deliveries: list[Delivery], *, again: bool = True, careful: bool = False) -> bool:
        """Record the deliveries in one transaction; if that fails, in two halves. Return whether all of them were
        handled, so that none must be sent again. Raises database errors if
        Postgres is unavailable.
        """
        now = clock.now()
        try:
            taken = with_connection(lambda: reporting.record(deliveries=deliveries, now=now, careful=careful))
        except Exception as error:
            # An error caused by one report must not affect the others.
            if is_quarantined(error):
                raise
            if is_timeout(error):
                return self._wait(deliveries)
            connections.close_all()
            if len(deliveries) > 1:
                return self._record_halves(deliveries, careful=careful)
            if again:
                # The cause may only have been a conflict with another process.
                return self._record(deliveries, again=False, careful=careful)
            if not self._salvages:
                self.lanes.trouble(deliveries[0].machine_id)
                self._behind.add(deliveries[0].machine_id)
                return False
            if len(deliveries[0].reports) > 1:
                return self._record_in_parts(deliveries[0])
            return self._quarantine(deliveries[0], error)
        for delivery in deliveries:
            # An earlier part of the same delivery may have refused a report already.
            if delivery.key not in taken:
                self._done[delivery.machine_id] = Problem(401, "not-authenticated", REVOKED)
                continue
            earlier = self._done.get(delivery.machine_id)
            earlier = earlier if isinstance(earlier, Written) else None
            self._done[delivery.machine_id] = Written.of(taken[delivery.key], earlier)
        return True

    def _record_halves(self, deliveries: list[Delivery], *, careful: bool) -> bool:
        middle = len(deliveries) // 2
        first = self._record(deliveries[:middle], careful=careful)
        return self._record(deliveries[middle:], careful=careful) and first

    def _record_in_parts(self, delivery: Delivery) -> bool:
        """Record a costly delivery in parts, or report by report to find a bad one, until the time limit. Return
        whether all of them were handled. Written parts are acknowledged; the agent sends the rest again.
        """
        most, seconds = (ONE_REPORT, SALVAGE_SECONDS) if self._salvages else (COSTLY, COSTLY_SECONDS)
        for part in parts_of(delivery, most):
            if time.monotonic() > self._began + seconds and delivery.machine_id in self._done:
                return False
            if not self._record([part], again=not self._salvages, careful=self._salvages):
                return False
        return True

    def _wait(self, deliveries: list[Delivery]) -> bool:
        """Handle a lock timeout: record the deliveries in halves, so that only the one whose rows are locked must be
        sent again. If there is no time to find it, all agents send theirs again. Return whether none must be sent
        again.
        """
        if len(deliveries) > 1 and time.monotonic() < self._began + SPLIT_SECONDS:
            return self._record_halves(deliveries, careful=True)
        for delivery in deliveries:
            if len(deliveries) == 1:
                self.lanes.trouble(delivery.machine_id)
            # The recorded part is acknowledged.
            if not isinstance(self._done.get(delivery.machine_id), Written):
                self._done[delivery.machine_id] = busy(f"{database_waits(LOCKED)} Send this batch again in a moment.")
        return False

    def _quarantine(self, delivery: Delivery, error: Exception) -> bool:
        """Quarantine the bad report of a delivery that contains no other report: store what can be stored, and refuse
        it in the answer to its agent.
        """
        said = (storable(str(error)).splitlines() or [type(error).__name__])[0]
        if not delivery.reports:
            log.error("writer.unwritable", machine=delivery.machine_id, error=said)
            self._done[delivery.machine_id] = Problem(
                500, "failed", "This batch cannot be written: see the backend's log."
            )
            return True
        report = delivery.reports[0]
        if report.flag.startswith(NOT_STORED):
            # It cannot be stored even as received: only the timeline entry remains.
            return self._record([replace(delivery, reports=[])])
        reason = f"{NOT_STORED}: {said[:300]}"
        log.error("writer.quarantined", machine=delivery.machine_id, seq=report.seq, kind=report.kind, error=reason)
        quarantined = replace(report, data=msgspec.to_builtins(report.data), flag=reason)
        refused = [*delivery.refused, (report.seq, reason)]
        if not self._record([replace(delivery, reports=[quarantined], refused=refused)], again=False):
            return False
        written = self._done[delivery.machine_id]
        if isinstance(written, Written):
            written.refused.append((report.seq, reason))
        return True

    def _add_orders(self) -> None:
        # A process with a wrong clock stores reports, and sends nothing.
        if not clock.is_clock_correct():
            return
        answered = {machine_id for machine_id, written in self._done.items() if isinstance(written, Written)}
        # Usually there are no orders, and querying which machines have any costs a hundredth of querying the orders.
        machines = answered & queue.waited_for() if answered else answered
        for machine_id, orders in queue.waiting_orders(machine_ids=sorted(machines)).items() if machines else ():
            written = self._done.get(machine_id)
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
