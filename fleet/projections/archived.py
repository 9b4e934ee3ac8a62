"""Interface for reading archived rows. The archive is empty unless an annex registers functions that read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.models import DocumentBody, Entry, Observation, ScheduledEvent, Sighting


@dataclass(frozen=True, slots=True)
class ArchivedEntries:
    """Archived entries of an event, and when their files were written. `fault` is a code if some of them cannot be
    read. Empty if none are archived.
    """

    entries: tuple[Entry, ...] = ()
    archived_at: datetime | None = None
    fault: str = ""
    files: int = 0

    def __bool__(self) -> bool:
        return self.files > 0


@dataclass(frozen=True, slots=True)
class ArchivedUntil:
    """Time of the newest archived entry, and the name of the file that contains it."""

    at: datetime
    file: str


@dataclass(frozen=True, slots=True)
class ArchivedDocuments:
    """Archived reports of documents, and the bodies that they refer to; `fault` as in `ArchivedEntries`."""

    reports: tuple[Observation, ...] = ()
    bodies: tuple[DocumentBody, ...] = ()
    archived_at: datetime | None = None
    fault: str = ""


@dataclass(slots=True)
class Archive:
    """Functions that read the archive.

    `entries_of` returns the archived entries of an event by EventId in any case. `archived_at` returns when entries of
    an event (row id) were archived. `archived_until` returns the newest archived entry. `documents_of` returns the
    documents of these sightings of an event.
    """

    entries_of: Callable[[str], ArchivedEntries] = lambda event_id: ArchivedEntries()
    archived_at: Callable[[int], datetime | None] = lambda event_pk: None
    archived_until: Callable[[], ArchivedUntil | None] = lambda: None
    documents_of: Callable[[ScheduledEvent, Sequence[Sighting]], ArchivedDocuments] = lambda event, sightings: (
        ArchivedDocuments()
    )


ARCHIVE = Archive()
