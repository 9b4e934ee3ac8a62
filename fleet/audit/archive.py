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
from io import BytesIO
from itertools import accumulate
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import structlog
from django.db import connection, transaction
from django.db.models import Q

from fleet.audit import archive_format, stores
from fleet.audit.archive_format import FORM, ArchiveKind, BadArchiveError, Manifest, StoreError, StoreFault, time_of
from fleet.audit.models import ArchiveFile
from fleet.audit.stores import WRITE_SECONDS, Store
from fleet.domain.actor import Actor
from fleet.domain.timeline import NO_HASH, EntryKind, Place
from fleet.models import Entry, ScheduledEvent, Seal
from fleet.models.driver import query
from fleet.models.partitions import ARCHIVED
from fleet.models.timeline import Numbering, numbering
from fleet.operations.locks import no_timeouts
from fleet.operations.timeline.entries import tell

# Rows in one file: few enough for an event's page to read quickly.
MOST_ROWS = 50_000
# Compression level. Compressed bytes are not part of any hash that is compared over time; this level is fast.
LEVEL = 6
ENDS = (("first", "min"), ("last", "max"))
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
    within, parameters = f"row.id BETWEEN %s AND %s AND {behind}", (first_id, last_id, *values)
    columns = "row.era, row.xid, row.id"
    first = query(f"SELECT {columns} FROM {table} AS row WHERE {within} ORDER BY {columns} LIMIT 1", *parameters)
    if not first:
        return None
    era, xid, row_id = first[0]
    # Seals that end at the first row or after it.
    here = Q(last_era=era, last_xid=xid, last_id__gte=row_id)
    reaching = Seal.objects.filter(Q(last_era__gt=era) | Q(last_era=era, last_xid__gt=xid) | here)
    seals = list(reaching.order_by("number")[:1000])
    if not seals:
        return None
    totals = accumulate(seal.rows for seal in seals)
    chosen = seals[: max(1, sum(total <= most_rows for total in totals))]
    condition, numbers = f"{within} AND {place} <= (%s, %s, %s)", (chosen[0].number, chosen[-1].number)
    return Portion(ArchiveKind.ENTRIES, condition, (*parameters, *chosen[-1].place), numbers)


def _see_one_state() -> None:
    # Within a test's own transaction there is a snapshot already.
    if len(connection.savepoint_ids) == 0:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _facts(portion: Portion) -> dict[str, Any]:
    """Return what the manifest states about the rows themselves; places as lists."""
    of = ARCHIVED[portion.kind]
    place = "ARRAY[row.era::bigint, row.xid, row.id]" if portion.kind is ArchiveKind.ENTRIES else "NULL::bigint[]"
    facts = {"rows": "count(*)", "first_id": "min(row.id)", "last_id": "max(row.id)"}
    facts |= {f"{end}_at": f"extract(epoch from {how}(row.{of.time}))::text" for end, how in ENDS}
    facts |= {f"{end}_place": f"{how}({place})" for end, how in ENDS}
    statement = f"SELECT {', '.join(facts.values())} FROM {of.table} AS row WHERE {portion.condition}"
    return dict(zip(facts, query(statement, *portion.values)[0], strict=True))


def _write(file: BinaryIO, portion: Portion, number: int, previous: str) -> tuple[Manifest, set[str]]:
    """Write the rows to a temporary file. Return the manifest, and the EventIds that document bodies in the file
    contain.
    """
    facts = _facts(portion)
    content = hashlib.sha256()
    rows = plain = 0
    event_ids: set[str] = set()
    rest = b""
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0) as packed:
        for is_row, block in _blocks(portion, archive_format.first_line(number, portion.kind.value, previous)):
            content.update(block)
            plain += len(block)
            if plain > archive_format.MOST_PLAIN_BYTES:
                # Readers would reject the file. Remedy: fewer rows per file (`MOST_ROWS`).
                raise StoreError(StoreFault.FULL)
            packed.write(block)
            if is_row:
                rows += block.count(b"\n")
            elif portion.kind is ArchiveKind.OBSERVATIONS:
                *whole, rest = (rest + block).split(b"\n")
                for line in whole:
                    event_ids |= _named_in(line)
    if rows != facts["rows"]:
        raise RuntimeError("The rows of one state of the database are counted twice, and differ.")
    size = file.tell()
    file.seek(0)
    known = {"number": number, "kind": portion.kind.value, "form": FORM, "seals": portion.seals, "previous": previous}
    sizes = {"plain_bytes": plain, "content_sha256": content.hexdigest(), "packed_bytes": size}
    file_hash = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    return Manifest.from_values({**known, **facts, **sizes, "file_sha256": file_hash}), event_ids


def _blocks(portion: Portion, first: bytes) -> Iterator[tuple[bool, bytes]]:
    yield False, first
    if portion.kind is ArchiveKind.OBSERVATIONS:
        for block in archive_format.bodies_as_lines(portion.condition, portion.values):
            yield False, block
    for block in archive_format.rows_as_lines(portion.kind, portion.condition, portion.values):
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


@transaction.atomic
def mark_database_restored(*, actor: Actor, now: datetime) -> tuple[Numbering, int | None]:
    """Begin a new era of the timeline after a database was restored, and write an entry about it. Eras are necessary
    because transaction ids may repeat after a restore. Does nothing if the newest era has no other entry yet, so that
    the call can be repeated. Return the numbers that were found, and the new era, or None if none began.

    Only the owner of the tables may do this. Waits for all transactions that write timeline entries.
    """
    table = Entry._meta.db_table
    no_timeouts()
    with connection.cursor() as cursor:
        # By then, all transactions that write rows of the ending era have committed.
        cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        found = numbering()
        kinds = list(Entry.objects.filter(era=found.era).order_by("xid", "id").values_list("kind", flat=True)[:2])
        if kinds == [EntryKind.ERA_BEGUN.value] and not found.missing:
            return found, None
        era = found.era + 1
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN era SET DEFAULT {era:d}")
    known = {"newest": found.newest, "next": found.next, "fallen": found.missing}
    tell(EntryKind.ERA_BEGUN, actor, at=now, before={"era": found.era}, after={"era": era}, **known)
    return found, era
