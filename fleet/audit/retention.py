"""Retention: drops old partitions after the archive contains all of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic

import structlog
from django.db import transaction

from fleet.audit.archive import archive_next, next_portion
from fleet.audit.archive_format import ArchiveKind, Held, StoreError, fields_of
from fleet.audit.models import ArchiveFile, ArchiveState, ExpiringPartition, covered, due, full, hold_reason, keep_days
from fleet.audit.partition_drop import NOT_FORWARD, RetainReason, drop_partition, finish_drops, forward, in_portions
from fleet.audit.stores import Store, store
from fleet.domain.actor import DRYDOCK
from fleet.domain.timeline import EntryKind
from fleet.models import Observation
from fleet.models.blind_spots import OpenTrouble, trouble
from fleet.models.driver import query
from fleet.models.partitions import ARCHIVED, BODIES
from fleet.operations.locks import Lock, exclusively
from fleet.operations.timeline.entries import tell

GIGABYTE = 1024**3
# Limit of forecasts.
MOST_DAYS = 3_650
# Sizes in gigabytes for the forecast without a configured maximum.
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of one kind of rows: current size in bytes, bytes a day, and retention in days (None: unlimited)."""

    size: int
    daily: float
    days: int | None = None

    def after(self, days: int) -> float:
        """Return the expected size in bytes after this many days. With a limited retention, the size does not grow
        beyond what is written within the retention, or the current size if that is larger.
        """
        grown = self.size + self.daily * days
        return grown if self.days is None else min(grown, max(self.size, self.daily * self.days))


def next_step(size: int) -> int:
    """Return the next round size above `size`, in bytes, for the forecast."""
    return next((step * GIGABYTE for step in STEPS if step * GIGABYTE > size), 2 * size)


def days_until(most: int, kinds: Sequence[Growth], rest: int) -> int | None:
    """Return the days until the database reaches `most` bytes, or None if that takes more than ten years. `rest` is the
    size of everything else, which does not grow.
    """
    sizes = (rest + sum(kind.after(days) for kind in kinds) for days in range(MOST_DAYS + 1))
    return next((days for days, size in enumerate(sizes) if size >= most), None)


# Retention: partitions that are old enough are dropped one by one, after all of their rows are archived.

STATE = "archive"
# Time after which failing archiving is reported. Shorter outages of the store lose no data.
ARCHIVE_FAILS = timedelta(minutes=10)
# Time limit of one run; the next run continues.
SECONDS = 20.0
# Rows copied forward in one statement.
MOST_COPIED = 5_000

WHY = {RetainReason.NEEDED: Held.NEEDED, RetainReason.NOT_COPIED: Held.NEEDED, RetainReason.NOT_SEALED: Held.UNSEALED}

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Retained:
    """Result of one run: written files, dropped partitions (names), retained kinds with the reason, and the fault of
    the store.
    """

    ran: bool = True
    files: int = 0
    dropped: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    fault: str = ""


def retain(*, now: datetime, seconds: float = SECONDS) -> Retained:
    """Archive and drop expired partitions for about `seconds`. Returns at once if another process is doing so."""
    where = store()
    with exclusively(Lock.ARCHIVE) as free:
        if not free:
            return Retained(ran=False)
        done = Retained()
        if where is not None:
            try:
                _work(where, done, now=now, until=monotonic() + seconds)
            except StoreError as error:
                done.fault = error.fault.value
                log.error("archive.failed", fault=done.fault, store=where.shown())
            _settle(now=now)
        _note(done, now=now)
    return done


def take_out(one: ExpiringPartition, *, now: datetime) -> Held | None:
    """Drop a partition whose rows are all archived. Return the reason if it must be retained, else None."""
    before = now - timedelta(days=keep_days(one.kind) or 0)
    why = drop_partition(
        ARCHIVED[one.kind], one.partition, before=before, archived_to=one.ids[1], now=now, via="retention"
    )
    return None if why is None else WHY.get(why, Held.BUSY)


def _work(where: Store, done: Retained, *, now: datetime, until: float) -> None:
    # Complete the drops of an earlier run.
    finish_drops()
    _settle(now=now)
    for one in due(now=now):
        if one.kind.value in done.held:
            # Partitions of a kind are dropped in order.
            continue
        why = hold_reason(ARCHIVED[one.kind], *one.ids)
        while why is None and next_portion(one.kind, *one.ids) is not None:
            if monotonic() > until:
                return
            archive_next(where, one.kind, *one.ids, now=now)
            done.files += 1
        why = why or _leave(one, done, now=now)
        if why is not None:
            done.held[one.kind.value] = why.value
    _drop_bodies(done, now=now)


