"""Archiving of rows into files. Each file is read back and compared before its rows may be deleted. This module also
marks a restored database.

A file is added to the catalogue (`ArchiveFile`) after the store has returned the same content. If the process is killed
before, the next run writes the file again. Only one process writes (`Lock.ARCHIVE`), and it has no open transaction
while it waits for the store.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import BytesIO
from itertools import accumulate
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import structlog
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from fleet.audit import stores
from fleet.audit.archive_format import (
    FORM,
    MOST_PLAIN_BYTES,
    ArchiveKind,
    BadArchiveError,
    Manifest,
    StoreError,
    StoreFault,
    bodies_as_lines,
    first_line,
    rows_as_lines,
    time_of,
)
from fleet.audit.models import ArchiveFile
from fleet.audit.stores import WRITE_SECONDS, Store
from fleet.domain.actor import Actor
from fleet.domain.timeline import NO_HASH, EntryKind, Place
from fleet.models import Entry, ScheduledEvent, Seal
from fleet.models.driver import query
from fleet.models.partitions import ARCHIVED
from fleet.models.timeline import numbering
from fleet.operations.locks import no_timeouts
from fleet.operations.timeline.entries import tell

# Rows in one file: few enough for an event's page to read quickly.
MOST_ROWS = 50_000
# Compression level. Compressed bytes are not part of any hash that is compared over time; this level is fast.
LEVEL = 6
EVENT_IDS = re.compile(rb'"EventId"\s*:\s*"([^"\\]{1,100})"')

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Portion:
    """The rows for one file: an SQL condition on `row` with its values, and the first and last seal of these rows."""

    kind: ArchiveKind
    condition: str
    values: tuple[Any, ...]
    seals: tuple[int, int] | None = None


def archive_next(
    store: Store, kind: ArchiveKind, first_id: int, last_id: int, *, now: datetime, most_rows: int = MOST_ROWS
) -> ArchiveFile | None:
    """Write the next archive file of the rows with ids from `first_id` to `last_id`. Return None if all of them are
    archived, or the next ones are not sealed yet. The caller holds the lock. Raises StoreError; nothing has changed
    then.
    """
    portion = next_portion(kind, first_id, last_id, most_rows)
    if portion is None:
        return None
    newest = ArchiveFile.objects.order_by("-number").only("number", "hash").first()
    number, previous = (newest.number + 1, newest.hash) if newest else (1, NO_HASH)
    with TemporaryFile() as file:
        # A single snapshot, so that the manifest and the rows agree.
        with transaction.atomic():
            _see_one_state()
            no_timeouts()
            manifest, event_ids = _write(file, portion, number, previous)
            events = _events(portion, event_ids)
        _keep(store, manifest, file)
    first_seal, last_seal = manifest.seals or (None, None)
    row = ArchiveFile.objects.create(
        **{name: getattr(manifest, name) for name in ("number", "kind", "form", "rows", "first_id", "last_id", "hash")},
        first_at=time_of(manifest.first_at),
        last_at=time_of(manifest.last_at),
        first_seal=first_seal,
        last_seal=last_seal,
        manifest=json.loads(manifest.as_file()),
        bytes=manifest.packed_bytes,
        events=events,
        archived_at=now,
    )
    # The log is stored elsewhere: an attacker with full access to the database cannot replace the chain unnoticed.
    log.info("archive.written", head=f"{number}:{manifest.hash}", kind=kind.value, rows=manifest.rows)
    return row


def next_portion(kind: ArchiveKind, first_id: int, last_id: int, most_rows: int = MOST_ROWS) -> Portion | None:
    """Return the rows in this id range for the next archive file, or None if there are none or they are not sealed
    yet.
    """
    files = ArchiveFile.objects.filter(kind=kind.value, first_id__gte=first_id, last_id__lte=last_id)
    newest = files.order_by("-number").first()
    if kind is ArchiveKind.ENTRIES:
        return _sealed(first_id, last_id, newest.parsed_manifest.last_place if newest else None, most_rows)
    begin = newest.last_id + 1 if newest else first_id
    table = ARCHIVED[kind].table
    newest_id = f"SELECT max(id) FROM (SELECT id FROM {table} WHERE id BETWEEN %s AND %s ORDER BY id LIMIT %s) AS row"
    ((end,),) = query(newest_id, begin, last_id, most_rows)
    return None if end is None else Portion(kind, "row.id BETWEEN %s AND %s", (begin, end))


def _sealed(first_id: int, last_id: int, after: Place | None, most_rows: int) -> Portion | None:
    """Return rows that end with a seal: at most `most_rows`, but at least those of one seal. None if no row is
    sealed.
    """
    table = Entry._meta.db_table
    place = "(row.era, row.xid, row.id)"
    behind, values = ("TRUE", []) if after is None else (f"{place} > (%s, %s, %s)", list(after))
    first = query(
        f"SELECT row.era, row.xid, row.id FROM {table} AS row"
        f" WHERE row.id BETWEEN %s AND %s AND {behind} ORDER BY row.era, row.xid, row.id LIMIT 1",
        *(first_id, last_id, *values),
    )
    if not first:
        return None
    seals = list(_seals_from(*first[0])[:1000])
    if not seals:
        return None
    totals = accumulate(seal.rows for seal in seals)
    chosen = seals[: max(1, sum(total <= most_rows for total in totals))]
    return Portion(
        ArchiveKind.ENTRIES,
        f"row.id BETWEEN %s AND %s AND {behind} AND {place} <= (%s, %s, %s)",
        (first_id, last_id, *values, *chosen[-1].place),
        (chosen[0].number, chosen[-1].number),
    )


def _seals_from(era: int, xid: int, number: int) -> QuerySet[Seal]:
    """Return the seals that end at or after this place in the timeline, in order."""
    here = Q(last_era=era, last_xid=xid, last_id__gte=number)
    return Seal.objects.filter(Q(last_era__gt=era) | Q(last_era=era, last_xid__gt=xid) | here).order_by("number")


def _see_one_state() -> None:
    # Within a test's own transaction there is a snapshot already.
    if len(connection.savepoint_ids) == 0:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _facts(portion: Portion) -> tuple[Any, ...]:
    """Return facts about the rows of a file: number of rows, first and last id, oldest and newest time as text, first
    and last place.
    """
    of = ARCHIVED[portion.kind]
    places = "NULL, NULL"
    if portion.kind is ArchiveKind.ENTRIES:
        places = "min(ARRAY[row.era::bigint, row.xid, row.id]), max(ARRAY[row.era::bigint, row.xid, row.id])"
    return query(
        f"SELECT count(*), min(row.id), max(row.id), extract(epoch from min(row.{of.time}))::text,"
        f" extract(epoch from max(row.{of.time}))::text, {places}"
        f" FROM {of.table} AS row WHERE {portion.condition}",
        *portion.values,
    )[0]


def _write(file: BinaryIO, portion: Portion, number: int, previous: str) -> tuple[Manifest, set[str]]:
    """Write the rows to a temporary file. Return the manifest, and the EventIds that document bodies in the file
    contain.
    """
    count, first_id, last_id, first_at, last_at, first_place, last_place = _facts(portion)
    content = hashlib.sha256()
    rows = plain = 0
    event_ids: set[str] = set()
    rest = b""
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0) as packed:
        for is_row, block in _blocks(portion, first_line(number, portion.kind.value, previous)):
            content.update(block)
            plain += len(block)
            if plain > MOST_PLAIN_BYTES:
                # Readers would reject the file. Remedy: fewer rows per file (`MOST_ROWS`).
                raise StoreError(StoreFault.FULL)
            packed.write(block)
            if is_row:
                rows += block.count(b"\n")
            elif portion.kind is ArchiveKind.OBSERVATIONS:
                *whole, rest = (rest + block).split(b"\n")
                for line in whole:
                    event_ids |= _named_in(line)
    if rows != count:
        raise RuntimeError("The rows of one state of the database are counted twice, and differ.")
    size = file.tell()
    file.seek(0)
    manifest = Manifest(
        number=number,
        kind=portion.kind.value,
        form=FORM,
        rows=rows,
        first_id=first_id,
        last_id=last_id,
        first_at=first_at,
        last_at=last_at,
        seals=portion.seals,
        first_place=tuple(first_place) if first_place else None,
        last_place=tuple(last_place) if last_place else None,
        plain_bytes=plain,
        content_sha256=content.hexdigest(),
        packed_bytes=size,
        file_sha256=hashlib.file_digest(file, "sha256").hexdigest(),  # type: ignore[arg-type]
        previous=previous,
    )
    return manifest, event_ids


def _blocks(portion: Portion, first: bytes) -> Iterator[tuple[bool, bytes]]:
    yield False, first
    if portion.kind is ArchiveKind.OBSERVATIONS:
        for block in bodies_as_lines(portion.condition, portion.values):
            yield False, block
    for block in rows_as_lines(portion.kind, portion.condition, portion.values):
        yield True, block


def _named_in(line: bytes) -> set[str]:
    """Return the EventIds in a document body, which may be invalid JSON."""
    body = json.loads(line).get("body")
    if body is None:
        return set()
    plain = base64.b64decode(body["body"])
    return {found.decode(errors="replace").upper() for found in EVENT_IDS.findall(plain)}


def _events(portion: Portion, event_ids: set[str]) -> list[int]:
    """Return the row ids of the events to which these rows refer. `event_ids` are EventIds that their bodies
    contain.
    """
    if portion.kind is ArchiveKind.OBSERVATIONS:
        return sorted(ScheduledEvent.objects.filter(event_id__in=event_ids).values_list("pk", flat=True))
    if portion.kind is ArchiveKind.NOTIFICATIONS:
        return []
    table = ARCHIVED[portion.kind].table
    named = f"SELECT DISTINCT row.event_id FROM {table} AS row WHERE row.event_id IS NOT NULL AND {portion.condition}"
    return sorted(event_id for (event_id,) in query(named, *portion.values))


def _keep(store: Store, manifest: Manifest, file: BinaryIO) -> None:
    """Write a file and its manifest to the store, and read both back completely. Raises StoreError."""
    file.seek(0)
    store.put(manifest.name, file, manifest.packed_bytes)
    content = manifest.as_file()
    store.put(manifest.manifest_name, BytesIO(content), len(content))
    try:
        stores.check_file(store, manifest, seconds=WRITE_SECONDS)
    except BadArchiveError as error:
        raise StoreError(StoreFault.DIFFERS) from error


# Start of an era: rows written from now on come after all earlier rows, regardless of their transaction numbers. This
# is necessary after a restore, because the rows of a dump name transactions of another server.


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Result of `mark_database_restored`: the newest era, and whether this call began it. `newest` is the highest
    transaction id in earlier rows, `next` the next one of this database server. `fallen`: `next` is lower, so that ids
    would repeat.
    """

    era: int
    now: bool
    newest: int
    next: int
    fallen: bool


@transaction.atomic
def mark_database_restored(*, actor: Actor, now: datetime) -> RestoreResult:
    """Begin a new era of the timeline after a database was restored, and write an entry about it. Eras are necessary
    because transaction ids may repeat after a restore. Does nothing if the newest era has no other entry yet, so that
    the call can be repeated.

    Only the owner of the tables may do this. Waits for all transactions that write timeline entries.
    """
    table = Entry._meta.db_table
    no_timeouts()
    with connection.cursor() as cursor:
        # By then, all transactions that write rows of the ending era have committed.
        cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        found = numbering()
        kinds = list(Entry.objects.filter(era=found.era).order_by("xid", "id").values_list("kind", flat=True)[:2])
        result = partial(RestoreResult, newest=found.newest, next=found.next, fallen=found.missing)
        if kinds == [EntryKind.ERA_BEGUN.value] and not found.missing:
            return result(found.era, now=False)
        era = found.era + 1
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN era SET DEFAULT {era:d}")
    tell(
        EntryKind.ERA_BEGUN,
        actor,
        at=now,
        before={"era": found.era},
        after={"era": era},
        newest=found.newest,
        next=found.next,
        fallen=found.missing,
    )
    return result(era, now=True)
