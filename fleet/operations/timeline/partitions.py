"""Making partitions ahead: the last one of a large table is closed while it is empty, and another begins behind it.

Nothing that comes is ever without a place: the last partition is open-ended. Where nobody closes it in time it grows,
and that is an alarm. Once a minute, by Celery's beat or by a loop of the web process, and at each migration. Whoever is
killed in the middle leaves nothing half done that the next run does not mend.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from fleet.domain.patience import met_a_limit
from fleet.models import LastRun
from fleet.models.partitions import ENTRIES, TABLES, Ahead, Partition, PartitionedTable, ahead, partitions
from fleet.models.reconcile import seconds_since_run
from fleet.operations.aside import in_turn
from fleet.operations.locks import Lock, take_if_free, take_your_time

RUN = "partitions"
# Writers and readers wait behind whoever waits for the table: a moment, and again in a minute.
LOCK_SECONDS = 0.2
# Each partition refuses by itself what names it; what names the table is refused there.
GUARDED = {
    ENTRIES: (
        "CREATE TRIGGER fleet_entry_is_append_only BEFORE UPDATE OR DELETE ON {}"
        " FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only()",
        "CREATE TRIGGER fleet_entry_is_not_emptied BEFORE TRUNCATE ON {}"
        " FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only()",
    ),
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MadeAhead:
    """The names of the partitions that now begin, and whether some table was held by others: it comes again."""

    made: tuple[str, ...] = ()
    held: bool = False


def make_ahead(*, now: datetime, via: str, rows: int = 0, noted: bool = True) -> MadeAhead:
    """See that each table has room for half a partition's rows, or for so many `rows`. Two runs make one. Only what
    runs each minute is noted as such: whoever stands in for it waits until it has been quiet.
    """
    made: list[str] = []
    held: list[str] = []

    def one(of: PartitionedTable) -> None:
        _mend_numbers(of)
        try:
            made.extend(_close_last(of, rows))
        except DatabaseError as error:
            if not met_a_limit(error):
                raise
            held.append(of.table)

    in_turn(*(partial(one, of) for of in TABLES))
    if noted:
        LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
    for name in made:
        log.info("partition.begins", name=name, via=via)
    return MadeAhead(tuple(made), held=bool(held))


def make_ahead_if_quiet(*, now: datetime, quiet_seconds: float, via: str) -> MadeAhead:
    """Make them when nobody has looked for this long: the web process's part when Celery is gone."""
    if seconds_since_run(RUN, now=now) < quiet_seconds:
        return MadeAhead()
    return make_ahead(now=now, via=via)


def _next_begin(found: Ahead, rows: int) -> int | None:
    """Where the next partition is to begin; None where there is room enough."""
    size = settings.PARTITION_ROWS
    wanted = max(rows, size // 2)
    if found.room >= wanted:
        return None
    begin = -(-(found.last + wanted) // size) * size
    return begin if found.begin is None else max(begin, found.begin + size)


def _close_last(of: PartitionedTable, rows: int) -> list[str]:
    if _next_begin(ahead(of)[0], rows) is None:
        return []
    last = next((each for each in partitions(of) if each.is_open and not each.is_leaving), None)
    if last is None:
        log.error("partition.none_is_open", table=of.table)
        return []
    if last.last_id is not None:
        _bound_rows(of, last, rows)
    with transaction.atomic():
        take_your_time()
        if not take_if_free(Lock.PARTITIONS, of.table):
            return []
        _impatient()
        run("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", of.table)
        # Nobody writes any more: what is read now stays so.
        (found,) = ahead(of)
        begin = _next_begin(found, rows)
        if begin is None or found.begin != last.begin:
            return []
        name = of.named(begin)
        _begin_behind(of, last, name, begin)
    # Nobody does so for a parent by himself. Before 18, Postgres looks at each partition as well.
    run("ANALYZE ONLY {}" if _version() >= 180000 else "ANALYZE {}", of.table)
    return [name]


def _begin_behind(of: PartitionedTable, last: Partition, name: str, begin: int) -> None:
    """Within the transaction: the last partition ends there, and a new one takes all that comes behind."""
    lower = sql.SQL("MINVALUE") if last.begin is None else sql.Literal(last.begin)
    run("CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING IDENTITY)", name, last.name)
    run("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", name, _bound_name(last))
    for guard in GUARDED.get(of, ()):
        run(guard, name)
    run("ALTER TABLE {} DETACH PARTITION {}", of.table, last.name)
    run("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})", of.table, last.name, lower, begin)
    run("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO (MAXVALUE)", of.table, name, begin)
    run("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", last.name, _bound_name(last))


def _bound_rows(of: PartitionedTable, last: Partition, rows: int) -> None:
    """Let Postgres see beforehand, while everybody works, that all rows are below the end that the partition is to get:
    so it reads none of them while it holds the table. Only the first one has rows by then, or one that nobody closed.
    """
    with transaction.atomic():
        if not take_if_free(Lock.PARTITIONS, of.table):
            return
        _impatient()
        begin = _next_begin(ahead(of)[0], rows)
        run("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", last.name, _bound_name(last))
        if begin is None:
            return
        run(
            "ALTER TABLE {} ADD CONSTRAINT {} CHECK ({} < {}) NOT VALID",
            last.name,
            _bound_name(last),
            sql.Identifier(of.key),
            begin,
        )
    with transaction.atomic():
        take_your_time()
        run("ALTER TABLE {} VALIDATE CONSTRAINT {}", last.name, _bound_name(last))


def _bound_name(last: Partition) -> str:
    return f"{last.name}_ends"


def _mend_numbers(of: PartitionedTable) -> None:
    """A database that was put together by hand may give numbers that are there already, or of a partition that left."""
    if of.numbers != (of.table, of.key):
        return
    there = partitions(of)
    least = max([each.last_id or 0 for each in there] + [(there[0].begin or 1) - 1]) if there else 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [of.table, of.key])
        (sequence,) = cursor.fetchone() or (None,)
        if sequence is None or not least:
            return
        cursor.execute(
            f"SELECT setval(%s, %s) FROM {sequence} WHERE CASE WHEN is_called THEN last_value ELSE 0 END < %s",
            [sequence, least, least],
        )
        if cursor.fetchall():
            log.warning("partition.numbers_were_behind", table=of.table, next=least + 1)


def _version() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int")
        (version,) = cursor.fetchone() or (0,)
    return int(version)


def _impatient() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS:g}s"])


def run(statement: str, *values: Any) -> None:
    """One statement; names as text, numbers as they are."""
    parts = [
        sql.Identifier(value) if isinstance(value, str) else sql.Literal(value) if isinstance(value, int) else value
        for value in values
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(statement).format(*parts))
