"""Partitioned tables by ranges of ids, and migrations of their indexes."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AddIndex
from django.db.migrations.state import ProjectState
from django.db.models import Model
from psycopg import sql

from fleet.models.caches import Notification, Reporter
from fleet.models.intake import DocumentBody, Observation
from fleet.models.timeline import Entry


class AddIndexToPartitions(AddIndex):
    """What `AddIndexConcurrently` is to a table that has no partitions, which Postgres does for none that has.

    Each partition gets its own, one after the other; then they become one. What was begun and not ended is begun anew.
    """

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        table, name = model._meta.db_table, self.index.name
        statement = str(self.index.create_sql(model, schema_editor))
        leaves = [leaf for (leaf,) in _ask("SELECT inhrelid::regclass::text FROM pg_inherits"
                                           " WHERE inhparent = to_regclass(%s) ORDER BY inhrelid", table)]  # fmt: skip
        own = {
            leaf: f"{name[:20]}_{hashlib.md5(leaf.encode(), usedforsecurity=False).hexdigest()[:8]}" for leaf in leaves
        }
        for leaf, index in own.items():
            if _ask("SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid", index) == []:
                _do(f"DROP INDEX CONCURRENTLY IF EXISTS {index}", _on(statement, "INDEX CONCURRENTLY", index, leaf))
        if _ask("SELECT FROM pg_class WHERE oid = to_regclass(%s)", name) == []:
            _do(_on(statement, "INDEX", name, f"ONLY {table}"))
        for index in own.values():
            if _ask("SELECT FROM pg_inherits WHERE inhrelid = to_regclass(%s)", index) == []:
                _do(f"ALTER INDEX {name} ATTACH PARTITION {index}")

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        _do(f"DROP INDEX IF EXISTS {self.index.name}")


def _on(statement: str, what: str, index: str, table: str) -> str:
    return re.sub(r"^CREATE INDEX \S+ ON \S+ ", f"CREATE {what} {index} ON {table} ", statement, count=1)


def _ask(statement: str, *values: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _do(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


# What is kept in Postgres' own partitions, by ranges of ids, and which partitions there are.

# By the ends of a partition: rows come nearly in the order of their ids, those of long transactions a little late.
NEAR = 1000
BOUNDS = re.compile(r"FOR VALUES FROM \((.+)\) TO \((.+)\)")


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """The table of a model that is kept by ranges of `key`, a column of numbers that grow. `time` says when a row was
    written.

    `numbers` is the table and column whose sequence gives the numbers. Of bodies, which move (`by_time`), the newest is
    not near the end. `first` is what the first partition is called; the others are called after what they begin with.
    """

    model: type[Model]
    key: str
    time: str
    first: str
    numbers: tuple[str, str]
    by_time: bool = False

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    def named(self, begin: int) -> str:
        """The name of a partition that begins there."""
        return f"{self.first.removesuffix('_from_0')}_from_{begin}"


def by_id(model: type[Model], time: str) -> PartitionedTable:
    """One that is kept by ranges of its own ids."""
    table = model._meta.db_table
    return PartitionedTable(model, "id", time, f"{table}_from_0", (table, "id"))


BODIES = PartitionedTable(
    DocumentBody,
    "number",
    "first_received_at",
    "fleet_documentbody",
    (DocumentBody._meta.db_table, "number"),
    by_time=True,
)
OBSERVATIONS = PartitionedTable(
    Observation, "id", "received_at", "fleet_observation", (Observation._meta.db_table, "id")
)
ENTRIES, NOTIFICATIONS = by_id(Entry, "recorded_at"), by_id(Notification, "received_at")
# Who heard a notification comes and goes with it.
REPORTERS = PartitionedTable(
    Reporter, "notification_id", "first_at", f"{Reporter._meta.db_table}_from_0", (Notification._meta.db_table, "id")
)
# Annexes add their own.
TABLES = [OBSERVATIONS, BODIES, ENTRIES, NOTIFICATIONS, REPORTERS]
# Those whose rows are archived, by what their files are called.
ARCHIVED = {"entries": ENTRIES, "observations": OBSERVATIONS, "notifications": NOTIFICATIONS}
# By table: whether an annex still needs rows from one id to another, so that they stay.
NEEDED_BY: dict[PartitionedTable, list[Callable[[int, int], bool]]] = {}


def register(table: PartitionedTable, *, archived_as: str) -> None:
    """Add a table outside this package that is kept in partitions and archived."""
    TABLES.append(table)
    ARCHIVED[archived_as] = table


def keep_while(table: PartitionedTable, is_needed: Callable[[int, int], bool]) -> None:
    """Keep rows of a table, from one id to another, while this says that they are needed."""
    NEEDED_BY.setdefault(table, []).append(is_needed)


def is_needed(table: PartitionedTable, first: int, last: int) -> bool:
    """Whether an annex still needs rows of a table, from one id to another."""
    return any(needs(first, last) for needs in NEEDED_BY.get(table, ()))


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a table, by its own name: keys from `begin` (None: from the first) up to and without `end`
    (None: it is the last one, and open-ended).

    `first_id` and `last_id` are the keys of its first and last row, `oldest` and `newest` when they were written; None
    where it is empty. `rows` is Postgres' estimate, `size` bytes with indexes. `is_detaching`: it is being taken out.
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
    is_detaching: bool = False

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
            # Not counted yet.
            estimate = rows if rows >= 0 else 0 if first is None or last is None else last - first + 1
            found.append(
                Partition(of.table, name, begin, end, first, last, estimate, size, oldest, newest, bool(leaving))
            )
    return sorted(found, key=lambda each: -1 if each.begin is None else each.begin)


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a table has come: the number given last, and where its last partition begins (None: it has only one)."""

    of: PartitionedTable
    last: int
    begin: int | None

    @property
    def room(self) -> int:
        """So many numbers can be given before the last partition is as large as it is to be, or takes the first of what
        should stand in one of its own; negative where that is so already.
        """
        return (settings.PARTITION_ROWS if self.begin is None else self.begin) - self.last

    @property
    def is_late(self) -> bool:
        """Somebody should have closed the last partition long ago."""
        return self.room < settings.PARTITION_ROWS // 5


