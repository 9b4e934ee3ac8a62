"""There is always a partition for what comes. One goes when nothing in it is needed, while others read and write; else
it stays, and says why.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from fleet.audit import archived_entries, partition_drop, retention, seals
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.models import ArchiveFile, due
from fleet.audit.partition_drop import RetainReason, drop_partition, finish_drops, make_ahead
from fleet.audit.queries import storage
from fleet.models import DocumentBody, Entry, LatestDocument, Notification, Observation, ScheduledEvent, Seal
from fleet.models import partitions as tables
from fleet.models.driver import query
from fleet.models.facts.blind_spots import troubles
from fleet.models.partitions import BODIES, ENTRIES, OBSERVATIONS, Partition, PartitionedTable, partitions
from fleet.notifications.models import MESSAGES, Message
from fleet.operations.locks import Lock, exclusively
from fleet.projections import intake
from tests.archive.shelves import findings
from tests.databases import database, database_named, django_on
from tests.factories import NOW, Fleet, announced, freeze_completed
from tests.processes import wait_for

LATER = timezone.now() + timedelta(days=400)
pytestmark = pytest.mark.usefixtures("own")


@pytest.fixture
def own(migrated_template: str, django_db_blocker: DjangoDbBlocker, settings: Any) -> Iterator[str]:
    """A database of its own with partitions of a thousand rows: what is made and taken out here is not rolled back."""
    settings.PARTITION_ROWS = 1000
    with database(migrated_template) as name, django_db_blocker.unblock(), django_on(name):
        yield database_named(name)


def number(of: PartitionedTable, last: int) -> None:
    """The next row's number is the one behind this."""
    query("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", *of.numbers, last)


def bounds(of: PartitionedTable = ENTRIES) -> list[tuple[int | None, int | None]]:
    return [(each.begin, each.end) for each in partitions(of)]


def make() -> list[str]:
    return make_ahead(now=timezone.now(), via="test")[0]


def closed(of: PartitionedTable) -> Partition:
    """The first partition of the table, with another behind it in which new rows stand."""
    number(of, 900)
    make()
    number(of, 2500)
    return partitions(of)[0]


def leave(of: PartitionedTable, partition: Partition, **besides: Any) -> RetainReason | None:
    wanted = {"before": LATER, "archived_to": 10**9, "now": NOW, "via": "test", **besides}
    return drop_partition(of, partition, **wanted)


def write(count: int = 1) -> list[Entry]:
    return Entry.objects.bulk_create(Entry(at=NOW, kind="note", text="x") for _ in range(count))


def test_it_stays_until_it_is_closed_old_archived_and_sealed_and_goes_with_its_rows_alone() -> None:
    write(2)
    assert leave(ENTRIES, partitions(ENTRIES)[0]) is RetainReason.OPEN
    first = closed(ENTRIES)
    write()
    assert leave(ENTRIES, first, before=NOW) is RetainReason.TOO_NEW
    assert leave(ENTRIES, first, archived_to=None) is RetainReason.NOT_ARCHIVED
    assert first.last_id is not None
    assert leave(ENTRIES, first, archived_to=first.last_id - 1) is RetainReason.NOT_ARCHIVED
    assert leave(ENTRIES, first, archived_to=first.last_id) is RetainReason.NOT_SEALED
    seals.seal(now=NOW, via="test")
    assert leave(ENTRIES, first, archived_to=first.last_id) is None
    assert [each.name for each in partitions(ENTRIES)] == ["fleet_entry_from_2000"]
    assert Entry.objects.count() == 1
    assert query("SELECT to_regclass('fleet_entry_from_0')") == [(None,)]


def test_partitions_needed_by_an_open_event_are_retained() -> None:
    fleet = Fleet()
    announced(fleet)
    seals.seal(now=NOW, via="test")
    assert leave(ENTRIES, closed(ENTRIES)) is RetainReason.NEEDED
    assert leave(OBSERVATIONS, closed(OBSERVATIONS)) is RetainReason.NEEDED


