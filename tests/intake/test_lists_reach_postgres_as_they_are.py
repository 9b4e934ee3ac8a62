"""What a batch is written down with: lists are put into words here, and Postgres reads the same in them."""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.domain.times import EARLIEST
from fleet.models import Sighting, driver
from tests import factories

HOSTILE = [
    '"',
    "\\",
    '\\"',
    "{a,b}",
    "NULL",
    "null",
    "",
    " ",
    ",",
    "\n\t\r",
    "ü\U0001f600",
    "'); DROP TABLE x; --",
    "%s",
]
MOMENT = datetime(2026, 10, 5, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", [*HOSTILE, None]),
        ("int8", [0, -(2**63), 2**63 - 1, None]),
        ("float8", [0.0, -1.5, 1e300, None]),
        ("bool", [True, False, None]),
        ("timestamptz", [MOMENT, EARLIEST, None]),
        ("bytea", [b"", b"\x00\xff\\\"'{},", bytes(range(256)), None]),
        ("text", []),
    ],
)
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
