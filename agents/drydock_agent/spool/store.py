"""Durable spool on disk: reports that the backend has not acknowledged yet, and orders.

It is a SQLite database in WAL mode with `synchronous=FULL`: when a call returns, the data is on disk. One thread uses
the only connection; other threads give it their work and wait. The connection locks the file exclusively, so that a
second agent cannot use the same state folder.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sqlite3
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from drydock_agent.clock import Clock, ClockReading, from_text, to_text
from drydock_agent.spool import tables

T = TypeVar("T")

ORDERS_REMEMBERED = 1000


class SpoolError(Exception):
    """The spool cannot be opened or written. The message states why."""


class SpoolDamaged(SpoolError):
    """The spool file is not a valid database."""


class SpoolBusy(SpoolError):
    """Another agent uses this spool."""


@dataclass(slots=True, frozen=True)
class StoredReport:
    """A report in the spool. `data` is JSON text."""

    seq: int
    kind: str
    at: str
    data: str


@dataclass(slots=True, frozen=True)
class StoredOrder:
    """An order that this machine accepted. `attempted_at` is set before the request to Azure, `receipt` (JSON text)
    after it.
    """

    id: str
    body: str
    attempted_at: str | None
    receipt: str | None
    receipt_seq: int | None


class Spool:
    """The spool of this machine. Every method may be called from any thread, returns when the change is on disk, and
    raises `SpoolError` on failure.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        # Seconds by which the backend's clock is ahead of this machine's. Set after the first contact.
        self.ahead: Callable[[], float | None] = lambda: None
        self._clock = clock or Clock()
        self._work: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._id = ""
        self._sent = 0
        self._acknowledged = 0
        opened: _Job[None] = _Job(self._open)
        self._thread = threading.Thread(target=self._serve, args=(opened,), name="spool", daemon=True)
        self._thread.start()
        opened.result()

    @property
    def id(self) -> str:
        """The UUID of this spool, created together with it."""
        return self._id

    @property
    def acknowledged(self) -> int:
        """The number up to which the backend has stored or refused all reports."""
        return self._acknowledged

    @property
    def sent(self) -> int:
        """The highest number of a report that may have been sent."""
        return self._sent

    def add(self, kind: str, at: datetime, data: dict[str, Any], *, remember: dict[str, str] | None = None) -> int:
        """Store one report, together with the values `remember`. Return the number of the report."""
        text, reading = json.dumps(data), self._reading().to_text()

        def work(db: sqlite3.Connection) -> int:
            seq = tables.insert(db, kind, to_text(at), text, reading)
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", (remember or {}).items())
            return seq

        return self._call(work)

    def batch(self, most: int, most_bytes: int) -> list[StoredReport]:
        """Return the oldest reports that are not acknowledged, in order: at most `most` reports, and at most
        `most_bytes` of data except for a single report.

        If the wall clock was changed since a report was recorded, the report's time is corrected by the difference.
        """
        now = self._reading()

        def work(db: sqlite3.Connection) -> list[StoredReport]:
            taken: list[StoredReport] = []
            size = 0
            rows = db.execute("SELECT seq, kind, at, data, reading FROM reports ORDER BY seq LIMIT ?", (most,))
            for seq, kind, at, data, reading in rows:
                size += len(data) + 200
                if taken and size > most_bytes:
                    break
                taken.append(StoredReport(seq, kind, _as_of(now, at, ClockReading.from_text(reading)), data))
            if taken:
                self._sent = max(self._sent, taken[-1].seq)
            return taken

        return self._call(work)

    def acknowledge(self, acknowledged: int, refused: dict[int, str]) -> bool:
        """Delete all reports up to the number `acknowledged`, and quarantine the `refused` ones (reason by number).

        Return False if the backend has acknowledged numbers that this spool has not sent. The state folder was then
        restored from an older copy, and the remaining reports are renumbered in a new spool.
        """
        if acknowledged > self._sent:
            new = str(uuid.uuid4())
            self._call(lambda db: tables.renumber(db, new))
            self._id, self._acknowledged, self._sent = new, 0, 0
            return False
        highest = max(self._acknowledged, acknowledged)

        def work(db: sqlite3.Connection) -> None:
            for seq, reason in refused.items():
                tables.quarantine(db, seq, reason)
            db.execute("DELETE FROM reports WHERE seq <= ?", (acknowledged,))
            tables.put(db, "acknowledged", str(highest))

        # An idle heartbeat changes nothing and needs no write.
        if refused or highest > self._acknowledged:
            self._call(work)
        self._acknowledged = highest
        return True

    def quarantine(self, seq: int, reason: str) -> None:
        """Move one report to the quarantine, so that it is not sent again. `reason` is stored with it."""
        self._call(lambda db: tables.quarantine(db, seq, reason))

    def pending(self) -> int:
        """Return the number of reports that are not acknowledged."""
        return self._call(lambda db: int(db.execute("SELECT count(*) FROM reports").fetchone()[0]))

    def quarantined(self) -> list[tuple[StoredReport, str]]:
        """Return the quarantined reports with the reasons, oldest first; at most `tables.MAX_QUARANTINED`."""

        def work(db: sqlite3.Connection) -> list[tuple[StoredReport, str]]:
            rows = db.execute("SELECT seq, kind, at, data, reason FROM kept_apart ORDER BY id")
            return [(StoredReport(*row[:4]), row[4]) for row in rows]

        return self._call(work)

    def get(self, key: str) -> str | None:
        """Return the value stored under `key`, or None."""
        return self._call(lambda db: tables.get(db, key))

    def set(self, key: str, value: str) -> None:
        """Store a value under `key`."""
        self._call(lambda db: tables.put(db, key, value))

    def orders(self) -> list[StoredOrder]:
        """Return the received orders, oldest first; at most `ORDERS_REMEMBERED`."""

        def work(db: sqlite3.Connection) -> list[StoredOrder]:
            rows = db.execute("SELECT id, body, attempted_at, receipt, receipt_seq FROM orders ORDER BY number")
            return [StoredOrder(*row) for row in rows]

        return self._call(work)

    def attempt(self, order_id: str, body: str, at: datetime) -> None:
        """Store an order and the time of the attempt, before the request to Azure. `body` is the order as text."""

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO orders (id, body, attempted_at) VALUES (?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET attempted_at = excluded.attempted_at",
                (order_id, body, to_text(at)),
            )

        self._call(work)

    def receipt(self, order_id: str, body: str, kind: str, at: datetime, data: dict[str, Any]) -> int:
        """Store the receipt of an order, and the report that contains it, in one transaction. Return the number of the
        report.
        """
        text, reading = json.dumps(data), self._reading().to_text()

        def work(db: sqlite3.Connection) -> int:
            seq = tables.insert(db, kind, to_text(at), text, reading)
            db.execute(
                "INSERT INTO orders (id, body, receipt, receipt_seq) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET receipt = excluded.receipt, receipt_seq = excluded.receipt_seq",
                (order_id, body, text, seq),
            )
            db.execute(
                "DELETE FROM orders WHERE receipt IS NOT NULL AND number <= (SELECT max(number) FROM orders) - ?",
                (ORDERS_REMEMBERED,),
            )
            return seq

        return self._call(work)

    def close(self) -> None:
        """Finish the queued work and close the database."""
        if not self._closed:
            self._closed = True
            self._work.put(None)
            self._thread.join()

    def _reading(self) -> ClockReading:
        return ClockReading.of(self._clock, self.ahead())

    def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise SpoolError("the spool is closed")
        job = _Job(work)
        self._work.put(job)
        return job.result()

    def _serve(self, opened: _Job[None]) -> None:
        try:
            db = sqlite3.connect(self.path, timeout=1.0, isolation_level=None)
        except sqlite3.Error as error:
            opened.fail(error)
            return
        with contextlib.closing(db):
            try:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
            except sqlite3.Error as error:
                opened.fail(error)
                return
            opened.run(db)
            if opened.error is not None:
                return
            while (job := self._work.get()) is not None:
                job.run(db)

    def _open(self, db: sqlite3.Connection) -> None:
        tables.create(db)
        self._id = tables.get(db, "spool") or str(uuid.uuid4())
        tables.put(db, "spool", self._id)
        # Numbers up to here may have been sent by an earlier run.
        row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'reports'").fetchone()
        self._sent = int(row[0]) if row else 0
        self._acknowledged = int(tables.get(db, "acknowledged") or 0)


