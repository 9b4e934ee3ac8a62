"""Archived entries: a command prints those of sets, machines, caches and acts; lists name the file and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.audit import archived_entries, stores
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.models import ArchiveFile
from fleet.models import Entry
from fleet.models.timeline import ACTING
from tests import factories
from tests.archive.shelves import all_ids, archived, damage, folder, gone, under_seals

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def left(tmp_path: Path, settings: Any) -> Iterator[list[Entry]]:
    """The entries of a fleet with an approval, which all have left, in two files; one that came later has not."""
    archived_entries._cache.clear()
    settings.ARCHIVE_URL = folder(tmp_path).shown()
    factories.freeze_completed(factories.Fleet())
    under_seals(2, 2)
    rows, ids = list(Entry.objects.order_by("era", "xid", "pk")), all_ids()
    files = archived(folder(tmp_path), ArchiveKind.ENTRIES, ids, most_rows=2)
    under_seals(1, 2)
    gone(*files)
    yield rows
    archived_entries._cache.clear()


def printed(*options: str) -> list[dict[str, Any]]:
    out = StringIO()
    call_command("archived_entries", *options, stdout=out)
    return [json.loads(line) for line in out.getvalue().split("\n")[:-1]]


def test_everything_that_has_left_is_printed_in_its_order(left: list[Entry]) -> None:
    assert ArchiveFile.objects.count() == 2
    assert [row["id"] for row in printed()] == [row.pk for row in left]
    assert [row["kind"] for row in printed()] == [row.kind for row in left]
    assert all(row["text"] for row in printed())


def test_print_is_limited_by_the_filters(left: list[Entry]) -> None:
    machine = next(row.machine_id for row in left if row.machine_id)
    home = next(row.availability_set_id for row in left if row.availability_set_id)
    middle = sorted(row.at for row in left)[len(left) // 2]
    for options, wanted in (
        (["--machine", str(machine)], [row for row in left if row.machine_id == machine]),
        (["--set", str(home)], [row for row in left if row.availability_set_id == home]),
        (["--acts"], [row for row in left if row.via in ACTING]),
        (["--since", middle.isoformat()], [row for row in left if row.at >= middle]),
        (["--until", middle.isoformat(), "--acts"], [row for row in left if row.at < middle and row.via in ACTING]),
        (["--machine", "999999999"], []),
        # A machine whose number begins so is another one.
        (["--machine", f"{machine}0"], []),
        (["--since", "2999-01-01"], []),
    ):
        assert [row["id"] for row in printed(*options)] == [row.pk for row in wanted], options


def test_a_time_that_is_none_is_refused(db: None) -> None:
    for text in ("yesterday", "2026-13-01", "2026-02-30T99:00"):
        with pytest.raises(CommandError, match="is no time"):
            call_command("archived_entries", "--since", text)


def test_a_file_that_is_not_as_it_was_written_ends_it(left: list[Entry], tmp_path: Path) -> None:
    damage(max((tmp_path / "archive").glob("*.gz")))
    out = StringIO()
    with pytest.raises(CommandError, match="what follows is not printed"):
        call_command("archived_entries", stdout=out)
    whole = [json.loads(line)["id"] for line in out.getvalue().split("\n")[:-1]]
    assert whole == [row.pk for row in left[: len(whole)]]
    assert 0 < len(whole) < len(left)


def test_without_an_archive_the_command_prints_nothing_and_fails(left: list[Entry], settings: Any) -> None:
    settings.ARCHIVE_URL = ""
    with pytest.raises(CommandError, match="broken off"):
        printed()


def test_nothing_has_left_yet(db: None) -> None:
    assert printed() == []


def test_lists_name_the_file_and_the_command_to_admins(left: list[Entry], client: Client) -> None:
    newest = ArchiveFile.objects.order_by("-number")[0].parsed_manifest.name
    home = next(row.availability_set_id for row in left if row.availability_set_id)
    machine = next(row.machine_id for row in left if row.machine_id)
    client.force_login(factories.person("ada", "admin"))
    for address, command in (
        (f"/sets/{home}/", f"archived_entries --set {home}</code>"),
        (f"/machines/{machine}/", f"archived_entries --machine {machine}</code>"),
        ("/audit/", "archived_entries --acts</code>"),
        ("/timeline/", "archived_entries</code>"),
        # A link with a crafted query adds nothing to the command that an admin copies.
        ("/audit/?set=1;reboot", "archived_entries --acts</code>"),
    ):
        page = client.get(address).content.decode()
        assert command in page, address
        assert newest in page
    client.force_login(factories.person("vic", "viewer"))
    page = client.get("/audit/").content.decode()
    assert newest not in page
    assert "An administrator can print" in page


def test_a_span_that_begins_later_opens_no_earlier_file(left: list[Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    whole = stores.fetched
    monkeypatch.setattr(stores, "fetched", lambda store, one, **more: opened.append(one) or whole(store, one, **more))
    newest = ArchiveFile.objects.order_by("-last_at")[0].last_at
    printed("--since", (newest + timedelta(days=1)).isoformat())
    assert opened == []
