"""Retention: what is old enough leaves, partition by partition, once all of it lies in the archive.

By steps that can each be taken again: files are written one by one and read back; what is still needed is copied
forward; the rows are counted; the partition is dropped as a whole; its files are marked as the only place of their
rows, with an entry. Whoever is killed between two steps leaves what the next run goes on with. A store that does not
do its part stops the archive and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from fleet.domain.actor import DRYDOCK
from fleet.domain.archive import ArchiveKind, Held, StoreError
from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import ArchiveFile, ArchiveState, DocumentBody, LatestDocument, Observation
from fleet.models.archive.due import Leaving, covered, due, held
from fleet.models.archive.lines import TABLES, fields_of
from fleet.models.archive.stores import Store, store
from fleet.models.partitions import BODIES, Partition, partitions
from fleet.models.partitions import TABLES as PARTITIONED
from fleet.operations.locks import Lock, alone, take_your_time
from fleet.operations.timeline.archive import archive_next, next_portion
from fleet.operations.timeline.departure import depart, finish
from fleet.operations.timeline.entries import tell

STATE = "archive"
# Of one run; the next goes on.
SECONDS = 20.0
# Copied forward in one statement.
MOST_COPIED = 5_000
EVENT_ID = b'"EventId"'
OPEN = [EventStatus.SCHEDULED.value, EventStatus.STARTED.value]

# Takes a partition out; False where it could not just now.
Drop = Callable[[Partition], bool]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Retained:
    """What one run did: files written, partitions dropped (names), what stays and why (by kind), and what the store
    did not do.
    """

    ran: bool = True
    files: int = 0
    dropped: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    fault: str = ""


def retain(*, now: datetime, drop: Drop | None = None, seconds: float = SECONDS) -> Retained:
    """Archive and drop what is due, for about so many seconds. One process at a time; another returns at once."""
    where = store()
    with alone(Lock.ARCHIVE) as free:
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


def take_out(partition: Partition, *, now: datetime) -> bool:
    """All of it is archived, and it is old enough: it leaves, unless something in it is needed or somebody holds it."""
    table = next(one for one in PARTITIONED if one.table == partition.table)
    return depart(table, partition, before=now, archived_to=partition.last_id, now=now, via="retention").is_gone


def let_bodies_leave(*, now: datetime) -> list[str]:
    """The partitions of bodies that are gone now: they lie in the archive with the reports that named them, and what is
    still named is carried forward.
    """
    days = settings.KEEP_DAYS["documents"]
    if days is None:
        return []
    before = now - timedelta(days=days)
    old = [each for each in partitions(BODIES) if not each.is_open and each.newest is not None and each.newest < before]
    return [each.name for each in old if take_out(each, now=before)]


def _work(where: Store, done: Retained, *, now: datetime, drop: Drop, until: float) -> None:
    # What an earlier run had begun to take out.
    done.dropped += finish()
    _settle(now=now)
    for one in due(now=now):
        if one.kind.value in done.held:
            # Of a kind they leave one behind the other.
            continue
        why = held(one)
        while why is None and next_portion(one.kind, *one.ids) is not None:
            if monotonic() > until:
                return
            archive_next(where, one.kind, *one.ids, now=now)
            done.files += 1
        if why is None:
            why = _leave(one, done, now=now, drop=drop)
        if why is not None:
            done.held[one.kind.value] = why.value
    done.dropped += let_bodies_leave(now=now)


def _leave(one: Leaving, done: Retained, *, now: datetime, drop: Drop) -> Held | None:
    """Drop it; or why not. What is needed is asked once more: since it was archived, time has passed."""
    if not covered(one):
        return Held.UNSEALED
    if (why := held(one)) is not None:
        return why
    if one.kind is ArchiveKind.OBSERVATIONS:
        copy_forward(one, now=now)
    if not drop(one.partition):
        return Held.BUSY
    done.dropped.append(one.partition.name)
    _settle(now=now)
    return None


def copy_forward(one: Leaving, *, now: datetime) -> int:
    """Keep what outlives its partition: documents that list an event, for as long as these stay or it is open, each
    machine's latest document, and reports of which a part has still to be taken. They are in the archive already. May
    be done again: none is copied twice.
    """
    days = settings.KEEP_DAYS["event_documents"]
    columns = ", ".join(f'"{each.column}"' for each in fields_of(Observation) if not each.primary_key)
    table, bodies, latest = (each._meta.db_table for each in (Observation, DocumentBody, LatestDocument))
    copied = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            take_your_time()
            cursor.execute(
                f"""
                INSERT INTO {table} ({columns})
                SELECT {columns} FROM {table} AS row
                WHERE id BETWEEN %(first)s AND %(last)s AND (
                    ((%(days)s::int IS NULL OR received_at > %(now)s - make_interval(days => %(days)s::int)
                      OR EXISTS (SELECT FROM fleet_sighting AS sighting JOIN fleet_scheduledevent AS event
                                 ON event.id = sighting.event_id WHERE event.status = ANY(%(open)s)
                                 AND sighting.machine_id = row.machine_id AND sighting.listed_epoch = row.epoch
                                 AND sighting.listed_seq >= row.seq))
                     AND EXISTS (SELECT FROM {bodies} AS body WHERE body.hash = row.document_id
                                 AND (NOT body.readable OR position(%(mark)s::bytea IN body.body) > 0)))
                    OR EXISTS (SELECT FROM {latest} AS latest WHERE latest.machine_id = row.machine_id
                               AND latest.epoch = row.epoch AND latest.seq = row.seq)
                    OR EXISTS (SELECT FROM fleet_waitingreport AS waiting WHERE waiting.machine_id = row.machine_id
                               AND waiting.epoch = row.epoch AND waiting.seq = row.seq))
                  AND NOT EXISTS (SELECT FROM {table} AS again WHERE again.machine_id = row.machine_id
                                  AND again.epoch = row.epoch AND again.seq = row.seq AND again.id > %(last)s)
                ORDER BY id LIMIT %(most)s
                """,
                {
                    "first": one.ids[0], "last": one.ids[1], "days": days, "now": now, "mark": EVENT_ID,
                    "most": MOST_COPIED, "open": OPEN,
                },
            )  # fmt: skip
            more = int(cursor.rowcount)
            copied += more
            if more < MOST_COPIED:
                return copied


def _settle(*, now: datetime) -> None:
    """Mark the files whose rows are nowhere else any more, with an entry for those of each kind."""
    left: dict[str, list[ArchiveFile]] = {}
    for file in ArchiveFile.objects.filter(dropped_at=None).defer("events", "manifest").order_by("number"):
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT EXISTS (SELECT FROM {TABLES[ArchiveKind(file.kind)].name} WHERE id BETWEEN %s AND %s)",
                [file.first_id, file.last_id],
            )
            if cursor.fetchone() == (False,):
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
