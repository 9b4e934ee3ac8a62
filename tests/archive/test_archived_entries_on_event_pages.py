"""Archived entries on an event's page and in its API: bounded reads, and only rows that the reader may see."""

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.audit import archived_entries, stores
from fleet.audit.archive_format import ArchiveKind, StoreError, StoreFault
from fleet.audit.models import ArchiveFile
from fleet.domain.people import Rights
from fleet.models import Entry, Observation, ScheduledEvent
from fleet.models.timeline import ACTING
from fleet.projections import intake, visibility
from tests import factories
from tests.archive.shelves import LATER, all_ids, archived, damage, folder, gone, under_seals

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event(tmp_path: Path, settings: Any) -> Iterator[ScheduledEvent]:
    """An event of which all but the last seal's entries have left."""
    archived_entries._cache.clear()
    settings.ARCHIVE_URL = folder(tmp_path).shown()
    fleet = factories.Fleet()
    found = factories.freeze_completed(fleet)
    under_seals(1, 2, event_id=found.pk)
    ids = all_ids()
    under_seals(1, 2, event_id=found.pk)
    gone(*archived(folder(tmp_path), ArchiveKind.ENTRIES, ids, most_rows=1000))
    yield found
    archived_entries._cache.clear()


def ask(client: Client, address: str, **headers: str) -> Any:
    client.force_login(factories.person("vic", "viewer"))
    return client.get(address, headers=headers)


def test_the_page_says_that_there_is_more_and_brings_it_from_the_archive(client: Client, event: ScheduledEvent) -> None:
    page = ask(client, f"/events/{event.event_id}/").content.decode()
    assert f"in the archive of {LATER:%-d %B %Y}" in page
    part = client.get(f"/events/{event.event_id}/?part=archive", headers={"HX-Request": "true"}).content.decode()
    assert f"From the archive of {LATER:%-d %B %Y}" in part
    assert "Announced" in part or "seen" in part.lower()
    assert "&lt;b&gt;" in part
    assert "<b>{}" not in part
    alone = client.get(f"/events/{event.event_id}/archive/")
    assert alone.status_code == 200
    assert "From the archive" in alone.content.decode()


def test_the_api_tells_the_whole_story_page_by_page(client: Client, event: ScheduledEvent) -> None:
    client.force_login(factories.person("vic", "viewer"))
    address = f"/api/v1/events/{event.event_id}/timeline/"
    whole = client.get(address, {"page_size": 200}).json()["results"]
    assert len(whole) > Entry.objects.filter(event=event).count()
    assert [row["at"] for row in whole] == sorted(row["at"] for row in whole)
    found, following = [], f"{address}?page_size=3"
    while following:
        answer = client.get(following)
        assert answer.status_code == 200, answer.content
        found += answer.json()["results"]
        following = answer.json()["next"]
    assert [row["id"] for row in found] == [row["id"] for row in whole]
    machine = next(row["machine"]["id"] for row in whole if row["machine"])
    of_one = client.get(address, {"machine": machine, "page_size": 200}).json()["results"]
    assert of_one
    assert {row["machine"]["id"] for row in of_one} == {machine}


def test_a_store_that_does_not_answer_costs_the_part_and_not_the_page(
    client: Client, event: ScheduledEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise StoreError(StoreFault.SLOW)

    monkeypatch.setattr(stores.Folder, "get", silent)
    assert ask(client, f"/events/{event.event_id}/").status_code == 200
    part = client.get(f"/events/{event.event_id}/?part=archive", headers={"HX-Request": "true"}).content.decode()
    assert "cannot be" in part
    assert "answers too slowly" in part
    answer = client.get(f"/api/v1/events/{event.event_id}/timeline/")
    assert answer.status_code == 503
    assert answer.json()["type"].endswith("archive-away")


def test_a_store_that_hangs_is_left_after_its_time(event: ScheduledEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = os.pipe()

    def hanging(*_: Any, **__: Any) -> Any:
        os.read(begun, 1)
        yield b""

    monkeypatch.setattr(stores.Folder, "get", hanging)
    monkeypatch.setattr(archived_entries, "SECONDS", 0.05)
    try:
        # However many come meanwhile.
        assert [archived_entries.entries_of(event.event_id).fault for _ in range(6)] == ["store-slow"] * 6
    finally:
        os.write(end, b"123456")
        os.close(end)


def test_an_altered_file_is_not_shown_and_what_was_read_once_is_kept(event: ScheduledEvent, tmp_path: Path) -> None:
    (path,) = (tmp_path / "archive").glob("*.gz")
    whole = path.read_bytes()
    damage(path)
    told = archived_entries.entries_of(event.event_id)
    assert (told.entries, told.fault) == ((), "archive-altered")
    path.write_bytes(whole)
    first = archived_entries.entries_of(event.event_id)
    assert first.entries
    path.unlink()
    assert [row.pk for row in archived_entries.entries_of(event.event_id).entries] == [row.pk for row in first.entries]


def test_who_may_not_see_the_set_reads_nothing_of_it_from_the_archive(event: ScheduledEvent, settings: Any) -> None:
    settings.SCOPED_READ_ACCESS = True
    for scopes, sees in (((("name", "db*"),), False), ((("name", "web*"),), True)):
        with visibility.reading_as(None):
            visibility.set_reader(Rights(frozenset({"viewer"}), scopes), name="vic")
            assert bool(archived_entries.entries_of(event.event_id).entries) is sees


def test_documents_that_have_left_are_shown_with_who_read_them(event: ScheduledEvent, tmp_path: Path) -> None:
    before = intake.for_event(event_id=event.event_id)
    (file,) = archived(folder(tmp_path), ArchiveKind.OBSERVATIONS, all_ids(Observation), most_rows=1000)
    Observation.objects.all().delete()
    type(file).objects.filter(pk=file.pk).update(dropped_at=LATER)
    after = intake.for_event(event_id=event.event_id)
    assert before is not None and after is not None
    assert after.documents == before.documents != ()
    assert (after.archived_at, after.fault) == (LATER, "")


# Archived entries: a command prints those of sets, machines, caches and acts; lists name the file and the command.


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


def test_everything_that_has_left_is_printed_in_its_order(left: list[Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ArchiveFile.objects.count() == 2
    rows = printed()
    assert [(row["id"], row["kind"]) for row in rows] == [(row.pk, row.kind) for row in left]
    assert all(row["text"] for row in rows)
    # A span that begins later opens no earlier file.
    opened = []
    whole = stores.fetched
    monkeypatch.setattr(stores, "fetched", lambda store, one, **more: opened.append(one) or whole(store, one, **more))
    newest = ArchiveFile.objects.order_by("-last_at")[0].last_at
    assert (printed("--since", (newest + timedelta(days=1)).isoformat()), opened) == ([], [])


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
    assert printed() == []
    for text in ("yesterday", "2026-13-01", "2026-02-30T99:00"):
        with pytest.raises(CommandError, match="is no time"):
            printed("--since", text)


def test_a_file_that_is_not_as_it_was_written_ends_it(left: list[Entry], tmp_path: Path, settings: Any) -> None:
    damage(max((tmp_path / "archive").glob("*.gz")))
    out = StringIO()
    with pytest.raises(CommandError, match="what follows is not printed"):
        call_command("archived_entries", stdout=out)
    whole = [json.loads(line)["id"] for line in out.getvalue().split("\n")[:-1]]
    assert whole == [row.pk for row in left[: len(whole)]]
    assert 0 < len(whole) < len(left)
    settings.ARCHIVE_URL = ""
    with pytest.raises(CommandError, match="broken off"):
        printed()


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
