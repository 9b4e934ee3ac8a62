"""What a delivery costs the writer, told before it is read: about a millisecond each unit, beside what every one costs.

It is counted, not timed: a machine is not judged by how busy the database was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from drydock_agent import wire

from fleet.operations.intake.keep import Delivery, ParsedReport

# What costs more is written apart, behind the others and in parts of this size. An agent that starts says less.
COSTLY = 30
# A machine that brings so much a second is judged by that, whatever each of its deliveries costs.
UNITS_A_SECOND, AT_ONCE = 20.0, 90.0
REMEMBERED = 10_000
# A statement about itself may move a machine; a reminder may point to a body of a mebibyte; each event is computed.
STATEMENT, REMINDER, OF_CACHE, OTHER = 10, 5, 2, 1
EVENT = '"EventId"'


def cost_of(report: ParsedReport) -> int:
    """The units of one report; none for a document that lists nothing, as nearly all do."""
    match report.data:
        case wire.DocumentData(body=body, encoding=encoding):
            # Base64 is what was no text: it is read all the same, and nothing of it is known yet.
            return body.count(EVENT) if encoding != "base64" else len(body) // 100
        case wire.InstanceData():
            return STATEMENT
        case wire.ReminderData():
            return REMINDER
        case wire.RedisData() | wire.CoverageData() | wire.RedisHookData():
            return OF_CACHE
        case _:
            return OTHER


def parts_of(delivery: Delivery) -> Iterator[Delivery]:
    """The delivery in parts that cost about as much as one may, in the order of their numbers."""
    refused = dict(delivery.refused)
    numbered: list[tuple[int, ParsedReport | None]] = [(report.seq, report) for report in delivery.reports]
    numbered += [(seq, None) for seq in refused]
    numbered.sort(key=lambda one: one[0])
    first, spent = 0, 0
    for place, (_, report) in enumerate(numbered):
        cost = cost_of(report) if report is not None else OTHER
        if place > first and spent + cost > COSTLY:
            yield _part(delivery, numbered[first:place], refused)
            first, spent = place, 0
        spent += cost
    yield _part(delivery, numbered[first:], refused)


def _part(delivery: Delivery, numbered: Sequence[tuple[int, ParsedReport | None]], refused: dict[int, str]) -> Delivery:
    reports = [report for _, report in numbered if report is not None]
    return replace(delivery, reports=reports, refused=[(seq, refused[seq]) for seq, one in numbered if one is None])


class Spending:
    """What each machine (row id) has cost lately; a bucket of units each."""

    def __init__(self) -> None:
        self._spent: dict[int, tuple[float, float]] = {}

    def is_costly(self, delivery: Delivery) -> bool:
        """Whether it is to be written apart; counts what it costs."""
        # A reminder of one body is read once.
        reminders = {report.data.hash for report in delivery.reports if isinstance(report.data, wire.ReminderData)}
        known = [report for report in delivery.reports if not isinstance(report.data, wire.ReminderData)]
        cost = sum(map(cost_of, known)) + REMINDER * len(reminders)
        if not cost:
            return False
        now = time.monotonic()
        spent, since = self._spent.get(delivery.machine_id, (0.0, now))
        spent = min(max(0.0, spent - (now - since) * UNITS_A_SECOND) + cost, 2 * AT_ONCE)
        if len(self._spent) >= REMEMBERED:
            self._forget(now)
        self._spent[delivery.machine_id] = (spent, now)
        return cost > COSTLY or spent > AT_ONCE

    def _forget(self, now: float) -> None:
        self._spent = {
            machine_id: (spent, since)
            for machine_id, (spent, since) in self._spent.items()
            if spent > (now - since) * UNITS_A_SECOND
        }