def test_a_message_that_waits_stays() -> None:
    query(
        "INSERT INTO fleet_message (moment, subject, at, created_at, due_at, only_if, severity, service, drill, data,"
        " state, why) VALUES ('x', 'event:1', now(), now(), now(), '', 'info', '', false, '{}', 'WAITING', '')"
    )
    first = closed(MESSAGES)
    assert leave(MESSAGES, first) is RetainReason.NEEDED
    query("UPDATE fleet_message SET state = 'TOLD'")
    assert leave(MESSAGES, first) is None


def test_referenced_bodies_are_carried_forward_and_found() -> None:
    announced(Fleet())
    needed = set(LatestDocument.objects.values_list("document_hash", flat=True))
    query(
        "INSERT INTO fleet_documentbody_all (hash, body, readable, flags, first_received_at)"
        " VALUES ('gone', 'x', true, '[]', now())"
    )
    first = closed(BODIES)
    assert leave(BODIES, first) is None
    assert needed
    remaining = {name for (name,) in query("SELECT hash FROM fleet_documentbody_all")}
    assert needed <= remaining
    assert "gone" not in remaining


def test_long_reader_delays_the_drop_and_the_next_run_finishes_it(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_drop, "WAIT_SECONDS", 0.1)
    write(2)
    first = closed(ENTRIES)
    seals.seal(now=NOW, via="test")
    with closing(psycopg.connect(own)) as reader, closing(psycopg.connect(own, autocommit=True)) as writer:
        reader.execute("SELECT count(*) FROM fleet_entry")
        assert leave(ENTRIES, first) is RetainReason.HELD
        # Meanwhile others write and read; the reader still sees all that it saw.
        writer.execute(
            "INSERT INTO fleet_entry (at, kind, actor, via, text, data) SELECT now(), 'x', '', '', 'x', '{}'"
        )
        assert writer.execute("SELECT count(*) FROM fleet_entry").fetchone() == (1,)
        assert finish_drops() == []
    assert finish_drops() == ["fleet_entry_from_0"]
    assert finish_drops() == []


def test_drop_is_finished_after_a_kill_between_detach_and_drop() -> None:
    write(2)
    closed(ENTRIES)
    query(f"COMMENT ON TABLE fleet_entry_from_0 IS '{partition_drop.DROP_MARK}'")
    query("ALTER TABLE fleet_entry DETACH PARTITION fleet_entry_from_0 CONCURRENTLY")
    assert finish_drops() == ["fleet_entry_from_0"]


def test_it_never_leaves_within_a_transaction() -> None:
    first = closed(ENTRIES)
    with transaction.atomic(), pytest.raises(RuntimeError):
        leave(ENTRIES, first)


def test_drop_keeps_the_sessions_locks_and_timeouts() -> None:
    write(2)
    first = closed(ENTRIES)
    seals.seal(now=NOW, via="test")
    with exclusively(Lock.ARCHIVE):
        query("SET lock_timeout = '1234ms'")
        assert leave(ENTRIES, first) is None
        held = query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert (held, query("SHOW lock_timeout")) == ([(1,)], [("1234ms",)])


# Retention with real partitions: archived, taken out, and still read; what outlives its partition moves on.


@pytest.fixture
def event(tmp_path: Path, settings: Any) -> Iterator[ScheduledEvent]:
    """An event that is over, in partitions behind which others begin; entries leave after ten days."""
    settings.ARCHIVE_URL = f"file://{tmp_path}/archive"
    settings.RETENTION_DAYS = {**settings.RETENTION_DAYS, "entries": 10}
    archived_entries._cache.clear()
    found = freeze_completed(Fleet())
    wait_for(partial(all_sealed, Entry.objects.order_by("-pk")[0].pk), seconds=20, what="all of it is sealed")
    for table in (OBSERVATIONS, ENTRIES, BODIES):
        closed(table)
    # What comes now stands behind all of these.
    again = Fleet(now=NOW + timedelta(minutes=30))
    again.enrol("later")
    again.say("later")
    yield found
    archived_entries._cache.clear()


def all_sealed(last: int) -> bool:
    seals.seal(now=NOW, via="test")
    return Seal.objects.filter(last_id__gte=last).exists()


