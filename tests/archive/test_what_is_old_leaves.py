"""Retention: old rows are archived, read back, counted, dropped and marked once, even if any step is killed."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from fleet.audit import archive, retention, stores
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.models import ArchiveFile, ArchiveState, ExpiringPartition
from fleet.audit.seals import Finding, verify
from fleet.domain.timeline import EntryKind
from fleet.models import Entry
from fleet.models.partitions import Partition
from fleet.operations.blind_spots import LOOKS
from fleet.operations.locks import Lock
from tests.archive.blob_service import REFUSALS, BlobService, blob_service
from tests.archive.shelves import LATER, all_ids, folder, under_seals

pytestmark = pytest.mark.django_db(transaction=True)


class Killed(BaseException):
    """Stand-in for `kill -9`: no code cleans up after it."""


@pytest.fixture
def old(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> ExpiringPartition:
    """A partition of ten entries that is old enough, as two files; five entries behind it are not."""
    settings.ARCHIVE_URL = folder(tmp_path).shown()
    monkeypatch.setattr(archive, "MOST_ROWS", 5)
    monkeypatch.setattr(retention, "archive_next", lambda *a, **o: archive.archive_next(*a, **o, most_rows=5))
    under_seals(2, 5)
    first, last = all_ids()
    under_seals(1, 5)
    partition = Partition("fleet_entry", "old", first, last + 1, first, last, 10, 1, LATER, LATER)
    leaving = ExpiringPartition(ArchiveKind.ENTRIES, partition, LATER)
    monkeypatch.setattr(retention, "take_out", drop)
    monkeypatch.setattr(retention, "due", lambda *, now: [leaving] if Entry.objects.filter(pk=first).exists() else [])
    return leaving


def drop(one: ExpiringPartition, *, now: datetime) -> None:
    """As a partition goes: without a DELETE that triggers would hear of."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE fleet_entry DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM fleet_entry WHERE id BETWEEN %s AND %s", list(one.ids))
        cursor.execute("ALTER TABLE fleet_entry ENABLE TRIGGER USER")


def run() -> retention.Retained:
    return retention.retain(now=LATER)


def whole() -> None:
    """All fifteen rows are there once, here or there, and their files are marked, with one entry."""
    findings: list[Finding] = []
    verified = verify(now=datetime.now(UTC), tell=findings.append)
    assert [finding.reason for finding in findings] == []
    assert (verified.seals, verified.rows, verified.files) == (3, 15, 2)
    assert Entry.objects.filter(kind=EntryKind.SET_CHANGED.value).count() == 5
    assert [file.number for file in ArchiveFile.objects.order_by("number") if file.dropped_at] == [1, 2]
    (told,) = Entry.objects.filter(kind=EntryKind.ROWS_ARCHIVED.value)
    assert (told.data["rows"], told.data["files"]) == (10, [1, 2])


def test_old_rows_are_archived_and_recorded_once(old: ExpiringPartition) -> None:
    done = run()
    assert (done.files, done.dropped, done.held, done.fault) == (2, ["old"], {}, "")
    whole()
    assert run().files == 0
    # Nor does a clock that is set back drop anything twice.
    retention.retain(now=LATER - timedelta(days=900))
    whole()


STEPS = ((archive, "next_portion _write _keep"), (retention, "covered take_out _settle tell _note"))


def test_process_killed_at_any_step_continues_where_it_was(
    old: ExpiringPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((module, name) for module, names in STEPS for name in names.split()):
        plain = getattr(module, name)
        for after in (False, True):

            def killed(*args: Any, plain: Any = plain, after: bool = after, **options: Any) -> Any:
                if after:
                    plain(*args, **options)
                raise Killed

            monkeypatch.setattr(module, name, killed)
            # A step that no longer runs is not killed.
            with suppress(Killed):
                run()
            monkeypatch.setattr(module, name, plain)
            # Its connection went with it.
            connection.close()
    for _ in range(2):
        run()
    whole()


def test_of_two_at_once_one_works(old: ExpiringPartition) -> None:
    with psycopg.connect(_address(), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [Lock.ARCHIVE.value])
        assert run().ran is False
    assert not ArchiveFile.objects.exists()


def _address() -> str:
    given = connection.get_connection_params()
    return " ".join(
        f"{name}={given[name]}" for name in ("host", "port", "dbname", "user", "password") if given.get(name)
    )


@pytest.fixture
def blobs(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobService]:
    monkeypatch.setattr(stores, "SILENCE_SECONDS", 0.2)
    with blob_service() as service:
        settings.ARCHIVE_URL = service.address
        yield service


def archive_fails(minutes: int) -> bool:
    """Whether a comparison so many minutes later finds that archiving fails."""
    now = LATER + timedelta(minutes=minutes)
    return any(one.code == "archive-fails" for look in LOOKS for one in look(now=now, via="test"))


def test_a_store_in_trouble_stops_the_archive_and_nothing_else(old: ExpiringPartition, blobs: BlobService) -> None:
    for wicked, fault in {**REFUSALS, "lose": "store-differs"}.items():
        blobs.wicked = wicked
        assert run().fault == fault
        assert Entry.objects.count() == 15
        assert not ArchiveFile.objects.exists()
    state = ArchiveState.objects.get()
    assert (state.fault, state.fault_since, state.worked_at) == ("store-differs", LATER, None)
    # The administrators are notified only once the fault has lasted.
    assert [archive_fails(minutes) for minutes in (1, 11)] == [False, True]
    blobs.wicked = ""
    assert run().dropped == ["old"]
    assert ArchiveState.objects.get().fault == ""
    assert not archive_fails(11)
    whole()


def test_a_spoilt_file_is_never_counted(old: ExpiringPartition, blobs: BlobService) -> None:
    blobs.wicked = "spoil"
    assert run().fault == "store-differs"
    # The archive never overwrites an existing file: an operator must remove the damaged one.
    blobs.wicked = ""
    assert run().fault == "store-differs"
    blobs.blobs.clear()
    assert run().dropped == ["old"]
    whole()


def test_without_an_archive_nothing_leaves(old: ExpiringPartition, settings: Any) -> None:
    settings.ARCHIVE_URL = ""
    assert run().dropped == []
    assert Entry.objects.count() == 15
