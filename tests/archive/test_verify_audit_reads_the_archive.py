"""`verify_audit` across the archive: it checks files and live rows as one chain, and names each altered file."""

import gzip
import hashlib
import json
import os
from datetime import UTC, datetime
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.audit import archive_format as form
from fleet.audit import seals, stores
from fleet.audit.archive_format import PIECE, ArchiveKind, BadArchiveError, StoreError, instance_of, row_of
from fleet.audit.models import ArchiveFile
from fleet.audit.stores import checked
from fleet.domain.timeline import NO_HASH
from fleet.models import DocumentBody, Entry, Observation, Seal
from tests.archive.shelves import HOSTILE, all_ids, archived, damage, findings, folder, gone, under_seals, written
from tests.factories import Fleet, listing, the_event

pytestmark = pytest.mark.django_db(transaction=True)
Shelf = list[ArchiveFile]


@pytest.fixture
def shelf(tmp_path: Path, settings: Any) -> Shelf:
    """Three files over four seals of five rows; the first two have left, the third is still in the database, too."""
    store = folder(tmp_path)
    settings.ARCHIVE_URL = store.shown()
    under_seals(4, 5)
    first, last = all_ids()
    files = archived(store, ArchiveKind.ENTRIES, (first, last - 5), most_rows=5)
    gone(*files[:2])
    return files


def codes() -> set[str]:
    return {finding.reason.code for finding in findings()}


def path_of(tmp_path: Path, file: ArchiveFile) -> Path:
    return tmp_path / "archive" / file.parsed_manifest.name


def test_rows_in_files_and_in_the_database_are_one_chain(shelf: Shelf) -> None:
    out = StringIO()
    call_command("verify_audit", stdout=out)
    assert Entry.objects.count() == 10
    assert "4 seals over 20 rows were computed again" in out.getvalue()
    assert "3 files of the archive were read to their ends" in out.getvalue()
    assert findings(first=3) == []
    # The look by the way takes what is there.
    assert seals.check(now=datetime.now(UTC), via="beat") is None


def test_a_seal_across_two_files_and_the_database_holds(tmp_path: Path, settings: Any) -> None:
    store = folder(tmp_path)
    settings.ARCHIVE_URL = store.shown()
    under_seals(2, 5)
    first, last = all_ids()
    # Partitions end where they end: in the middle of the second seal.
    halves = ((first, first + 6), (first + 7, last - 1))
    files = [file for ids in halves for file in archived(store, ArchiveKind.ENTRIES, ids)]
    assert [(file.rows, file.first_seal, file.last_seal) for file in files] == [(7, 1, 2), (2, 2, 2)]
    gone(*files)
    assert findings() == []