def runs(now: datetime) -> list[str]:
    """Return the archived entries after the last archiving step."""
    dropped: list[str] = []
    while True:
        done = retention.retain(now=now)
        assert done.ran
        assert done.fault == ""
        if not done.dropped:
            return dropped
        dropped += done.dropped


def test_archived_entries_stay_readable_and_the_audit_verifies(event: ScheduledEvent) -> None:
    before = intake.for_event(event_id=event.event_id)
    entries = set(Entry.objects.filter(event=event).values_list("pk", flat=True))
    assert "fleet_entry_from_0" in runs(timezone.now() + timedelta(days=1000))
    assert not Entry.objects.filter(event=event).exists()
    assert {row.pk for row in archived_entries.entries_of(event.event_id).entries} == entries
    assert findings() == []
    kinds = ArchiveFile.objects.exclude(dropped_at=None).values_list("kind", flat=True)
    assert {ArchiveKind.ENTRIES.value, ArchiveKind.OBSERVATIONS.value} == set(kinds)
    after = intake.for_event(event_id=event.event_id)
    assert before is not None and after is not None
    assert [one.hash for one in after.documents] == [one.hash for one in before.documents]
    assert storage(now=timezone.now()).archive.files == ArchiveFile.objects.count()


def test_documents_with_an_event_and_latest_ones_stay_longer_than_the_others(event: ScheduledEvent) -> None:
    before = intake.for_event(event_id=event.event_id)
    assert before is not None
    count = Observation.objects.count()
    assert "fleet_observation" in runs(NOW + timedelta(days=31))
    # No file is asked.
    archived_entries._cache.clear()
    listing = {one.hash for one in before.documents if one.lists_event}
    kept = set(Observation.objects.values_list("document_id", flat=True))
    assert listing <= kept
    assert set(LatestDocument.objects.values_list("document_hash", flat=True)) <= kept
    assert Observation.objects.count() < count
    assert "fleet_observation" not in {one.name for one in partitions(OBSERVATIONS)}


def test_report_partition_drops_only_after_needed_rows_are_copied(event: ScheduledEvent) -> None:
    later = NOW + timedelta(days=31)
    first = partitions(OBSERVATIONS)[0]
    leaves = partial(
        drop_partition, OBSERVATIONS, first, before=later, archived_to=first.last_id, now=later, via="test"
    )
    assert leaves() is RetainReason.NOT_COPIED
    (leaving,) = (one for one in due(now=later) if one.partition.name == first.name)
    assert retention.copy_forward(leaving, now=later) > 0
    # A copied row is lost again: retention checks the copies before it drops the partition.
    last = Observation.objects.order_by("-pk")[0]
    query(f"ALTER TABLE {OBSERVATIONS.table} DISABLE TRIGGER USER")
    query(f"DELETE FROM {OBSERVATIONS.table} WHERE id = %s", last.pk)
    query(f"ALTER TABLE {OBSERVATIONS.table} ENABLE TRIGGER USER")
    assert leaves() is RetainReason.NOT_COPIED
    assert retention.copy_forward(leaving, now=later) == 1
    assert leaves() is None


# There is always a partition for what comes: the last is open-ended, and it is closed in time.


def test_a_small_installation_has_one_and_none_is_made() -> None:
    write()
    assert make() == []
    assert {len(partitions(of)) for of in tables.TABLES} == {1}


def test_before_the_first_is_full_it_is_closed_and_another_begins() -> None:
    write(3)
    number(ENTRIES, 501)
    assert make() == ["fleet_entry_from_2000"]
    assert bounds() == [(None, 2000), (2000, None)]
    assert make() == []
    number(ENTRIES, 1999)
    (last,) = write()
    assert last.pk == 2000
    assert [each.rows for each in partitions(ENTRIES)] == [3, 1]
    assert Entry.objects.count() == 4


def test_every_table_grows_by_its_own_numbers() -> None:
    for of in (OBSERVATIONS, BODIES, tables.NOTIFICATIONS, MESSAGES):
        number(of, 900)
    names = ("documentbody", "message", "notification", "observation", "reporter")
    assert sorted(make()) == [f"fleet_{name}_from_2000" for name in names]
    assert bounds(tables.REPORTERS) == bounds(tables.NOTIFICATIONS) == [(None, 2000), (2000, None)]
    assert bounds(ENTRIES) == [(None, None)]


