"""A later migration gives a table in partitions an index, and every partition has it, also one that comes later."""

from __future__ import annotations

import pytest
from django.db import connection, models
from django.db.migrations.state import ProjectState

from fleet.audit.partition_drop import make_ahead
from fleet.models import Entry
from fleet.models.partitions import ENTRIES, AddIndexToPartitions, partitions
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("own")


def indexes(table: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef LIKE '%%(kind, at DESC)%%'", [table]
        )
        return [line for (line,) in cursor.fetchall()]


def test_it_stands_on_each_of_them_and_goes_again() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('fleet_entry', 'id'), 900)")
    make_ahead(now=NOW, via="test")
    add = AddIndexToPartitions("entry", models.Index(fields=["kind", "-at"], name="entry_tried"))
    before = ProjectState.from_apps(Entry._meta.apps)
    after = before.clone()
    add.state_forwards("fleet", after)
    for _ in range(2):
        # Twice: the first was killed before it was noted.
        with connection.schema_editor(atomic=False) as editor:
            add.database_forwards("fleet", editor, before, after)
    assert [len(indexes(each.name)) for each in partitions(ENTRIES)] == [1, 1]
    with connection.cursor() as cursor:
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'entry_tried'::regclass")
        assert cursor.fetchone() == (True,)
        cursor.execute("SELECT setval(pg_get_serial_sequence('fleet_entry', 'id'), 1900)")
    make_ahead(now=NOW, via="test")
    assert [len(indexes(each.name)) for each in partitions(ENTRIES)] == [1, 1, 1]
    with connection.schema_editor(atomic=False) as editor:
        add.database_backwards("fleet", editor, after, before)
    assert [len(indexes(each.name)) for each in partitions(ENTRIES)] == [0, 0, 0]
