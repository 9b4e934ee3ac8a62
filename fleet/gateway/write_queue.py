"""Queue of reports until they are written: their order, limits and cost.

Cost is counted in units, not measured in seconds, so that a slow database does not make a machine look costly.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain, islice

from django.conf import settings
from drydock_agent import wire
from drydock_agent.wire import Order

from fleet.gateway import limits
from fleet.operations.intake.keep import Delivery, ParsedReport
from fleet.operations.intake.spools import Taken

# Deliveries with a higher cost are written separately, after the others and in parts of this cost. The first reports of
# a starting agent cost less.
COSTLY = 30
# With this limit each part holds one report, whatever it costs.
ONE_REPORT = -1
# Deliveries of a machine that costs more than this each second are costly, even if each of them is cheap.
UNITS_A_SECOND, AT_ONCE = 20.0, 90.0
REMEMBERED = 10_000
# A statement about itself may move a machine; a reminder may point to a body of a mebibyte; each event is computed.
STATEMENT, REMINDER, OF_CACHE, OTHER = 10, 5, 2, 1
EVENT = '"EventId"'


def cost_of(report: ParsedReport) -> int:
    """Return the cost of one report in units; 0 for a document without events, which is the usual case."""
    match report.data:
        case wire.DocumentData(body=body, encoding=encoding):
            # Base64 is a body that was no text: it is read anyway, and its events are not known yet.
            return body.count(EVENT) if encoding != "base64" else len(body) // 100
        case wire.InstanceData():
            return STATEMENT
        case wire.ReminderData():
            return REMINDER
        case wire.RedisData() | wire.CoverageData() | wire.RedisHookData():
            return OF_CACHE
        case _:
            return OTHER


def parts_of(delivery: Delivery, most: int) -> Iterator[Delivery]:
    """Yield the delivery in parts that cost at most `most`, in the order of the report numbers."""
    refused = dict(delivery.refused)
    numbered: list[tuple[int, ParsedReport | None]] = [(report.seq, report) for report in delivery.reports]
    numbered += [(seq, None) for seq in refused]
    numbered.sort(key=lambda one: one[0])
    first, spent = 0, 0
    for place, (_, report) in enumerate(numbered):
        cost = cost_of(report) if report is not None else OTHER
        if place > first and spent + cost > most:
            yield _part(delivery, numbered[first:place], refused)
            first, spent = place, 0
        spent += cost
    yield _part(delivery, numbered[first:], refused)


def _part(delivery: Delivery, numbered: Sequence[tuple[int, ParsedReport | None]], refused: dict[int, str]) -> Delivery:
    reports = [report for _, report in numbered if report is not None]
    return replace(delivery, reports=reports, refused=[(seq, refused[seq]) for seq, one in numbered if one is None])


class Spending:
    """Recent cost of each machine (by row id), counted with a token bucket for each."""

    def __init__(self) -> None:
        self._spent: dict[int, tuple[float, float]] = {}

    def is_costly(self, delivery: Delivery) -> bool:
        """Add the delivery's cost to that of its machine, and return whether the delivery must be written
        separately.
        """
        # A reminder of one body is read once.
        reminders = {report.data.hash for report in delivery.reports if isinstance(report.data, wire.ReminderData)}
        known = [report for report in delivery.reports if not isinstance(report.data, wire.ReminderData)]
        total = sum(map(cost_of, known)) + REMINDER * len(reminders)
        if not total:
            return False
        now = time.monotonic()
        spent, since = self._spent.get(delivery.machine_id, (0.0, now))
        spent = min(max(0.0, spent - (now - since) * UNITS_A_SECOND) + total, 2 * AT_ONCE)
        if len(self._spent) >= REMEMBERED:
            self._spent = {
                key: (cost, then) for key, (cost, then) in self._spent.items() if cost > (now - then) * UNITS_A_SECOND
            }
        self._spent[delivery.machine_id] = (spent, now)
        return total > COSTLY or spent > AT_ONCE


# Where deliveries queue until they are written: in which order, and which are refused first under pressure.


class Lane(StrEnum):
    """Priority of a delivery, highest first. Under load the lowest priorities are refused first."""

    RECEIPTS = "receipts"
    STARTED = "started"
    NEWS = "news"
    DOCUMENTS = "documents"
    CATCHING_UP = "catching-up"
    COSTLY = "costly"
    TROUBLED = "troubled"


# The part of the queue up to which a lane may fill it.
SHARES = {
    Lane.RECEIPTS: 1.0,
    Lane.STARTED: 0.9,
    Lane.NEWS: 0.85,
    Lane.DOCUMENTS: 0.8,
    Lane.CATCHING_UP: 0.5,
    Lane.COSTLY: 0.4,
    Lane.TROUBLED: 0.25,
}
# Lanes that are written separately: after the others, and not in their commits.
APART = (Lane.COSTLY, Lane.TROUBLED)
# A delivery older than that is history.
HISTORY = timedelta(seconds=60)
# EventIds as documents spell them. The most recent ones are remembered, up to the first limit. One delivery adds up to
# `MOST_NAMED`, from the first `LOOKED_AT` characters of each document. This runs on the event loop, and a document may
# be as long as 4 MiB.
EVENT_ID = re.compile(r'"EventId"\s*:\s*"([^"\\]{1,64})"')
LANE_REMEMBERED = 20_000
MOST_NAMED = 20
LOOKED_AT = 65_536


def lane_of(delivery: Delivery, now: datetime) -> Lane:
    """Return the priority of a delivery, from its most urgent report."""
    data = [report.data for report in delivery.reports]
    if any(isinstance(one, wire.ReceiptData) for one in data):
        return Lane.RECEIPTS
    if delivery.reports and delivery.reports[-1].at < now - HISTORY:
        return Lane.CATCHING_UP
    if any(isinstance(one, wire.DocumentData) and "started" in one.body.lower() for one in data):
        return Lane.STARTED
    return Lane.DOCUMENTS


def events_in(delivery: Delivery) -> list[str]:
    """Return the first EventIds in the documents of a delivery. They are found by text search, without parsing the
    documents.
    """
    bodies = [report.data.body for report in delivery.reports if isinstance(report.data, wire.DocumentData)]
    found = chain.from_iterable(EVENT_ID.finditer(body, 0, LOOKED_AT) for body in bodies)
    return [one[1] for one in islice(found, MOST_NAMED)]


@dataclass(slots=True)
class Written:
    """Result of one delivery: the acknowledged position after and `before` it, reports that the writer refused, orders
    that wait for the machine, and hashes of documents to send (`wanted`).
    """

    acknowledged: int
    refused: list[tuple[int, str]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    before: int | None = None
    wanted: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, taken: Taken, earlier: Written | None) -> Written:
        """Return the result of a commit, combined with that of an earlier part of the same delivery."""
        acknowledged = wire.RENUMBER_SPOOL if taken.renumber_spool else taken.acknowledged
        if earlier is None or earlier.before is None:
            return cls(acknowledged, before=taken.before, wanted=taken.wanted)
        wanted = [*earlier.wanted, *taken.wanted]
        return cls(max(acknowledged, earlier.acknowledged), earlier.refused, before=earlier.before, wanted=wanted)


@dataclass(slots=True)
class Pending:
    """A queued delivery and the future of the call that waits for it. `size` is in bytes, `weight` in reports. `set_id`
    is the row id of the machine's set; None if this process does not know it.
    """

    delivery: Delivery
    size: int
    weight: int
    since: float
    answer: asyncio.Future[Written]
    set_id: int | None = None


class LaneQueue:
    """Queue of one priority, with the deliveries of each set together."""

    def __init__(self) -> None:
        self.count = 0
        # By (set, 0), or by (None, machine) if the set is unknown. The first entry is processed next.
        self._sets: OrderedDict[tuple[int | None, int], deque[Pending]] = OrderedDict()

    def append(self, pending: Pending) -> None:
        key = (pending.set_id, 0 if pending.set_id is not None else pending.delivery.machine_id)
        self._sets.setdefault(key, deque()).append(pending)
        self.count += 1

    def turns(self, *, until: Callable[[], bool]) -> Iterator[deque[Pending]]:
        """Yield the deliveries of each set once, until `until()` is true; the caller takes deliveries from the left. A
        set with remaining deliveries moves to the end, so that a large set does not delay small ones.
        """
        for key, part in list(self._sets.items()):
            if until():
                return
            before = len(part)
            yield part
            self.count -= before - len(part)
            if not part:
                del self._sets[key]
            elif len(part) < before:
                self._sets.move_to_end(key)

    def __iter__(self) -> Iterator[Pending]:
        return chain.from_iterable(self._sets.values())


class Lanes:
    """Queue of deliveries by priority. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes = {lane: LaneQueue() for lane in Lane}
        # Machines (row ids) whose reports failed.
        self._troubled: set[int] = set()
        # EventIds that were already reported: a report of a new one is taken before repetitions.
        self._told: OrderedDict[str, None] = OrderedDict()
        self._spending = Spending()
        self._running: list[Pending] = []
        self._reports = 0
        self._bytes = 0

    def put(self, pending: Pending, now: datetime) -> bool:
        """Queue a delivery. Return False if there is no space for its priority."""
        lane, named = lane_of(pending.delivery, now), events_in(pending.delivery)
        with self._lock:
            if self._spending.is_costly(pending.delivery):
                lane = Lane.COSTLY
            if lane is Lane.DOCUMENTS and not all(event_id in self._told for event_id in named):
                lane = Lane.NEWS
            lane = Lane.TROUBLED if pending.delivery.machine_id in self._troubled else lane
            part = SHARES[lane]
            if self._reports >= settings.INGEST_QUEUE_REPORTS * part or self._bytes >= limits.QUEUE_BYTES * part:
                return False
            self._lanes[lane].append(pending)
            self._reports += pending.weight
            self._bytes += pending.size
            if lane not in (Lane.CATCHING_UP, *APART):
                self._remember(named)
        return True

    def waiting(self) -> int:
        """Return the number of waiting deliveries, except those that are written separately."""
        return sum(queue.count for lane, queue in self._lanes.items() if lane not in APART)

    def waits_apart(self, lane: Lane) -> bool:
        """Return whether any delivery waits in this lane."""
        return self._lanes[lane].count > 0

    def take(self, most: int) -> list[Pending]:
        """Take the oldest deliveries for one commit: up to `most` reports and the size limit of a commit, one delivery
        of each machine. Deliveries whose call was already answered are dropped.
        """
        batch: list[Pending] = []
        machines: set[int] = set()
        reports = size = 0

        def is_full() -> bool:
            return reports >= most or size >= limits.COMMIT_BYTES

        with self._lock:
            for lane, queue in self._lanes.items():
                if lane in APART:
                    break
                for part in queue.turns(until=is_full):
                    later: list[Pending] = []
                    while part and not is_full():
                        pending = part.popleft()
                        if pending.answer.done():
                            self._forget(pending)
                        elif pending.delivery.machine_id in machines:
                            later.append(pending)
                        else:
                            machines.add(pending.delivery.machine_id)
                            batch.append(pending)
                            reports += pending.weight
                            size += pending.size
                    part.extendleft(reversed(later))
            batch.sort(key=lambda pending: pending.delivery.machine_id)
            self._running = batch
        return batch

    def take_one(self, lane: Lane) -> list[Pending]:
        """Take the oldest delivery of a lane that is written separately; empty if there is none."""
        found: list[Pending] = []
        with self._lock:
            for part in self._lanes[lane].turns(until=lambda: bool(found)):
                while part and not found:
                    pending = part.popleft()
                    if pending.answer.done():
                        self._forget(pending)
                    else:
                        found.append(pending)
            self._running = found
        return found

    def trouble(self, machine_id: int) -> None:
        """Write further deliveries of this machine (row id) after all others, because one of its reports failed."""
        with self._lock:
            self._troubled.add(machine_id)

    def trust(self, machine_ids: list[int]) -> None:
        """Give deliveries of these machines (row ids) their normal priority again, because a report of each was
        written.
        """
        with self._lock:
            self._troubled.difference_update(machine_ids)

    def done(self, batch: list[Pending], *, behind: set[int]) -> list[Pending]:
        """Finish a batch: deliveries of the machines in `behind` (row ids) are queued again after all others. Return
        the rest.
        """
        with self._lock:
            self._running = []
            for one in batch:
                if one.delivery.machine_id in behind:
                    self._lanes[Lane.TROUBLED].append(one)
            through = [pending for pending in batch if pending.delivery.machine_id not in behind]
            for pending in through:
                self._forget(pending)
        return through

    def since(self, earliest: float) -> list[Pending]:
        """Return the deliveries, including those being written, that have waited since before this time of the
        monotonic clock.
        """
        with self._lock:
            every = (*self._running, *chain(*self._lanes.values()))
            return [pending for pending in every if pending.since < earliest]

    def _remember(self, event_ids: list[str]) -> None:
        for event_id in event_ids:
            self._told[event_id] = None
            self._told.move_to_end(event_id)
        while len(self._told) > LANE_REMEMBERED:
            self._told.popitem(last=False)

    def _forget(self, pending: Pending) -> None:
        self._reports -= pending.weight
        self._bytes -= pending.size
