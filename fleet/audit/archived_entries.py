"""Queries of timeline entries that exist only in the archive.

The number of files and the time of a query are limited. If the store fails, the result contains the fault and the
entries that could be read. Lines that were read are cached in memory, because archive files never change.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

from django.db.models import Q, QuerySet

from fleet.audit import stores
from fleet.audit.archive_format import (
    ArchiveKind,
    BadArchiveError,
    Manifest,
    StoreError,
    StoreFault,
    instance_of,
    row_of,
)
from fleet.audit.models import ArchiveFile
from fleet.audit.stores import Store, store
from fleet.models import DocumentBody, Entry, Machine, Observation, ScheduledEvent, Sighting
from fleet.models.timeline import ACTING
from fleet.projections.archived import ArchivedDocuments, ArchivedEntries, ArchivedUntil
from fleet.projections.intake import last_place
from fleet.projections.timeline.entries import TimelineRow, rows_of
from fleet.projections.visibility import OF_TWO, is_limited, visible

# Files read for one event. It is usually in one or two: a file holds what was written within hours.
MOST_FILES = 6
MOST_ROWS = 5_000
# Time in seconds that a page waits for all files.
SECONDS = 4.0
KEPT = 128
# Beginning of a line with the body of a document.
BODY = b'{"v" : 1, "body" :'

Lines = tuple[bytes, ...]
Choose = Callable[[Iterator[bytes]], Iterable[bytes]]
Key = tuple[str, int]
_cache: OrderedDict[Key, Lines] = OrderedDict()
_lock = threading.Lock()
# Only these threads wait for a store that hangs.
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="archive")
_waits = threading.BoundedSemaphore(4)


def entries_of(event_id: str) -> ArchivedEntries:
    """Return the archived entries of an event (EventId in any case) that the reader may see, oldest first."""
    event = visible(ScheduledEvent).filter(event_id=event_id.upper()).first()
    files = files_of(ArchiveKind.ENTRIES, event.pk) if event else []
    if event is None or not files:
        return ArchivedEntries()
    needle = f'"event_id" : "{event.pk}",'.encode()
    found, fault = gathered(files, event.pk, lambda lines: (line for line in lines if needle in line))
    rows = [instance_of(Entry, row_of(line)) for line in found]
    rows.sort(key=lambda row: (row.at, row.pk))
    shown = visible_entries([row for row in rows if row.event_id == event.pk][:MOST_ROWS], event)
    return ArchivedEntries(tuple(shown), max(file.archived_at for file in files), fault, len(files))


def archived_at(event_pk: int) -> datetime | None:
    """Return when the newest archived entries of an event (row id) were archived, or None if there are none. One
    query.
    """
    files = _archived(events__contains=[event_pk])
    return files.order_by("-number").values_list("archived_at", flat=True).first()


def archived_until() -> ArchivedUntil | None:
    """Return the time up to which timeline entries are archived, or None if none are. One query."""
    newest = _archived().order_by("-number").first()
    return ArchivedUntil(newest.last_at, newest.parsed_manifest.name) if newest else None


def files_of(kind: ArchiveKind, event_pk: int) -> list[ArchiveFile]:
    """Return the archive files with rows about this event (row id) whose rows were deleted from the database. One
    query.
    """
    return list(_archived(kind, events__contains=[event_pk]).order_by("-number")[:MOST_FILES])


def _archived(kind: ArchiveKind = ArchiveKind.ENTRIES, **more: Any) -> QuerySet[ArchiveFile]:
    """Return the archive files of a kind whose rows were deleted from the database."""
    return visible(ArchiveFile).filter(kind=kind.value, dropped_at__isnull=False, **more).defer("events")


def gathered(files: Sequence[ArchiveFile], about: int, choose: Choose) -> tuple[list[bytes], str]:
    """Return the lines that `choose` selects from these files for the event `about` (row id). Also return a fault code
    if some files are unavailable, else an empty string.
    """
    where = store()
    if where is None:
        return [], StoreFault.AWAY.value
    found, fault, until = list[bytes](), "", monotonic() + SECONDS
    for lines in [_begin(where, file.parsed_manifest, about, choose) for file in files]:
        try:
            found += lines if isinstance(lines, tuple) else lines.result(timeout=max(0.0, until - monotonic()))
        except (StoreError, BadArchiveError) as error:
            fault = error.fault.value
        except Late:
            fault = StoreFault.SLOW.value
            break
    return found, fault


def _begin(where: Store, file: Manifest, about: int, choose: Choose) -> Lines | Future[Lines]:
    with _lock:
        if (cached := _cache.get((file.hash, about))) is not None:
            _cache.move_to_end((file.hash, about))
            return cached
    if not _waits.acquire(blocking=False):
        # Earlier requests already wait.
        failed: Future[Lines] = Future()
        failed.set_exception(StoreError(StoreFault.SLOW))
        return failed
    begun = _readers.submit(_read, where, file, about, choose)
    begun.add_done_callback(lambda _: _waits.release())
    return begun


def _read(where: Store, file: Manifest, about: int, choose: Choose) -> Lines:
    # Read to the end: a changed file is not shown.
    lines = tuple(choose(stores.lines(where, file, seconds=SECONDS)))
    with _lock:
        _cache[file.hash, about] = lines
        while len(_cache) > KEPT:
            _cache.popitem(last=False)
    return lines


def visible_entries(rows: Iterable[Entry], event: ScheduledEvent) -> list[Entry]:
    """Load the subjects of these archived entries, and return the entries that the reader may see, by the same rules as
    other entries. At most three queries.
    """
    shown = [row for row in rows if not (is_limited() and row.kind in OF_TWO)]
    known = _subjects(shown, "availability_set", "machine", "cache")
    for column, subjects in known.items():
        shown = [row for row in shown if getattr(row, f"{column}_id") in {None, *subjects}]
    for row in shown:
        row.event = event
        _attach(row, known)
    return shown


def _subjects(rows: Sequence[Entry], *columns: str) -> dict[str, Mapping[Any, Any]]:
    """Return the visible subjects of these rows by column and row id. At most one query for each column."""
    known: dict[str, Mapping[Any, Any]] = {}
    for column in columns:
        model: Any = Entry._meta.get_field(column).related_model
        subjects = visible(model, every=True)
        subjects = subjects.defer("compute") if model is Machine else subjects
        known[column] = subjects.in_bulk({getattr(row, f"{column}_id") for row in rows} - {None})
    return known


def _attach(row: Entry, known: Mapping[str, Mapping[Any, Any]]) -> None:
    """Set the subjects of a row. A subject that is not in `known` becomes None."""
    for column, subjects in known.items():
        setattr(row, column, subjects.get(getattr(row, f"{column}_id")))


def documents_of(event: ScheduledEvent, sightings: Sequence[Sighting]) -> ArchivedDocuments:
    """Return the archived documents about an event: for each machine up to the last one that lists the event, with
    their bodies. One query.
    """
    files = files_of(ArchiveKind.OBSERVATIONS, event.pk)
    if not files:
        return ArchivedDocuments()
    wanted = {f'"machine_id" : "{sighting.machine_id}",'.encode() for sighting in sightings}

    def choose(lines: Iterator[bytes]) -> list[bytes]:
        bodies: dict[str, bytes] = {}
        chosen: list[bytes] = []
        for line in lines:
            if line.startswith(BODY):
                bodies[json.loads(line)["body"]["hash"]] = line
            elif b'"kind" : "document",' in line and any(name in line for name in wanted):
                chosen.append(line)
        named = {json.loads(line)["document_id"] for line in chosen}
        return [*(bodies[each] for each in sorted(named & bodies.keys())), *chosen]

    found, fault = gathered(files, event.pk, choose)
    last = {s.machine_id: last_place(s) for s in sightings}
    reports = [instance_of(Observation, row_of(line)) for line in found if not line.startswith(BODY)]
    bodies = [instance_of(DocumentBody, json.loads(line)["body"]) for line in found if line.startswith(BODY)]
    return ArchivedDocuments(
        tuple(r for r in reports if r.machine_id in last and (r.epoch, r.seq) <= last[r.machine_id]),
        tuple(bodies),
        max(file.archived_at for file in files),
        fault,
    )


# Archived entries by subject and time, from the archive's files.

# Time limit for one file, in seconds.
ARCHIVE_SPAN_SECONDS = 60.0
PORTION = 500


@dataclass(frozen=True, slots=True)
class ArchivedSpan:
    """Filter of archived entries by subject and time. `about` has row ids by column (for example `machine_id`); if it
    is empty, any subject matches. `acts`: only actions of users and rules. The times are those of the events, not of
    writing.
    """

    about: Mapping[str, Sequence[int]] = field(default_factory=dict)
    acts: bool = False
    since: datetime | None = None
    until: datetime | None = None

    def has(self, entry: Entry) -> bool:
        return (
            all(getattr(entry, column) in ids for column, ids in self.about.items())
            and (not self.acts or entry.via in ACTING)
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
        )

    def may_have(self, line: bytes) -> bool:
        """Return whether a line of an archive file may match. It is a fast check before the line is parsed."""
        return all(any(f'"{column}" : "{pk}",'.encode() in line for pk in ids) for column, ids in self.about.items())


def archived_rows(wanted: ArchivedSpan) -> Iterator[TimelineRow]:
    """Yield the matching archived entries in the order in which they were written. Each file is verified completely
    before its entries are yielded. Raises StoreError or BadArchiveError.
    """
    # Older files cannot contain entries from this time on.
    recent = Q(last_at__gte=wanted.since) if wanted.since else Q()
    files = list(_archived().filter(recent).order_by("number"))
    where = store()
    if files and where is None:
        raise StoreError(StoreFault.AWAY)
    for file in files:
        found: list[Entry] = []
        # `fetched` verifies all lines before it yields the first.
        for line in stores.fetched(where, file.parsed_manifest, seconds=ARCHIVE_SPAN_SECONDS) if where else ():
            if not wanted.may_have(line):
                continue
            entry = instance_of(Entry, row_of(line))
            if wanted.has(entry):
                found.append(entry)
            if len(found) >= PORTION:
                yield from _rows(found)
                found = []
        yield from _rows(found)


def _rows(found: list[Entry]) -> tuple[TimelineRow, ...]:
    """Convert entries to rows, with those of their subjects that still exist. At most five queries."""
    known = _subjects(found, "event", "availability_set", "machine", "cache")
    for row in found:
        _attach(row, known)
    return rows_of(found)