def _drop_bodies(done: Retained, *, now: datetime) -> None:
    """Drop partitions of document bodies that are no longer referenced; the archive files of their reports contain
    these bodies. Bodies that are still needed are moved to the newest partition before.
    """
    days = keep_days(ArchiveKind.OBSERVATIONS)
    if days is None:
        return
    before = now - timedelta(days=days)
    for partition in full(BODIES):
        if partition.newest is None or partition.newest >= before:
            continue
        why = drop_partition(BODIES, partition, before=before, archived_to=partition.last_id, now=now, via="retention")
        if why is None:
            done.dropped.append(partition.name)
        return


def _leave(one: ExpiringPartition, done: Retained, *, now: datetime) -> Held | None:
    """Drop a partition after checking again that it need not be retained, because archiving takes time. Return the
    reason if it must be retained, else None.
    """
    why = hold_reason(ARCHIVED[one.kind], *one.ids) if covered(one) else Held.UNSEALED
    if why is None and one.kind is ArchiveKind.OBSERVATIONS:
        copy_forward(one, now=now)
    why = why or take_out(one, now=now)
    if why is None:
        done.dropped.append(one.partition.name)
        _settle(now=now)
    return why


def copy_forward(one: ExpiringPartition, *, now: datetime) -> int:
    """Copy rows that must outlive their partition (`partition_drop.OUTLIVES`) to a later one. The archive already
    contains them. Return the number of copied rows. A repeated call copies no row twice.
    """
    columns = ", ".join(f'"{each.column}"' for each in fields_of(Observation) if not each.primary_key)
    table = Observation._meta.db_table
    statement = f"""
        INSERT INTO {table} ({columns})
        SELECT {columns} FROM {table} AS row
        WHERE id BETWEEN %(first)s AND %(last)s AND {NOT_FORWARD} ORDER BY id LIMIT %(most)s
    """
    return in_portions(statement, most=MOST_COPIED, first=one.ids[0], last=one.ids[1], **forward(now))


def _settle(*, now: datetime) -> None:
    """Record which archive files have no rows in the database any more, with one timeline entry for each kind."""
    left: dict[str, list[ArchiveFile]] = {}
    for file in ArchiveFile.objects.filter(dropped_at=None).defer("events", "manifest").order_by("number"):
        rows = f"SELECT EXISTS (SELECT FROM {ARCHIVED[file.kind].table} WHERE id BETWEEN %s AND %s)"
        if query(rows, file.first_id, file.last_id) == [(False,)]:
            left.setdefault(file.kind, []).append(file)
    for kind, files in left.items():
        with transaction.atomic():
            numbers = [file.number for file in files]
            changed = ArchiveFile.objects.filter(number__in=numbers, dropped_at=None).update(dropped_at=now)
            if changed:
                times = {"first_at": min(file.first_at for file in files), "last_at": max(f.last_at for f in files)}
                counts = {"rows": sum(file.rows for file in files), "files": [numbers[0], numbers[-1]]}
                # A later seal covers this hash, which connects the chain of the files to that of the timeline.
                head = files[-1].hash
                tell(EntryKind.ROWS_ARCHIVED, DRYDOCK, at=now, archived=kind, hash=head, **counts, **times)


def troubles(*, now: datetime, via: str) -> list[OpenTrouble]:
    """Return a trouble if archiving has been failing for a while. One query."""
    failing = ArchiveState.objects.filter(fault_since__lte=now - ARCHIVE_FAILS).exclude(fault="")[:1]
    return [trouble("archive-fails", {"fault": state.fault, "at": state.fault_since}) for state in failing]


def _note(done: Retained, *, now: datetime) -> None:
    """Store the result of a run, which the storage page, troubles and probes show."""
    state = ArchiveState.objects.filter(name=STATE).first() or ArchiveState(name=STATE)
    state.tried_at = now
    if done.fault:
        state.fault_since = state.fault_since if state.fault else now
    else:
        state.worked_at, state.fault_since = now, None
        state.held = done.held
    state.fault = done.fault
    state.save()