def _as_of(now: ClockReading, at: str, recorded: ClockReading | None) -> str:
    """Return a recorded time, corrected for changes of the wall clock between the readings `recorded` and `now`."""
    step = recorded.step_until(now) if recorded is not None else 0.0
    moment = from_text(at)
    if not step or moment is None:
        return at
    try:
        return to_text(moment + timedelta(seconds=step))
    except OverflowError:
        return at


class _Job(Generic[T]):
    """One transaction for the spool's thread. The caller waits for the result."""

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: T | None = None
        self.error: Exception | None = None

    def run(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                self._result = self._work(db)
                db.execute("COMMIT")
            finally:
                # A failed commit, for example on a full disk, does not end the transaction.
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except (sqlite3.Error, ValueError, OverflowError) as error:
            # A value that SQLite cannot store fails only this call: the shared thread must not end.
            self.error = error
        finally:
            self._done.set()

    def fail(self, error: sqlite3.Error) -> None:
        self.error = error
        self._done.set()

    def result(self) -> T:
        self._done.wait()
        if self.error is not None:
            raise _kind(self.error)(str(self.error)) from self.error
        return cast(T, self._result)


# SQLite's error codes for busy, corrupt and not a database. Python has names for them since 3.11.
_ERRORS: dict[int, type[SpoolError]] = {5: SpoolBusy, 11: SpoolDamaged, 26: SpoolDamaged}


def _kind(error: Exception) -> type[SpoolError]:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return _ERRORS.get(code & 0xFF, SpoolError)
    # Python 3.10 does not expose the error code. Here it raises the plain class only for a damaged file.
    if type(error) is sqlite3.DatabaseError:
        return SpoolDamaged
    return SpoolBusy if str(error) == "database is locked" else SpoolError