def ahead(*tables: PartitionedTable) -> list[Ahead]:
    """Of each of these, in their order. One statement, which reads no row of them."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(numbered, numbers)::regclass), 0),
                   (SELECT pg_get_expr(leaf.relpartbound, leaf.oid) FROM pg_inherits AS link
                    JOIN pg_class AS leaf ON leaf.oid = link.inhrelid
                    WHERE link.inhparent = to_regclass(name)
                          AND pg_get_expr(leaf.relpartbound, leaf.oid) LIKE '%%(MAXVALUE)')
            FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS given (name, numbered, numbers, place)
            ORDER BY place
            """,
            [[of.table for of in tables], [of.numbers[0] for of in tables], [of.numbers[1] for of in tables]],
        )
        found = cursor.fetchall()
    return [Ahead(of, int(last), _bounds(bounds)[0]) for of, (last, bounds) in zip(tables, found, strict=True)]


def late_tables() -> list[Ahead]:
    """Tables whose next partition is not there in time. One statement."""
    return [found for found in ahead(*TABLES) if found.is_late]


def tables_without_room() -> list[str]:
    """Tables in which the next row finds no partition, so that nothing can be written. One statement, which reads no
    row of them.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(numbered, numbers)::regclass), 0),
                   ARRAY(SELECT pg_get_expr(leaf.relpartbound, leaf.oid) FROM pg_inherits AS link
                         JOIN pg_class AS leaf ON leaf.oid = link.inhrelid
                         WHERE link.inhparent = parent.oid AND NOT link.inhdetachpending),
                   coalesce(parent.relkind = 'p', true)
            FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS given (name, numbered, numbers, place)
            LEFT JOIN pg_class AS parent ON parent.oid = to_regclass(name)
            ORDER BY place
            """,
            [[of.table for of in TABLES], [of.numbers[0] for of in TABLES], [of.numbers[1] for of in TABLES]],
        )
        found = cursor.fetchall()
    return [
        of.table
        for of, (last, bounds, is_split) in zip(TABLES, found, strict=True)
        if is_split and not any(_holds(int(last) + 1, *_bounds(text)) for text in bounds)
    ]


def _holds(key: int, begin: int | None, end: int | None) -> bool:
    return (begin is None or begin <= key) and (end is None or key < end)


def _bounds(text: str | None) -> tuple[int | None, int | None]:
    found = BOUNDS.match(text or "")
    begin, end = (each.strip("'") for each in found.groups()) if found else ("MINVALUE", "MAXVALUE")
    return (None if begin == "MINVALUE" else int(begin), None if end == "MAXVALUE" else int(end))


def _ends(of: PartitionedTable, name: str) -> tuple[int | None, int | None, datetime | None, datetime | None]:
    statement = sql.SQL(
        """
        SELECT (SELECT min({key}) FROM {leaf}), (SELECT max({key}) FROM {leaf}),
               (SELECT min({time}) FROM (SELECT {time} FROM {leaf} ORDER BY {by} LIMIT {near}) AS first),
               (SELECT max({time}) FROM (SELECT {time} FROM {leaf} ORDER BY {by} DESC LIMIT {near}) AS last)
        """
    ).format(
        key=sql.Identifier(of.key),
        time=sql.Identifier(of.time),
        by=sql.Identifier(of.time if of.by_time else of.key),
        leaf=sql.Identifier(name),
        near=sql.Literal(NEAR),
    )
    with connection.cursor() as cursor:
        cursor.execute(statement)
        first, last, oldest, newest = cursor.fetchone() or (None, None, None, None)
    return first, last, oldest, newest