def test_every_change_of_a_file_is_found(shelf: Shelf, tmp_path: Path) -> None:
    path, other = (path_of(tmp_path, file) for file in shelf[:2])
    whole = path.read_bytes()
    bombs = (gzip.compress(b"\0" * 50_000_000), gzip.compress(gzip.compress(b"\n" * 10_000_000)))
    cut = (whole[:-1], whole[: len(whole) // 2], b"", whole + b"\0", whole + whole)
    for content in (*cut, other.read_bytes(), *bombs):
        path.write_bytes(content)
        assert codes() == {"archive-altered"}
    path.write_bytes(whole)
    damage(other)
    assert [(one.reason.code, one.reason.values["file"]) for one in findings()] == [("archive-altered", 2)]
    with pytest.raises(CommandError, match="1 findings"):
        call_command("verify_audit", stdout=StringIO())
    # Of a file that unpacks to far more, no more than its manifest says is unpacked.
    with pytest.raises(BadArchiveError):
        next(form.unpacked([gzip.compress(b"")], most=10**12))
    pieces = form.unpacked([bombs[0]], most=2 * PIECE)
    assert len(list(islice(pieces, 2))) == 2
    with pytest.raises(BadArchiveError):
        next(pieces)


def test_a_missing_file_and_a_missing_manifest_are_found(shelf: Shelf, tmp_path: Path, settings: Any) -> None:
    path_of(tmp_path, shelf[1]).unlink()
    assert codes() == {"archive-missing"}
    (tmp_path / "archive" / shelf[0].parsed_manifest.manifest_name).unlink()
    assert codes() == {"archive-missing", "archive-manifest"}
    # Without the store each file is reported.
    settings.ARCHIVE_URL = ""
    assert codes() == {"store-away"}
    assert Seal.objects.count() == 4


def test_a_file_taken_out_of_the_catalogue_is_found(shelf: Shelf) -> None:
    shelf[1].delete()
    assert {"archive-reordered", "seal-over-other-rows"} <= codes()


def forged(tmp_path: Path, file: ArchiveFile, plain: bytes) -> None:
    """The file, its manifest and the catalogue say the same; only the seals know better."""
    content = gzip.compress(plain, mtime=0)
    file.manifest |= {"plain_bytes": len(plain), "content_sha256": hashlib.sha256(plain).hexdigest()}
    file.manifest |= {"packed_bytes": len(content), "file_sha256": hashlib.sha256(content).hexdigest()}
    made = file.parsed_manifest
    file.manifest |= {"name": made.name, "hash": made.hash}
    file.hash = made.hash
    file.save()
    (tmp_path / "archive" / made.name).write_bytes(content)
    (tmp_path / "archive" / made.manifest_name).write_bytes(made.as_file())


def test_owner_of_archive_and_catalogue_cannot_change_a_row(shelf: Shelf, tmp_path: Path) -> None:
    plain = gzip.decompress(path_of(tmp_path, shelf[0]).read_bytes())
    forged(tmp_path, shelf[0], plain.replace(b'"actor" : "ada"', b'"actor" : "eve"', 1))
    assert {"seal-broken", "archive-reordered"} <= codes()


def test_a_line_of_no_form_that_is_known_ends_nothing_but_its_file(shelf: Shelf, tmp_path: Path) -> None:
    first = gzip.decompress(path_of(tmp_path, shelf[0]).read_bytes()).split(b"\n")[0]
    for line in (b"[]", b"{", b'{"v" : 2}', b"\xff", b'{"v" : 1}', b"[" * 100_000, b'{"v" : 1, "id" : {}}'):
        forged(tmp_path, shelf[0], first + b"\n" + line + b"\n")
        assert "archive-unreadable" in codes()


def test_a_manifest_that_points_elsewhere_is_a_finding_and_leads_nowhere(shelf: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "archive" / shelf[0].parsed_manifest.manifest_name
    whole = json.loads(path.read_bytes())
    for changed in (
        {"kind": "../../etc"}, {"number": 7}, {"first_id": "../1"}, {"rows": None}, {"name": "../x", "seals": 3},
        {"content_sha256": "http://10.0.0.1/"},
    ):  # fmt: skip
        path.write_text(json.dumps({**whole, **changed}))
        assert codes() == {"archive-manifest"}
    path.write_bytes(b"[" * 1_000_000)
    assert codes() == {"archive-manifest"}
    for name in ("../../etc/passwd", "00000001-entries-1-2-0123456789ab.jsonl.gz/../x", "/etc/passwd", "a\n", ""):
        with pytest.raises(StoreError, match="store-bad-name"):
            checked(name)


def test_a_file_that_is_a_link_or_a_pipe_is_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    path = path_of(tmp_path, shelf[0])
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert codes() != set()
    path.unlink()
    os.mkfifo(path)
    assert codes() == {"archive-missing"}


# Archive files: rows are written whole, in an open format and a chain, and count only after they are read back.


def test_a_file_holds_whole_seals_and_its_manifest_says_all_that_one_needs(tmp_path: Path) -> None:
    under_seals(3, 5)
    written(2)
    store = folder(tmp_path)
    files = archived(store, ArchiveKind.ENTRIES, all_ids())
    assert [(one.rows, one.first_seal, one.last_seal) for one in files] == [(10, 1, 2), (5, 3, 3)]
    manifests = [one.parsed_manifest for one in files]
    assert (manifests[0].previous, manifests[1].previous) == (NO_HASH, files[0].hash)
    assert list(form.out_of_order(manifests)) == []
    for one in manifests:
        manifest = json.loads((store.path / one.manifest_name).read_bytes())
        plain = gzip.decompress((store.path / one.name).read_bytes())
        assert hashlib.sha256(plain).hexdigest() == manifest["content_sha256"]
        assert plain.count(b"\n") == manifest["rows"] + 1
        stores.check_manifest(store, one, seconds=5)
    # Those that have no seal yet stay, and what was archived once is not archived again.
    assert sum(one.rows for one in files) == Entry.objects.count() - 2
    assert archived(store, ArchiveKind.ENTRIES, all_ids()) == []


def test_row_with_any_text_is_read_back_unchanged(tmp_path: Path) -> None:
    under_seals(1, 3)
    (file,) = archived(folder(tmp_path), ArchiveKind.ENTRIES, all_ids())
    lines = stores.lines(folder(tmp_path), file.parsed_manifest, seconds=5)
    rows = [instance_of(Entry, row_of(line)) for line in lines]
    for row, kept in zip(rows, Entry.objects.order_by("xid", "id"), strict=True):
        assert {name: value for name, value in vars(row).items() if name != "_state"} == {
            name: value for name, value in vars(kept).items() if name != "_state"
        }
        assert row.text.endswith(HOSTILE)


def test_reports_leave_with_the_documents_that_they_name_also_where_these_are_no_text(tmp_path: Path) -> None:
    fleet = Fleet()
    fleet.enrol("vm1")
    fleet.say("vm1", listing())
    (kept,) = DocumentBody.objects.all()
    DocumentBody.objects.filter(pk=kept.pk).update(body=b"\xff\xfe\x00" + bytes(kept.body))
    store = folder(tmp_path)
    (file,) = archived(store, ArchiveKind.OBSERVATIONS, all_ids(Observation))
    lines = list(stores.lines(store, file.parsed_manifest, seconds=5))
    found = [row_of(line) for line in lines]
    bodies = [row for row in found if "body" in row]
    (body,) = [json.loads(line)["body"] for line in lines if b'"body"' in line]
    assert bytes(instance_of(DocumentBody, body).body).startswith(b"\xff\xfe\x00")
    assert file.rows == Observation.objects.count() == len(found) - len(bodies)
    assert file.events == [the_event().pk]