def test_missing_partitions_for_a_month_lose_no_rows() -> None:
    number(ENTRIES, 900)
    make()
    number(ENTRIES, 1_000_000)
    write(2)
    assert "partition-late" in {each.code for each in troubles(now=NOW)}
    # What has grown stays one; behind it all is as it was meant to be.
    assert make() == ["fleet_entry_from_1001000"]
    assert bounds() == [(None, 2000), (2000, 1_001_000), (1_001_000, None)]
    assert "partition-late" not in {each.code for each in troubles(now=NOW)}
    assert Entry.objects.count() == 2


def test_two_that_make_them_at_once_make_one(own: str) -> None:
    number(ENTRIES, 900)
    with closing(psycopg.connect(own)) as other:
        other.execute("SELECT pg_advisory_xact_lock(7001196, hashtext('fleet_entry'))")
        assert make() == []
    assert make() == ["fleet_entry_from_2000"]


def test_long_reader_blocks_neither_the_run_nor_writers(own: str) -> None:
    number(ENTRIES, 900)
    with closing(psycopg.connect(own)) as reader:
        reader.execute("SELECT count(*) FROM fleet_entry")
        assert make_ahead(now=NOW, via="test")[1]
        write()
    assert make() == ["fleet_entry_from_2000"]


def test_interrupted_run_is_repaired_by_the_next(own: str) -> None:
    write(2)
    number(ENTRIES, 900)
    # As between its two transactions.
    query("ALTER TABLE fleet_entry_from_0 ADD CONSTRAINT fleet_entry_from_0_ends CHECK (id < 950) NOT VALID")
    assert make() == ["fleet_entry_from_2000"]
    number(ENTRIES, 1200)
    write()
    assert query("SELECT count(*) FROM pg_constraint WHERE conname LIKE '%\\_ends'") == [(0,)]


def test_no_room_on_the_disk_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    number(ENTRIES, 900)
    # Something fails once the new one is there: Postgres takes all of it back.
    query("CREATE TABLE fleet_entry_from_2000 (id int)")
    with pytest.raises(DatabaseError):
        make()
    write()
    assert bounds() == [(None, None)]


def test_numbers_after_a_manual_restore_continue_after_the_last_row() -> None:
    write(3)
    number(ENTRIES, 1)
    make()
    (row,) = write()
    assert row.pk == 4


@pytest.mark.parametrize("statement", ["UPDATE {} SET text = 'y'", "DELETE FROM {}", "TRUNCATE {}"])
def test_the_timeline_refuses_changes_of_every_partition(statement: str) -> None:
    write(1)
    number(ENTRIES, 900)
    make()
    number(ENTRIES, 2500)
    write(1)
    for table in ("fleet_entry", *(each.name for each in partitions(ENTRIES))):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            query(statement.format(table))
    assert Entry.objects.count() == 2


@pytest.mark.parametrize("model", [DocumentBody, Entry, Message, Notification, Observation])
def test_a_new_partition_has_every_index_of_the_one_before(model: Any) -> None:
    of = next(each for each in tables.TABLES if each.table == model._meta.db_table)
    number(of, 900)
    make()
    earlier, new = (
        sorted(
            line.split(" USING ")[1] + str("UNIQUE" in line)
            for (line,) in query("SELECT indexdef FROM pg_indexes WHERE tablename = %s", each.name)
        )
        for each in partitions(of)
    )
    assert earlier == new


# The catalogue says of every partition what is in it, without reading it whole.


def test_the_ends_of_a_partition_are_its_first_and_its_last_row() -> None:
    (only,) = partitions(ENTRIES)
    assert (only.first_id, only.last_id, only.oldest, only.newest) == (None, None, None, None)
    assert only.is_open and not only.is_detaching
    rows = write(3)
    (only,) = partitions(ENTRIES)
    assert (only.first_id, only.last_id) == (rows[0].pk, rows[-1].pk)
    assert only.oldest is not None and only.newest is not None and only.oldest <= only.newest
    assert only.size > 0
