"""Archive stores: with any fault of a folder or Azure container, only files that were read back count."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from fleet.audit import stores
from fleet.audit.archive_format import StoreError
from fleet.audit.stores import Container, Folder, Store, store
from fleet.environment import Reader
from tests.archive.blob_service import KEY, REFUSALS, SIGNATURE, BlobService, blob_service

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


def test_a_store_that_trickles_is_left_after_its_time(blobs: BlobService) -> None:
    put(Container(blobs.address), b"content" * 1000)
    blobs.wicked = "trickle"
    assert fault(lambda: got(Container(blobs.address), seconds=0.2)) == "store-slow"


def test_unreachable_store_has_a_code(blobs: BlobService) -> None:
    address = blobs.address.replace(str(blobs.port), "1")
    assert fault(lambda: put(Container(address), b"content")) == "store-away"


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

    monkeypatch.setattr(os, "fsync", full)
    assert fault(lambda: put(Folder(tmp_path), b"content")) == "store-full"
    assert list(tmp_path.iterdir()) == []


def test_unusable_archive_folder_is_a_readable_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert fault(lambda: put(Folder(tmp_path / "file"), b"content")) == "store-away"


GOOD = (
    "file:///var/lib/drydock",
    f"https://a.blob.core.windows.net/c/f?{KEY}",
    f"http://127.0.0.1:10000/a/c?{KEY}",
    "",
)
BAD = (
    "file://host/folder", "file:///", "/var/lib", "ftp://a/b", f"http://a.blob.core.windows.net/c?{KEY}",
    "https://a.blob.core.windows.net", "https://user:word@a/c", "https://a:0/c", "https://a:x/c", "https://a/../c",
    "https:///c", "file:///a?sig=secret", "https://a/c#sig=secret",
)  # fmt: skip


def test_addresses_are_checked_and_none_is_repeated() -> None:
    for address in GOOD:
        assert Reader({"ARCHIVE_URL": address}).archive("ARCHIVE_URL") == address
    for address in BAD:
        with pytest.raises(ImproperlyConfigured) as raised:
            Reader({"ARCHIVE_URL": address}).archive("ARCHIVE_URL")
        assert "sig" not in str(raised.value).replace("its signature", "")
    for address, kind in ((GOOD[0], Folder), (GOOD[1], Container), ("", type(None))):
        with override_settings(ARCHIVE_URL=address):
            assert isinstance(store(), kind)


def test_days_are_a_number_or_for_ever() -> None:
    for text, days in (("30", 30), ("for ever", None), ("For Ever", None), ("36500", 36_500)):
        assert Reader({"DOCUMENT_RETENTION_DAYS": text}).days("DOCUMENT_RETENTION_DAYS") == days
    for text in ("0", "-1", "1.5", "never", "99999", "٣"):
        with pytest.raises(ImproperlyConfigured):
            Reader({"DOCUMENT_RETENTION_DAYS": text}).days("DOCUMENT_RETENTION_DAYS")
