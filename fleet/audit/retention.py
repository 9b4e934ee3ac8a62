"""Retention: rows that are old enough are deleted by partition, once the archive holds all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

import structlog
from django.db import connection, transaction

from fleet.audit.archive import archive_next, next_portion
from fleet.audit.archive_format import ArchiveKind, Held, StoreError, archived_table, fields_of
from fleet.audit.models import (
    ArchiveFile,
    ArchiveState,
    ExpiringPartition,
    covered,
    due,
    full,
    hold_reason,
    keep_days,
    table_of,
)
from fleet.audit.partition_drop import NOT_FORWARD, RetainReason, drop_partition, finish_drops, forward
from fleet.audit.stores import Store, store
from fleet.domain.actor import DRYDOCK
from fleet.domain.blind_spots.facts import Trouble
from fleet.domain.timeline import EntryKind
from fleet.models import Observation
from fleet.models.driver import query
from fleet.models.partitions import BODIES
from fleet.operations.locks import Lock, exclusively, no_timeouts
from fleet.operations.timeline.entries import tell

GIGABYTE = 1024**3
# Further nobody can see.
MOST_DAYS = 3_650
# What is looked ahead to where nobody said how much room there is, in gigabytes.
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


@dataclass(frozen=True, slots=True)
class Growth:
    """A kind of rows: bytes now, bytes a day, and after how many days they are archived; None for never."""

    size: int
    daily: float
    days: int | None = None

    def after(self, days: int) -> float:
        """Bytes then: what is archived holds no more than its days bring, or what is there now."""
        grown = self.size + self.daily * days
        return grown if self.days is None else min(grown, max(self.size, self.daily * self.days))


def next_step(size: int) -> int:
    """The size that is looked ahead to: the next of a few round ones, in bytes."""
    return next((step * GIGABYTE for step in STEPS if step * GIGABYTE > size), 2 * size)


def days_until(most: int, kinds: Sequence[Growth], rest: int) -> int | None:
    """In how many days these kinds and the rest come to so many bytes; None for not within ten years."""

    def total(days: int) -> float:
        return rest + sum(kind.after(days) for kind in kinds)

    if total(MOST_DAYS) < most:
        return None
    low, high = 0, MOST_DAYS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if total(middle) >= most else (middle + 1, high)
    return low


# Retention: what is old enough is dropped, partition by partition, once all of it is in the archive.

STATE = "archive"
# Nothing is lost meanwhile; a store that was restarted is no news.
ARCHIVE_FAILS = timedelta(minutes=10)
# Of one run; the next goes on.
SECONDS = 20.0
# Copied forward in one statement.
MOST_COPIED = 5_000

WHY = {RetainReason.NEEDED: Held.NEEDED, RetainReason.NOT_COPIED: Held.NEEDED, RetainReason.NOT_SEALED: Held.UNSEALED}

# Takes a partition out; why not, where it could not just now.
Drop = Callable[[ExpiringPartition], Held | None]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Retained:
    """What one run did: files written, partitions dropped (names), what is retained and why (by kind), and the fault
    of the store.
    """

    ran: bool = True
    files: int = 0
    dropped: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    fault: str = ""


def retain(*, now: datetime, drop: Drop | None = None, seconds: float = SECONDS) -> Retained:
    """Archive and drop what is due, for about so many seconds. One process at a time; another returns at once."""
    where = store()
    with exclusively(Lock.ARCHIVE) as free:
        if not free:
            return Retained(ran=False)
        done = Retained()
        drop = drop or partial(take_out, now=now)
        if where is not None:
            try:
                _work(where, done, now=now, drop=drop, until=monotonic() + seconds)
            except StoreError as error:
                done.fault = error.fault.value
                log.error("archive.failed", fault=done.fault, store=where.shown())
            _settle(now=now)
        _note(done, now=now)
    return done


def take_out(one: ExpiringPartition, *, now: datetime) -> Held | None:
    """Drop a partition of which everything is archived; or why not."""
    before = now - timedelta(days=keep_days(one.kind) or 0)
    result = drop_partition(
        table_of(one.kind), one.partition, before=before, archived_to=one.ids[1], now=now, via="retention"
    )
    if result.why is None:
        return None
    return WHY.get(result.why, Held.BUSY)


def _work(where: Store, done: Retained, *, now: datetime, drop: Drop, until: float) -> None:
    # What an earlier run has begun to take out.
    finish_drops()
    _settle(now=now)
    for one in due(now=now):
        if one.kind.value in done.held:
            # Partitions of a kind are dropped in their order.
            continue
        why = hold_reason(table_of(one.kind), *one.ids)
        while why is None and next_portion(one.kind, *one.ids) is not None:
            if monotonic() > until:
                return
            archive_next(where, one.kind, *one.ids, now=now)
            done.files += 1
        if why is None:
            why = _leave(one, done, now=now, drop=drop)
        if why is not None:
            done.held[one.kind.value] = why.value
    _drop_bodies(done, now=now)


def _drop_bodies(done: Retained, *, now: datetime) -> None:
    """Drop bodies of documents when none of them can be named any more: they are in the files of the reports that
    named them. Those that latest documents and reports that are here name go to the newest partition.
    """
    days = keep_days(ArchiveKind.OBSERVATIONS)
    if days is None:
        return
    before = now - timedelta(days=days)
    for partition in full(BODIES):
        if partition.newest is None or partition.newest >= before:
            continue
        result = drop_partition(
            BODIES, partition, before=before, archived_to=partition.last_id, now=now, via="retention"
        )
        if result.is_dropped:
            done.dropped.append(partition.name)
        return


def _leave(one: ExpiringPartition, done: Retained, *, now: datetime, drop: Drop) -> Held | None:
    """Drop it; or why not. What is needed is asked once more: since it was archived, time has passed."""
    if not covered(one):
        return Held.UNSEALED
    if (why := hold_reason(table_of(one.kind), *one.ids)) is not None:
        return why
    if one.kind is ArchiveKind.OBSERVATIONS:
        copy_forward(one, now=now)
    if (why := drop(one)) is not None:
        return why
    done.dropped.append(one.partition.name)
    _settle(now=now)
    return None


def copy_forward(one: ExpiringPartition, *, now: datetime) -> int:
    """Keep what outlives its partition (`partition_drop.OUTLIVES`) in a later one. It is in the archive already. May be
    done again: none is copied twice.
    """
    columns = ", ".join(f'"{each.column}"' for each in fields_of(Observation) if not each.primary_key)
    table = Observation._meta.db_table
    copied = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            no_timeouts()
            cursor.execute(
                f"""
                INSERT INTO {table} ({columns})
                SELECT {columns} FROM {table} AS row
                WHERE id BETWEEN %(first)s AND %(last)s AND {NOT_FORWARD} ORDER BY id LIMIT %(most)s
                """,
                {"first": one.ids[0], "last": one.ids[1], "most": MOST_COPIED, **forward(now)},
            )
            more = int(cursor.rowcount)
            copied += more
            if more < MOST_COPIED:
                return copied


def _settle(*, now: datetime) -> None:
    """Mark the files whose rows are nowhere else any more, with an entry for those of each kind."""
    left: dict[str, list[ArchiveFile]] = {}
    for file in ArchiveFile.objects.filter(dropped_at=None).defer("events", "manifest").order_by("number"):
        rows = f"SELECT EXISTS (SELECT FROM {archived_table(ArchiveKind(file.kind)).name} WHERE id BETWEEN %s AND %s)"
        if query(rows, file.first_id, file.last_id) == [(False,)]:
            left.setdefault(file.kind, []).append(file)
    for kind, files in left.items():
        with transaction.atomic():
            numbers = [file.number for file in files]
            changed = ArchiveFile.objects.filter(number__in=numbers, dropped_at=None).update(dropped_at=now)
            if changed:
                tell(EntryKind.ROWS_ARCHIVED, DRYDOCK, at=now, **_told(kind, files))


def _told(kind: str, files: list[ArchiveFile]) -> dict[str, Any]:
    return {
        "archived": kind,
        "rows": sum(file.rows for file in files),
        "files": [files[0].number, files[-1].number],
        "first_at": min(file.first_at for file in files),
        "last_at": max(file.last_at for file in files),
        # Under a seal soon: the chain of the files hangs on that of the timeline.
        "hash": files[-1].hash,
    }


def troubles(*, now: datetime, via: str) -> list[Trouble]:
    """Return the trouble that archiving has failed for a while, if it has. One query."""
    state = ArchiveState.objects.filter(fault_since__lte=now - ARCHIVE_FAILS).exclude(fault="").first()
    if state is None:
        return []
    return [Trouble("archive-fails", values={"fault": state.fault, "at": state.fault_since})]


def _note(done: Retained, *, now: datetime) -> None:
    """Keep how it went, for the page of storage, for troubles and for probes."""
    state = ArchiveState.objects.filter(name=STATE).first() or ArchiveState(name=STATE)
    state.tried_at = now
    if done.fault:
        state.fault_since = state.fault_since if state.fault else now
    else:
        state.worked_at, state.fault_since = now, None
        state.held = done.held
    state.fault = done.fault
    state.save()
