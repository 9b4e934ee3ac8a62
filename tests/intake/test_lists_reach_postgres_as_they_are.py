"""What a batch is written down with: lists are put into words here, and Postgres reads the same in them."""

from copy import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.domain.times import EARLIEST
from fleet.models import Entry, Sighting, driver
from tests import factories

HOSTILE = [
    '"', "\\", '\\"', "{a,b}", "NULL", "null", "", " ", ",", "\n\t\r", "ü\U0001f600", "'); DROP TABLE x; --", "%s",
]  # fmt: skip
MOMENT = datetime(2026, 10, 5, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", [*HOSTILE, None]), ("int8", [0, -(2**63), 2**63 - 1, None]), ("float8", [0.0, -1.5, 1e300, None]),
        ("bool", [True, False, None]), ("timestamptz", [MOMENT, EARLIEST, None]),
        ("bytea", [b"", b"\x00\xff\\\"'{},", bytes(range(256)), None]), ("text", []),
    ],
)  # fmt: skip
def test_postgres_reads_what_was_put_down(kind: str, values: list[Any]) -> None:
    for _ in range(3):
        # The third time the statement is prepared.
        with driver.cursor() as cursor:
            row = cursor.execute(f"SELECT %s::{kind}[]", [driver.array(values)]).fetchone()
        assert row == (values,)


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    """Of two machines one lists an event."""
    fleet = factories.Fleet()
    fleet.enrol_set(2)
    fleet.say("vm1", factories.listing("EVENT", resources=["vm1"]))
    return fleet


def test_rows_are_written_over_those_that_are_there(fleet: factories.Fleet) -> None:
    known = Sighting.objects.get()
    for text in HOSTILE:
        known.description, known.resources, known.gone_seq = text, HOSTILE, None
        driver.upsert([known], unique=["event_id", "machine_id"])
        found = Sighting.objects.get()
        assert (found.pk, found.description, found.resources, found.gone_seq) == (known.pk, text, HOSTILE, None)
        assert (found.first_at, found.foreign, found.not_before) == (known.first_at, False, known.not_before)


def test_new_rows_and_known_ones_go_together_and_none_is_no_statement(fleet: factories.Fleet) -> None:
    known = Sighting.objects.get()
    other = copy(known)
    other.pk, other.machine_id, known.status = None, fleet.agents["vm2"].machine.pk, "Started"
    with CaptureQueriesContext(connection) as asked:
        driver.upsert([], unique=["event_id", "machine_id"])
    assert len(asked) == 0
    driver.upsert([known, other], unique=["event_id", "machine_id"])
    assert [*Sighting.objects.order_by("machine_id").values_list("machine_id", "status")] == [
        (known.machine_id, "Started"), (other.machine_id, other.status),
    ]  # fmt: skip


def test_new_rows_get_their_ids_in_order_and_what_they_leave_out_the_database_fills_in(fleet: factories.Fleet) -> None:
    event_id = Sighting.objects.get().event_id
    rows = [
        Entry(at=MOMENT, kind="note", why=text, event_id=event_id, before=before, data={text: text})
        for text, before in zip(HOSTILE, [None, {}, [], 0, False, None, *[{"a": None}] * 7], strict=True)
    ]
    driver.insert(rows)
    driver.insert([])
    assert [row.pk for row in rows] == sorted({row.pk for row in rows})
    found = Entry.objects.in_bulk([row.pk for row in rows])
    for row in rows:
        read = found[row.pk]
        assert (read.at, read.why, read.before, read.after, read.data) == (row.at, row.why, row.before, None, row.data)
        assert (read.event_id, read.machine_id, read.xid > 0, read.recorded_at > MOMENT) == (event_id, None, True, True)
    assert Entry.objects.filter(pk__in=found, before__isnull=True).count() == 2


def test_rows_are_changed_where_they_still_are_what_was_read(fleet: factories.Fleet) -> None:
    known = Sighting.objects.get()
    other = copy(known)
    other.pk, other.machine_id = None, fleet.agents["vm2"].machine.pk
    driver.insert([other])
    for row, text in ((known, HOSTILE[0]), (other, HOSTILE[1])):
        row.description, row.resources, row.gone_seq = text, HOSTILE, 7
    names = ("description", "resources", "gone_seq")
    assert driver.update([], names, read={"status": []}) == set()
    read = {"status": [known.status, "Odd"], "gone_at": [None, None]}
    assert driver.update([known, other], names, read=read) == {known.pk}
    found = {row.pk: row for row in Sighting.objects.all()}
    assert [getattr(found[known.pk], name) for name in names] == [HOSTILE[0], HOSTILE, 7]
    assert (found[other.pk].description, found[other.pk].gone_seq) != (HOSTILE[1], 7)
    # Nothing is as it was read where it was nothing, and is something now.
    assert driver.update([known], names, read={"gone_seq": [None]}) == set()


def test_what_postgres_would_not_read_the_same_is_no_list(db: None) -> None:
    with pytest.raises(TypeError, match="no dict goes into a list"):
        driver.array([{}])
    given, left = Entry(at=MOMENT, kind="note", recorded_at=MOMENT), Entry(at=MOMENT, kind="note")
    with pytest.raises(TypeError, match="no DatabaseDefault goes into a list"):
        driver.insert([given, left])
