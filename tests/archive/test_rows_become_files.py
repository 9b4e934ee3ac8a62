"""Archive files: rows are written whole, in an open format and a chain, and count only after they are read back."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from fleet.audit import stores
from fleet.audit.archive_format import ArchiveKind, instance_of, out_of_order, row_of
from fleet.audit.models import ArchiveFile
from fleet.domain.timeline import NO_HASH
from fleet.models import DocumentBody, Entry, Observation
from tests.archive.shelves import HOSTILE, all_ids, archived, folder, under_seals, written
from tests.factories import Fleet, listing, the_event

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_file_holds_whole_seals_and_its_manifest_says_all_that_one_needs(tmp_path: Path) -> None:
    under_seals(3, 5)
    written(2)
    store = folder(tmp_path)
    files = archived(store, ArchiveKind.ENTRIES, all_ids())
    assert [(one.rows, one.first_seal, one.last_seal) for one in files] == [(10, 1, 2), (5, 3, 3)]
    manifests = [one.parsed_manifest for one in files]
    assert (manifests[0].previous, manifests[1].previous) == (NO_HASH, files[0].hash)
    assert list(out_of_order(manifests)) == []
    for one in manifests:
        manifest = json.loads((store.path / one.manifest_name).read_bytes())
        plain = gzip.decompress((store.path / one.name).read_bytes())
        assert hashlib.sha256(plain).hexdigest() == manifest["content_sha256"]
        assert plain.count(b"\n") == manifest["rows"] + 1
        stores.check_manifest(store, one, seconds=5)
    # Those that have no seal yet stay.
    assert sum(one.rows for one in files) == Entry.objects.count() - 2


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


def test_what_was_archived_once_is_not_archived_again(tmp_path: Path) -> None:
    under_seals(2, 5)
    store = folder(tmp_path)
    assert len(archived(store, ArchiveKind.ENTRIES, all_ids(), most_rows=5)) == 2
    assert archived(store, ArchiveKind.ENTRIES, all_ids(), most_rows=5) == []
    assert ArchiveFile.objects.count() == 2
