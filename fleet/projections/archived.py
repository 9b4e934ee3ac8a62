"""What is read of rows that have left the database for the archive. Nothing, until an annex says how."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.models import DocumentBody, Entry, Observation, ScheduledEvent, Sighting


@dataclass(frozen=True, slots=True)
class ArchivedEntries:
    """Archived entries of an event as they were, when their files were written, and, as a code, why some are missing;
    empty where none are.
    """

    entries: tuple[Entry, ...] = ()
    archived_at: datetime | None = None
    fault: str = ""
    files: int = 0

    def __bool__(self) -> bool:
        return self.files > 0


@dataclass(frozen=True, slots=True)
class ArchivedUntil:
    """The time of the newest archived entry, and the name of its file."""

    at: datetime
    file: str


@dataclass(frozen=True, slots=True)
class ArchivedDocuments:
    """Archived reports of documents, with the bodies that they name; `fault` as in `ArchivedEntries`."""

    reports: tuple[Observation, ...] = ()
    bodies: tuple[DocumentBody, ...] = ()
    archived_at: datetime | None = None
    fault: str = ""


@dataclass(slots=True)
class Archive:
    """How the archive is read: the entries of an event (EventId in any case); when those of an event (row id) were
    archived; up to when entries are archived; and the documents behind these sightings of an event.
    """

    entries_of: Callable[[str], ArchivedEntries] = lambda event_id: ArchivedEntries()
    archived_at: Callable[[int], datetime | None] = lambda event_pk: None
    archived_until: Callable[[], ArchivedUntil | None] = lambda: None
    documents_of: Callable[[ScheduledEvent, Sequence[Sighting]], ArchivedDocuments] = lambda event, sightings: (
        ArchivedDocuments()
    )


ARCHIVE = Archive()
