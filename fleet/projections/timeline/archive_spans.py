"""Entries that have left the database, by what they are about and when they happened, out of the archive's files.

Nobody waits at a page for it: files are read one after the other, each to its end, which takes seconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from fleet.domain.archive import ArchiveKind, StoreError, StoreFault, row_of
from fleet.models import ArchiveFile, AvailabilitySet, Cache, Entry, Machine, ScheduledEvent
from fleet.models.archive import read
from fleet.models.archive.lines import instance_of
from fleet.models.archive.stores import store
from fleet.models.timeline import ACTING
from fleet.projections.sight import seen
from fleet.projections.timeline.entries import TimelineRow, rows_of

# For one file.
SECONDS = 60.0
PORTION = 500


@dataclass(frozen=True, slots=True)
class LeftSpan:
    """`about` has row ids by column (`machine_id`); without any, entries are about anything. `acts`: only what people
    and rules did. Times are those at which it happened.
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
        """Whether it is worth while to read this line: as files hold it, all values are texts."""
        return all(any(f'"{column}" : "{pk}",'.encode() in line for pk in ids) for column, ids in self.about.items())


def files_left(*, since: datetime | None = None) -> QuerySet[ArchiveFile]:
    """The files of entries that are in the database no more, the oldest first, and only those in which something may
    have happened since then: what happened was written afterwards.
    """
    files = seen(ArchiveFile).filter(kind=ArchiveKind.ENTRIES.value, dropped_at__isnull=False)
    return (files.filter(last_at__gte=since) if since else files).defer("events").order_by("number")


def rows_left(wanted: LeftSpan) -> Iterator[TimelineRow]:
    """These entries, in the order in which they were written. Raises StoreError or BadArchiveError: what a file holds
    is given only once all of it is known to be as it was written.
    """
    files = list(files_left(since=wanted.since))
    where = store()
    if files and where is None:
        raise StoreError(StoreFault.AWAY)
    for file in files:
        found: list[Entry] = []
        # With `fetched` its lines are whole before the first is given.
        for line in read.fetched(where, file.told, seconds=SECONDS) if where else ():
            if not wanted.may_have(line):
                continue
            entry = instance_of(Entry, row_of(line))
            if wanted.has(entry):
                found.append(entry)
            if len(found) >= PORTION:
                yield from _told(found)
                found = []
        yield from _told(found)


def _told(found: list[Entry]) -> tuple[TimelineRow, ...]:
    """With what they are about, as far as that is still there. Five queries at most."""
    known: dict[str, Mapping[Any, Any]] = {
        "event": seen(ScheduledEvent).in_bulk({row.event_id for row in found} - {None}),
        "availability_set": seen(AvailabilitySet).in_bulk({row.availability_set_id for row in found} - {None}),
        "machine": seen(Machine).defer("compute").in_bulk({row.machine_id for row in found} - {None}),
        "cache": seen(Cache).in_bulk({row.cache_id for row in found} - {None}),
    }
    for row in found:
        for name, things in known.items():
            setattr(row, name, things.get(getattr(row, f"{name}_id")))
    return rows_of(found)
