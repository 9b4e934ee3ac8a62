"""The catalogue says of every partition what is in it, without reading it whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleet.models import Entry
from fleet.models.partitions import TABLES, partitions

NOW = datetime(2022, 4, 11, 22, 12, 0, tzinfo=UTC)
ENTRIES = next(each for each in TABLES if each.table == Entry._meta.db_table)
pytestmark = pytest.mark.django_db


def test_an_empty_table_has_one_open_partition_with_nothing_in_it() -> None:
    (only,) = partitions(ENTRIES)
    assert (only.first_id, only.last_id, only.oldest, only.newest) == (None, None, None, None)
    assert only.is_open and not only.is_detaching


def test_its_ends_are_the_first_and_the_last_row() -> None:
    rows = Entry.objects.bulk_create(Entry(at=NOW, kind="note", text="x") for _ in range(3))
    (only,) = partitions(ENTRIES)
    assert (only.first_id, only.last_id) == (rows[0].pk, rows[-1].pk)
    assert only.oldest is not None and only.newest is not None and only.oldest <= only.newest
    assert only.size > 0


def test_every_table_has_at_least_one() -> None:
    assert [table for table in TABLES if not partitions(table)] == []
