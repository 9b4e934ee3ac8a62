"""There is always a partition for what comes: the last is open-ended, and it is closed in time."""

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from fleet.audit.partition_drop import make_ahead
from fleet.models import DocumentBody, Entry, Notification, Observation
from fleet.models.driver import query
from fleet.models.facts.blind_spots import troubles
from fleet.models.partitions import BODIES, ENTRIES, NOTIFICATIONS, OBSERVATIONS, REPORTERS, TABLES, partitions
from fleet.notifications.models import MESSAGES, Message

NOW = datetime(2022, 4, 11, 22, 12, 0, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("own")


def write(count: int = 1) -> list[Entry]:
    return Entry.objects.bulk_create(Entry(at=NOW, kind="note", text="x") for _ in range(count))


def number(of: Any, last: int) -> None:
    """The next row's number is the one behind this."""
    query("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", *of.numbers, last)


def bounds(of: Any = ENTRIES) -> list[tuple[int | None, int | None]]:
    return [(each.begin, each.end) for each in partitions(of)]


def make() -> list[str]:
    return list(make_ahead(now=timezone.now(), via="test").made)


def test_a_small_installation_has_one_and_none_is_made() -> None:
    write()
    assert make() == []
    assert {len(partitions(of)) for of in TABLES} == {1}


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
    for of in (OBSERVATIONS, BODIES, NOTIFICATIONS, MESSAGES):
        number(of, 900)
    tables = ("documentbody", "message", "notification", "observation", "reporter")
    assert sorted(make()) == [f"fleet_{table}_from_2000" for table in tables]
    assert bounds(REPORTERS) == bounds(NOTIFICATIONS) == [(None, 2000), (2000, None)]
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
        assert make_ahead(now=NOW, via="test").held
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
    of = next(each for each in TABLES if each.table == model._meta.db_table)
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
