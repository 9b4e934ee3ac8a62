"""What a batch is written down with: lists are put into words here, and Postgres reads the same in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.domain.times import EARLIEST
from fleet.models import driver

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
