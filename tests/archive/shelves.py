"""What the tests of the archive begin with: entries under seals, reports of agents, and a folder for their files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Max, Min

from fleet.audit import archive
from fleet.audit import seals as seal
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.models import ArchiveFile
from fleet.audit.seals import Finding
from fleet.audit.stores import Folder, Store
from fleet.domain.actor import Actor, ActorKind
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Seal
from fleet.operations.timeline.entries import entry, write
from tests.processes import wait_for

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(days=500)
ADA = Actor(ActorKind.PERSON, "ada", "page", why="because")
# What a hostile machine calls itself.
HOSTILE = 'a\nb\tc\\n \x01\x02\x1f\x7f \u2028 ü“” \U0001f600 <b>{}</b> ","v":2'


def written(count: int, *, at: datetime = NOW, event_id: int | None = None) -> None:
    """So many entries, committed, with what a hostile machine may have said."""
    rows = []
    for number in range(count):
        before, after = {"service": None, "n": number}, {"service": HOSTILE, "n": [1, 2.5, None, {"a": True}]}
        row = entry(EntryKind.SET_CHANGED, ADA, at=at, event_id=event_id, before=before, after=after)
        row.text = f"{number} {HOSTILE}"
        rows.append(row)
    with transaction.atomic():
        write(rows)


def _sealed(number: int) -> bool:
    seal.seal(now=NOW + timedelta(minutes=number), via="beat")
    return Seal.objects.count() == number


def under_seals(seals: int, rows: int, *, event_id: int | None = None) -> None:
    """So many seals over so many rows each."""
    for _ in range(seals):
        number = Seal.objects.count() + 1
        written(rows, event_id=event_id)
        # While any session on this server writes, in whatever database, the newest rows cannot be sealed yet.
        wait_for(partial(_sealed, number), seconds=20, what="what was written is sealed")


def all_ids(model: Callable[..., object] = Entry) -> tuple[int, int]:
    found = model.objects.aggregate(Min("pk"), Max("pk"))  # type: ignore[attr-defined]
    return found["pk__min"], found["pk__max"]


def archived(store: Store, kind: ArchiveKind, ids: tuple[int, int], *, most_rows: int = 10) -> list[ArchiveFile]:
    """All of these rows, in files of so many."""
    files = []
    while (made := archive.archive_next(store, kind, *ids, now=LATER, most_rows=most_rows)) is not None:
        files.append(made)
    return files


def findings(**asked: Any) -> list[Finding]:
    """What the verification of the timeline finds."""
    found: list[Finding] = []
    seal.verify(tell=found.append, **{"now": datetime.now(UTC), **asked})
    return found


def damage(path: Path) -> None:
    """Change one bit near the end of a file, in its checksum."""
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)


def folder(path: Path) -> Folder:
    return Folder(path / "archive")


@contextmanager
def without_triggers() -> Iterator[CursorWrapper]:
    """A cursor that may change entries and seals, which the database otherwise refuses."""
    tables = ("fleet_entry", "fleet_seal")
    with transaction.atomic(), connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield cursor
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def drop(first_id: int, last_id: int) -> None:
    """As a partition goes: without a DELETE that triggers would hear of."""
    with without_triggers() as cursor:
        cursor.execute("DELETE FROM fleet_entry WHERE id BETWEEN %s AND %s", [first_id, last_id])


def gone(*files: ArchiveFile) -> None:
    """As when their partition was dropped: the rows are nowhere but in the files."""
    for file in files:
        drop(file.first_id, file.last_id)
    ArchiveFile.objects.filter(pk__in=[file.pk for file in files]).update(dropped_at=LATER)
