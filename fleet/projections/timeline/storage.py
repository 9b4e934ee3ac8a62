"""What the database holds, how it grows, what leaves it next, and how the archive is."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Count, Max, Sum

from fleet.domain.archive import ArchiveKind
from fleet.domain.growth import GIGABYTE, Growth, days_until, next_step
from fleet.models import ArchiveFile, ArchiveState
from fleet.models.archive.due import keep_days, leaving, table_of
from fleet.models.archive.stores import store
from fleet.models.partitions import BODIES, Partition, partitions
from fleet.projections.sight import seen

# Of a table whose rows span less nobody can say how it grows.
LEAST_SPAN = timedelta(hours=1)
NEXT = 5
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class StorageKind:
    """One kind of rows. `rows` is Postgres' estimate; `daily_rows` and `daily_bytes` are as its newest rows came,
    None where too few are there to say. `days` is how long they stay, None for ever. `held` is a code: why those that
    are old enough have not left.
    """

    kind: str
    rows: int
    size: int
    parts: int
    oldest: datetime | None
    daily_rows: int | None
    daily_bytes: int | None
    days: int | None
    held: str


@dataclass(frozen=True, slots=True)
class LeavingRow:
    """A part of a table that leaves as a whole, at `at` or soon after."""

    kind: str
    rows: int
    size: int
    at: datetime


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """The archive: where it is (empty for nowhere), what is in it, and how the last try went. `fault` is a code, empty
    where all is well.
    """

    where: str
    files: int
    rows: int
    size: int
    last_at: datetime | None
    tried_at: datetime | None
    worked_at: datetime | None
    fault: str
    fault_since: datetime | None


@dataclass(frozen=True, slots=True)
class Storage:
    """Sizes are bytes. `most` is how much room there is, or, where nobody said, the next round size (`most_is_stated`);
    `full_at` is when that is reached, None for not within ten years, or where nobody can say.
    """

    size: int
    most: int
    most_is_stated: bool
    daily_bytes: int
    full_at: datetime | None
    kinds: tuple[StorageKind, ...]
    documents: int
    rest: int
    leaving: tuple[LeavingRow, ...]
    archive: ArchiveRow
    server_time: datetime

    @property
    def full_percent(self) -> int:
        return min(100, round(100 * self.size / self.most)) if self.most else 0


def storage(*, now: datetime) -> Storage:
    """Everything at once. As many statements as there are partitions, and about ten."""
    state = seen(ArchiveState).first()
    kinds = tuple(_kind(kind, state) for kind in ArchiveKind)
    documents = sum(one.size for one in partitions(BODIES))
    size = _database_size()
    rest = max(0, size - documents - sum(kind.size for kind in kinds))
    stated = settings.DATABASE_GIGABYTES * GIGABYTE
    most = stated or next_step(size)
    where = store()
    growths = [Growth(kind.size, kind.daily_bytes or 0, kind.days if where else None) for kind in kinds]
    days = days_until(most, growths, rest + documents) if any(one.daily for one in growths) else None
    coming = sorted(leaving(), key=lambda one: one.at)[:NEXT] if where else []
    return Storage(
        size=size,
        most=most,
        most_is_stated=bool(stated),
        daily_bytes=round(sum(one.daily for one in growths)),
        full_at=now + days * DAY if days is not None else None,
        kinds=kinds,
        documents=documents,
        rest=rest,
        leaving=tuple(
            LeavingRow(one.kind.value, one.partition.rows, one.partition.size, max(one.at, now)) for one in coming
        ),
        archive=_archive(where.shown() if where else "", state),
        server_time=now,
    )


def archive_fault() -> str:
    """What is wrong with the archive, as a code; empty where all is well, or where there is none. One query."""
    state = seen(ArchiveState).first() if settings.ARCHIVE_URL else None
    return state.fault if state else ""


def _kind(kind: ArchiveKind, state: ArchiveState | None) -> StorageKind:
    parts = partitions(table_of(kind))
    rows, size = sum(one.rows for one in parts), sum(one.size for one in parts)
    daily = _daily(parts)
    return StorageKind(
        kind=kind.value,
        rows=rows,
        size=size,
        parts=len(parts),
        oldest=min((one.oldest for one in parts if one.oldest is not None), default=None),
        daily_rows=daily,
        daily_bytes=round(daily * size / rows) if daily is not None and rows else None,
        days=keep_days(kind),
        held=(state.held if state else {}).get(kind.value, ""),
    )


def _daily(parts: Sequence[Partition]) -> int | None:
    """Rows a day, by the newest part whose rows span long enough."""
    for one in reversed(parts):
        if one.oldest is not None and one.newest is not None and one.newest - one.oldest >= LEAST_SPAN:
            return round(one.rows / ((one.newest - one.oldest) / DAY))
    return None


def _archive(where: str, state: ArchiveState | None) -> ArchiveRow:
    told = seen(ArchiveFile).aggregate(files=Count("pk"), lines=Sum("rows"), size=Sum("bytes"), last=Max("archived_at"))
    return ArchiveRow(
        where=where,
        files=told["files"],
        rows=told["lines"] or 0,
        size=told["size"] or 0,
        last_at=told["last"],
        tried_at=state.tried_at if state else None,
        worked_at=state.worked_at if state else None,
        fault=state.fault if state and where else "",
        fault_since=state.fault_since if state and where else None,
    )


def _database_size() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (size,) = cursor.fetchone() or (0,)
    return int(size)
