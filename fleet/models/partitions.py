"""What is kept in Postgres' own partitions, by ranges of ids, and which partitions there are.

The last partition of each table is open-ended: there is never a row without a place. It is closed in time, while it is
empty or nearly so, and another begins behind it (`fleet.operations.partitions`). One leaves as a whole.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from psycopg import sql

from fleet.models.caches import Notification
from fleet.models.intake import Observation
from fleet.models.messages import Message
from fleet.models.timeline import Entry

# By the ends of a partition: rows come nearly in the order of their ids, those of long transactions a little late.
NEAR = 1000
BOUNDS = re.compile(r"FOR VALUES FROM \((.+)\) TO \((.+)\)")


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """One table that is kept by ranges of `key`, a column of numbers that grow. `time` says when a row was written."""

    table: str
    key: str
    time: str


TABLES: tuple[PartitionedTable, ...] = (
    PartitionedTable(Observation._meta.db_table, "id", "received_at"),
    PartitionedTable(Entry._meta.db_table, "id", "recorded_at"),
    PartitionedTable(Notification._meta.db_table, "id", "received_at"),
    PartitionedTable(Message._meta.db_table, "id", "created_at"),
)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a table, by its own name: keys from `begin` (None: from the first) up to and without `end`
    (None: it is the last one, and open-ended).

    `first_id` and `last_id` are the keys of its first and last row, `oldest` and `newest` when they were written; None
    where it is empty. `rows` is Postgres' estimate, `size` bytes with indexes. `is_leaving`: it is being taken out.
    """

    table: str
    name: str
    begin: int | None
    end: int | None
    first_id: int | None
    last_id: int | None
    rows: int
    size: int
    oldest: datetime | None
    newest: datetime | None
    is_leaving: bool = False

    @property
    def is_open(self) -> bool:
        """It takes what is written now or later: nothing that is archived of it would be all."""
        return self.end is None


def partitions(of: PartitionedTable) -> list[Partition]:
    """Of this table, in the order of their ids. As many statements as there are, and one; each by an index."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT leaf.relname, pg_get_expr(leaf.relpartbound, leaf.oid), leaf.reltuples::bigint,
                   pg_total_relation_size(leaf.oid), coalesce(link.inhdetachpending, false)
            FROM pg_class AS leaf LEFT JOIN pg_inherits AS link ON link.inhrelid = leaf.oid
            -- A table that is not partitioned yet is its own and only one.
            WHERE leaf.relkind = 'r' AND to_regclass(%s) IN (link.inhparent, leaf.oid)
            """,
            [of.table],
        )
        for name, bounds, rows, size, leaving in cursor.fetchall():
            begin, end = _bounds(bounds)
            first, last, oldest, newest = _ends(of, name)
            estimate = rows if rows >= 0 else 0 if first is None or last is None else last - first + 1
            found.append(
                Partition(of.table, name, begin, end, first, last, estimate, size, oldest, newest, bool(leaving))
            )
    return sorted(found, key=lambda each: -1 if each.begin is None else each.begin)


def all_partitions(tables: Sequence[PartitionedTable] = TABLES) -> list[Partition]:
    """Of all these tables, table by table."""
    return [each for table in tables for each in partitions(table)]


def _bounds(text: str | None) -> tuple[int | None, int | None]:
    found = BOUNDS.match(text or "")
    begin, end = (each.strip("'") for each in found.groups()) if found else ("MINVALUE", "MAXVALUE")
    return (None if begin == "MINVALUE" else int(begin), None if end == "MAXVALUE" else int(end))


def _ends(of: PartitionedTable, name: str) -> tuple[int | None, int | None, datetime | None, datetime | None]:
    statement = sql.SQL(
        """
        SELECT (SELECT min({key}) FROM {leaf}), (SELECT max({key}) FROM {leaf}),
               (SELECT min({time}) FROM (SELECT {time} FROM {leaf} ORDER BY {key} LIMIT {near}) AS first),
               (SELECT max({time}) FROM (SELECT {time} FROM {leaf} ORDER BY {key} DESC LIMIT {near}) AS last)
        """
    ).format(
        key=sql.Identifier(of.key), time=sql.Identifier(of.time), leaf=sql.Identifier(name), near=sql.Literal(NEAR)
    )
    with connection.cursor() as cursor:
        cursor.execute(statement)
        first, last, oldest, newest = cursor.fetchone() or (None, None, None, None)
    return first, last, oldest, newest
