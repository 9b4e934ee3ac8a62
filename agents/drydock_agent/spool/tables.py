"""Tables of the spool, and statements that several of its methods share. Each function runs inside a transaction."""

from __future__ import annotations

import sqlite3
from typing import cast

MAX_QUARANTINED = 1000

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reports (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, at TEXT NOT NULL, data TEXT NOT NULL, reading TEXT);
CREATE TABLE IF NOT EXISTS kept_apart (
    id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL,
    data TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body TEXT NOT NULL, attempted_at TEXT,
    receipt TEXT, receipt_seq INTEGER);
"""


def create(db: sqlite3.Connection) -> None:
    """Create the tables, and the column that spools of 0.1.0 do not have. An older agent ignores this column."""
    for statement in SCHEMA.split(";"):
        db.execute(statement)
    if "reading" not in {row[1] for row in db.execute("PRAGMA table_info(reports)")}:
        db.execute("ALTER TABLE reports ADD COLUMN reading TEXT")


def insert(db: sqlite3.Connection, kind: str, at: str, data: str, reading: str | None) -> int:
    """Store one report and return its number. `reading` is the current `ClockReading` as text."""
    added = "INSERT INTO reports (kind, at, data, reading) VALUES (?, ?, ?, ?)"
    seq = db.execute(added, (kind, at, data, reading)).lastrowid
    # SQLite always returns an id after an INSERT; the type is optional because of other statements.
    return cast(int, seq)


def quarantine(db: sqlite3.Connection, seq: int, reason: str) -> None:
    """Move one report to the quarantine, and delete the oldest quarantined reports above `MAX_QUARANTINED`."""
    db.execute(
        "INSERT INTO kept_apart (seq, kind, at, data, reason) SELECT seq, kind, at, data, ? FROM reports WHERE seq = ?",
        (reason, seq),
    )
    db.execute("DELETE FROM reports WHERE seq = ?", (seq,))
    db.execute("DELETE FROM kept_apart WHERE id <= (SELECT max(id) FROM kept_apart) - ?", (MAX_QUARANTINED,))


def get(db: sqlite3.Connection, key: str) -> str | None:
    """Return the value stored under `key`, or None."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put(db: sqlite3.Connection, key: str, value: str) -> None:
    """Store a value under `key`."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def renumber(db: sqlite3.Connection, new: str) -> None:
    """Renumber the remaining reports from 1, and give the spool the new id `new`."""
    waiting = db.execute("SELECT kind, at, data, reading FROM reports ORDER BY seq").fetchall()
    db.execute("DELETE FROM reports")
    db.execute("DELETE FROM sqlite_sequence WHERE name = 'reports'")
    # Receipts acknowledged under the old numbers get number 0, which counts as acknowledged.
    db.execute("UPDATE orders SET receipt_seq = 0 WHERE receipt_seq IS NOT NULL")
    for kind, at, data, reading in waiting:
        seq = insert(db, kind, at, data, reading)
        db.execute("UPDATE orders SET receipt_seq = ? WHERE receipt = ?", (seq, data))
    put(db, "spool", new)
    put(db, "acknowledged", "0")
