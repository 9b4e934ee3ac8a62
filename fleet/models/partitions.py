"""Tables that are partitioned by ranges of ids, and their partitions."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Model
from psycopg import sql

from fleet.models.caches import Notification, Reporter
from fleet.models.driver import query
from fleet.models.intake import DocumentBody, Observation
from fleet.models.timeline import Entry

# By the ends of a partition: rows come nearly in the order of their ids, those of long transactions a little late.
NEAR = 1000
# From (None: the first) up to and without (None: open-ended).
Bounds = tuple[int | None, int | None]
BOUNDS = re.compile(r"FOR VALUES FROM \((.+)\) TO \((.+)\)")


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """A model's table that is partitioned by ranges of `key`, an increasing number. `time` is the column with the write
    time.

    `numbers` is the (table, column) whose sequence assigns the numbers. `by_time`: rows are sorted by time instead,
    because they may move to a newer partition. `first` is the name of the first partition; the names of the others end
    with their first number.
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
        """Return the name of the partition that begins with this number."""
        return f"{self.first.removesuffix('_from_0')}_from_{begin}"


def by_id(model: type[Model], time: str) -> PartitionedTable:
    """Return the description of a table that is partitioned by ranges of its own ids. `time` is the write time
    column.
    """
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
    """Add a table of another package to the tables that are partitioned and archived. `archived_as` names the archive
    files.
    """
    TABLES.append(table)
    ARCHIVED[archived_as] = table


def keep_while(table: PartitionedTable, is_needed: Callable[[int, int], bool]) -> None:
    """Register a check that prevents rows from being archived and deleted: `is_needed(first_id, last_id)`."""
    NEEDED_BY.setdefault(table, []).append(is_needed)


def is_needed(table: PartitionedTable, first: int, last: int) -> bool:
    """Return whether a registered check (`keep_while`) still needs rows of the table from `first` to `last` (ids)."""
    return any(needs(first, last) for needs in NEEDED_BY.get(table, ()))


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a table, with keys from `begin` (None: no lower bound) up to but excluding `end` (None: no upper
    bound).

    `first_id` and `last_id` are the keys of the first and last row, `oldest` and `newest` their write times; None if
    empty. `rows` is Postgres's estimate; `size` is in bytes with indexes. `is_detaching`: it is being detached.
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
        """Whether new rows are still written to this partition, so that an archive of it would be incomplete."""
        return self.end is None


def partitions(of: PartitionedTable) -> list[Partition]:
    """Return the partitions of a table in the order of their ids. Runs one query, and one more for each partition; all
    use indexes.
    """
    found = []
    for name, bounds, rows, size, leaving in query(
        """
        SELECT leaf.relname, pg_get_expr(leaf.relpartbound, leaf.oid), leaf.reltuples::bigint,
               pg_total_relation_size(leaf.oid), coalesce(link.inhdetachpending, false)
        FROM pg_class AS leaf LEFT JOIN pg_inherits AS link ON link.inhrelid = leaf.oid
        -- A table that is not partitioned yet is its own and only one.
        WHERE leaf.relkind = 'r' AND to_regclass(%s) IN (link.inhparent, leaf.oid)
        """,
        of.table,
    ):
        begin, end = _bounds(bounds)
        first, last, oldest, newest = _ends(of, name)
        # Not counted yet.
        estimate = rows if rows >= 0 else 0 if first is None or last is None else last - first + 1
        found.append(Partition(of.table, name, begin, end, first, last, estimate, size, oldest, newest, bool(leaving)))
    return sorted(found, key=lambda each: -1 if each.begin is None else each.begin)


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a table has filled its partitions: the last used number, and where the last partition begins (None: only
    one).
    """

    of: PartitionedTable
    last: int
    begin: int | None

    @property
    def room(self) -> int:
        """How many numbers remain until a new partition is needed; negative if it is overdue."""
        return (settings.PARTITION_ROWS if self.begin is None else self.begin) - self.last

    @property
    def is_late(self) -> bool:
        """Whether the next partition should already have been created."""
        return self.room < settings.PARTITION_ROWS // 5


def ahead(*tables: PartitionedTable) -> list[Ahead]:
    """Return for each table how far it has filled its partitions. Runs one query, which reads no rows of the tables."""
    return [
        Ahead(of, last, next((begin for begin, end in bounds if end is None), None))
        for of, last, bounds in _numbers_and_bounds(tables)
    ]


def late_tables() -> list[Ahead]:
    """Return the tables whose next partition was not created in time. Runs one query."""
    return [found for found in ahead(*TABLES) if found.is_late]


def tables_without_room() -> list[str]:
    """Return the names of tables that have no partition for the next row, so that writing fails. Runs one query, which
    reads no rows of the tables.
    """
    return [
        of.table
        for of, last, bounds in _numbers_and_bounds(TABLES)
        if not any((begin is None or begin <= last + 1) and (end is None or last + 1 < end) for begin, end in bounds)
    ]


def _numbers_and_bounds(tables: Sequence[PartitionedTable]) -> Iterator[tuple[PartitionedTable, int, list[Bounds]]]:
    """Yield each table with its last used number and the bounds of its partitions.

    A table that is not partitioned yet has one partition without bounds.
    """
    rows = query(
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
        [of.table for of in tables],
        [of.numbers[0] for of in tables],
        [of.numbers[1] for of in tables],
    )
    for of, (last, bounds, is_split) in zip(tables, rows, strict=True):
        yield of, int(last), [_bounds(text) for text in bounds] if is_split else [(None, None)]


def _bounds(text: str | None) -> Bounds:
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
    ((first, last, oldest, newest),) = query(statement)
    return first, last, oldest, newest
