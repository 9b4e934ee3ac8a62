"""Archive stores and retention: with any fault of a folder or Azure container, and if any step is killed, only files
that were read back count, and old rows leave once.
"""

import errno
import io
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from fleet.audit import archive, retention, stores
from fleet.audit.archive_format import ArchiveKind, StoreError
from fleet.audit.models import ArchiveFile, ArchiveState, ExpiringPartition
from fleet.audit.queries import LeavingRow, storage
from fleet.audit.retention import GIGABYTE, MOST_DAYS, Growth, Retained, days_until, next_step
from fleet.audit.seals import Finding, verify
from fleet.audit.stores import Container, Folder, Store, store
from fleet.configuration import table
from fleet.domain.timeline import EntryKind
from fleet.environment import days
from fleet.management.commands import archive as command
from fleet.models import Entry
from fleet.models.partitions import Partition
from fleet.operations.blind_spots import LOOKS
from fleet.operations.locks import Lock
from fleet.wording.timeline import ARCHIVED, FAULTS
from tests.archive.blob_service import KEY, REFUSALS, SIGNATURE, BlobService, blob_service
from tests.archive.shelves import LATER, all_ids, drop, folder, under_seals
from tests.holding import session

NAME = "00000001-entries-1-20-0123456789ab.jsonl.gz"


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobService]:
    monkeypatch.setattr(stores, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(stores, "WRITE_SECONDS", 0.3)
    with blob_service() as service:
        yield service


def put(where: Store, content: bytes) -> None:
    where.put(NAME, io.BytesIO(content), len(content))


def got(where: Store, *, seconds: float = 5) -> bytes:
    return b"".join(where.get(NAME, seconds=seconds))


def fault(call: Any) -> str:
    with pytest.raises(StoreError) as raised:
        call()
    return raised.value.fault.value


def test_what_is_put_is_what_is_got_and_is_never_overwritten(blobs: BlobService, tmp_path: Path) -> None:
    for where in (Container(blobs.address), Folder(tmp_path / "a" / "b")):
        assert fault(lambda where=where: got(where)) == "store-missing"
        put(where, b"content" * 1000)
        put(where, b"another")
        assert got(where) == b"content" * 1000
    assert blobs.strange == []
    assert set(blobs.asked) == {(method, f"/devstoreaccount1/drydock/eu/{NAME}") for method in ("PUT", "GET", "HEAD")}
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [NAME]


@pytest.mark.parametrize(("wicked", "why"), REFUSALS.items())
def test_each_refusal_has_a_code_and_no_redirect_is_followed(blobs: BlobService, wicked: str, why: str) -> None:
    blobs.wicked = wicked
    assert fault(lambda: put(Container(blobs.address), b"content")) == why
    assert fault(lambda: got(Container(blobs.address), seconds=0.3)) == why
    assert all(path.startswith("/devstoreaccount1/") for _, path in blobs.asked)


def test_a_store_that_trickles_is_left_after_its_time_and_an_unavailable_one_has_a_code(blobs: BlobService) -> None:
    put(Container(blobs.address), b"content" * 1000)
    blobs.wicked = "trickle"
    assert fault(lambda: got(Container(blobs.address), seconds=0.2)) == "store-slow"
    nowhere = Container(blobs.address.replace(str(blobs.port), "1"))
    assert fault(lambda: put(nowhere, b"content")) == "store-away"


def test_its_key_is_in_no_error_and_no_log(blobs: BlobService, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3").setLevel(logging.INFO)
    for address in (blobs.address, blobs.address.replace(str(blobs.port), "1")):
        where = Container(address)
        assert "sig" not in where.shown()
        for wicked in ("", "break", "redirect", "deny"):
            blobs.wicked = wicked
            try:
                put(where, b"content")
            except StoreError as error:
                told = repr(error) + repr(error.__cause__) + str(error)
                assert "sig" not in told
    assert SIGNATURE not in caplog.text


def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_text("")
    assert fault(lambda: put(Folder(tmp_path / "file"), b"content")) == "store-away"
    monkeypatch.setattr(os, "fsync", full)
    assert fault(lambda: put(Folder(tmp_path), b"content")) == "store-full"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


GOOD = ("file:///var/lib/drydock", f"https://a.blob.core.windows.net/c/f?{KEY}", f"http://127.0.0.1:1/a/c?{KEY}", "")
BAD = (
    "file://host/folder", "file:///", "/var/lib", "ftp://a/b", f"http://a.blob.core.windows.net/c?{KEY}",
    "https://a.blob.core.windows.net", "https://user:word@a/c", "https://a:0/c", "https://a:x/c", "https://a/../c",
    "https:///c", "file:///a?sig=secret", "https://a/c#sig=secret",
)  # fmt: skip


def test_addresses_are_checked_and_none_is_repeated() -> None:
    for address in GOOD:
        assert table["ARCHIVE_URL"].value({"ARCHIVE_URL": address}) == address
    for address in BAD:
        with pytest.raises(ImproperlyConfigured) as raised:
            table["ARCHIVE_URL"].value({"ARCHIVE_URL": address})
        assert "sig" not in str(raised.value).replace("its signature", "")
    for address, kind in ((GOOD[0], Folder), (GOOD[1], Container), ("", type(None))):
        with override_settings(ARCHIVE_URL=address):
            assert isinstance(store(), kind)


def test_days_are_a_number_or_for_ever() -> None:
    for text, count in (("30", 30), ("for ever", None), ("For Ever", None), ("36500", 36_500)):
        assert days.read(text) == count
    for text in ("0", "-1", "1.5", "never", "99999", "٣"):
        with pytest.raises(ValueError, match="has to be a number of days"):
            days.read(text)


# Storage forecast: expected database size, the day without space, and the command's report on the archive.


G = GIGABYTE


@pytest.mark.parametrize(
    ("kinds", "rest", "days"),
    [
        # What grows by one a day from two on is ten after eight days.
        ([Growth(2 * G, G)], 0, 8),
        ([Growth(G, G / 2), Growth(G, G / 2)], 0, 8),
        ([Growth(2 * G, G)], 3 * G, 5),
        # There already.
        ([Growth(10 * G, 0)], 0, 0),
        # The archive of five days holds no more than these bring, or the present amount if that is more.
        ([Growth(G, G, 5)], 0, None),
        ([Growth(8 * G, G, 5)], G, None),
        ([Growth(G, G, 5), Growth(0, G)], 0, 5),
        # Growth too slow to forecast.
        ([Growth(0, 10 * G / (MOST_DAYS + 1))], 0, None),
        ([Growth(0, 10 * G / MOST_DAYS)], 0, MOST_DAYS),
        ([], 0, None),
    ],
)
def test_when_there_is_no_more_room(kinds: list[Growth], rest: int, days: int | None) -> None:
    assert days_until(10 * G, kinds, rest) == days


def test_without_a_maximum_size_the_next_round_size_counts() -> None:
    assert [next_step(size) // G for size in (0, G - 1, G, 3 * G, 99 * G, 20_000 * G)] == [1, 1, 2, 5, 100, 40_000]


def said(**options: Any) -> str:
    out = StringIO()
    call_command("archive", stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
def test_the_command_says_what_left_what_stays_and_what_was_broken_off(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ARCHIVE_URL = ""
    with pytest.raises(CommandError, match="ARCHIVE_URL names no archive"):
        said()
    settings.ARCHIVE_URL = folder(tmp_path).shown()
    done = Retained(files=2, dropped=["fleet_entry_from_0"], held={"messages": "held-unsent"})
    monkeypatch.setattr(command, "retain", lambda **_: done)
    assert said().splitlines() == [
        f"2 files were written to {folder(tmp_path).shown()}.",
        "1 parts of tables left, fleet_entry_from_0.",
        f"Some {ARCHIVED['messages']} stay: {FAULTS['held-unsent']}.",
    ]
    done.fault = "store-away"
    with pytest.raises(CommandError, match="broken off"):
        said()
    done.ran = False
    with pytest.raises(CommandError, match="Another process"):
        said()


@pytest.mark.django_db
def test_dry_run_lists_what_is_archived_when(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ARCHIVE_URL = folder(tmp_path).shown()

    def never(**_: Any) -> Retained:
        raise AssertionError

    monkeypatch.setattr(command, "retain", never)
    assert said(dry_run=True) == "Nothing leaves yet.\n"
    plain = storage
    past, later = datetime(2020, 1, 1, tzinfo=UTC), datetime(2090, 1, 2, tzinfo=UTC) + timedelta(hours=3)
    rows = tuple(LeavingRow("entries", 10, 3 * 1024**2, at) for at in (past, later))

    monkeypatch.setattr(command, "storage", lambda **options: replace(plain(**options), next_archived=rows))
    first, second = said(dry_run=True).splitlines()
    assert first == f"now: 10 {ARCHIVED['entries']}, 3 MiB"
    assert "2090" in second


# Retention: old rows are archived, read back, counted, dropped and marked once, even if any step is killed.


class Killed(BaseException):
    """Stand-in for `kill -9`: no code cleans up after it."""


@pytest.fixture
def old(transactional_db: None, tmp_path: Path, settings: Any, monkeypatch: Any) -> ExpiringPartition:
    """A partition of ten entries that is old enough, as two files; five entries behind it are not."""
    settings.ARCHIVE_URL = folder(tmp_path).shown()
    monkeypatch.setattr(archive, "MOST_ROWS", 5)
    monkeypatch.setattr(retention, "archive_next", lambda *a, **o: archive.archive_next(*a, **o, most_rows=5))
    under_seals(2, 5)
    first, last = all_ids()
    under_seals(1, 5)
    partition = Partition("fleet_entry", "old", first, last + 1, first, last, 10, 1, LATER, LATER)
    leaving = ExpiringPartition(ArchiveKind.ENTRIES, partition, LATER)
    monkeypatch.setattr(retention, "take_out", lambda one, *, now: drop(*one.ids))
    monkeypatch.setattr(retention, "due", lambda *, now: [leaving] if Entry.objects.filter(pk=first).exists() else [])
    return leaving


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


def test_process_killed_at_any_step_continues_there(old: ExpiringPartition, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with session() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [Lock.ARCHIVE.value])
        assert run().ran is False
    assert not ArchiveFile.objects.exists()


def archive_fails(minutes: int) -> bool:
    """Whether a comparison so many minutes later finds that archiving fails."""
    now = LATER + timedelta(minutes=minutes)
    return any(one.code == "archive-fails" for look in LOOKS for one in look(now=now, via="test"))


@pytest.mark.usefixtures("old")
def test_a_store_in_trouble_stops_the_archive_and_nothing_else(blobs: BlobService, settings: Any) -> None:
    settings.ARCHIVE_URL = blobs.address
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


@pytest.mark.usefixtures("old")
def test_a_spoilt_file_is_never_counted(blobs: BlobService, settings: Any) -> None:
    settings.ARCHIVE_URL = blobs.address
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
