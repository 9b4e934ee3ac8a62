"""Partitions of large tables: creates them in advance, detaches and drops them.

The last partition has no upper limit, so that every new row has a place. If no new partition is created in time, it
grows, which raises an alarm. This runs once a minute, by Celery beat or by a loop of the web process, and at each
migration. If a run is killed, the next run completes the work.
"""

from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from fleet.audit.models import hold_reason
from fleet.domain.db_timeouts import is_timeout
from fleet.models import DocumentBody, LastRun, LatestDocument, Observation, Seal, WaitingReport
from fleet.models import partitions as tables
from fleet.models.driver import query
from fleet.models.partitions import Ahead, Partition, PartitionedTable, ahead, partitions
from fleet.operations.locks import Lock, no_timeouts, try_take
from fleet.operations.quarantine import call_each

RUN = "partitions"
# Writers and readers queue behind a waiting lock request: wait briefly, and try again in a minute.
LOCK_SECONDS = 0.2
# Triggers of a partition, which reject statements that name it. The table's own triggers reject those that name the
# table.
GUARDED = {
    tables.ENTRIES: (
        "CREATE TRIGGER fleet_entry_is_append_only BEFORE UPDATE OR DELETE ON {}"
        " FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only()",
        "CREATE TRIGGER fleet_entry_is_not_emptied BEFORE TRUNCATE ON {}"
        " FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only()",
    ),
}

log = structlog.get_logger(__name__)


def make_ahead(*, now: datetime, via: str, noted: bool = True) -> tuple[list[str], bool]:
    """Create the next partition of each table that has room for less than half a partition of new rows. Concurrent runs
    create only one. Return the names of the new partitions, and whether a table was locked, so that the run must be
    repeated.

    `noted`: record this run, so that web processes do not repeat it for a while.
    """
    made: list[str] = []
    held: list[str] = []

    def one(of: PartitionedTable) -> None:
        _mend_numbers(of)
        try:
            made.extend(_close_last(of))
        except DatabaseError as error:
            if not is_timeout(error):
                raise
            held.append(of.table)

    call_each(*(partial(one, of) for of in tables.TABLES))
    if noted:
        LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
    for name in made:
        log.info("partition.begins", name=name, via=via)
    return made, bool(held)


def _next_begin(state: Ahead) -> int | None:
    """Return the first key of the next partition, or None if no new partition is needed yet."""
    size = settings.PARTITION_ROWS
    if state.room >= size // 2:
        return None
    begin = -(-(state.last + size // 2) // size) * size
    return begin if state.begin is None else max(begin, state.begin + size)


def _close_last(of: PartitionedTable) -> list[str]:
    if _next_begin(ahead(of)[0]) is None:
        return []
    last = next((each for each in partitions(of) if each.is_open and not each.is_detaching), None)
    if last is None:
        log.error("partition.none_is_open", table=of.table)
        return []
    if last.last_id is not None:
        _bound_rows(of, last)
    with transaction.atomic():
        no_timeouts()
        if not try_take(Lock.PARTITIONS, of.table):
            return []
        _use_short_lock_timeout()
        run("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", of.table)
        # No transaction writes any more, so the bounds cannot change.
        (state,) = ahead(of)
        begin = _next_begin(state)
        if begin is None or state.begin != last.begin:
            return []
        name = of.named(begin)
        _begin_behind(of, last, name, begin)
    # Autovacuum does not analyse a parent. Before 18, Postgres analyses each partition as well.
    run("ANALYZE ONLY {}" if int(query("SHOW server_version_num")[0][0]) >= 180000 else "ANALYZE {}", of.table)
    return [name]


def _begin_behind(of: PartitionedTable, last: Partition, name: str, begin: int) -> None:
    """End the last partition at the key `begin` and attach a new partition `name` behind it, inside the caller's
    transaction.
    """
    lower = sql.SQL("MINVALUE") if last.begin is None else sql.Literal(last.begin)
    run("CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING IDENTITY)", name, last.name)
    run("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", name, _bound_name(last))
    for guard in GUARDED.get(of, ()):
        run(guard, name)
    run("ALTER TABLE {} DETACH PARTITION {}", of.table, last.name)
    run("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})", of.table, last.name, lower, begin)
    run("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO (MAXVALUE)", of.table, name, begin)
    run("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", last.name, _bound_name(last))


def _bound_rows(of: PartitionedTable, last: Partition) -> None:
    """Validate in advance that all rows of the last partition are below its future end. Postgres then need not read
    them while it locks the table.
    """
    with transaction.atomic():
        if not try_take(Lock.PARTITIONS, of.table):
            return
        _use_short_lock_timeout()
        begin = _next_begin(ahead(of)[0])
        run("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", last.name, _bound_name(last))
        if begin is None:
            return
        check = "ALTER TABLE {} ADD CONSTRAINT {} CHECK ({} < {}) NOT VALID"
        run(check, last.name, _bound_name(last), of.key, begin)
    with transaction.atomic():
        no_timeouts()
        run("ALTER TABLE {} VALIDATE CONSTRAINT {}", last.name, _bound_name(last))


def _bound_name(last: Partition) -> str:
    return f"{last.name}_ends"


def _mend_numbers(of: PartitionedTable) -> None:
    """Repair the id sequence of a table after a manual restore, if it would repeat ids of existing or dropped rows."""
    if of.numbers != (of.table, of.key):
        return
    there = partitions(of)
    least = max([each.last_id or 0 for each in there] + [(there[0].begin or 1) - 1]) if there else 0
    ((sequence,),) = query("SELECT pg_get_serial_sequence(%s, %s)", of.table, of.key)
    if sequence is None or not least:
        return
    behind = f"SELECT setval(%s, %s) FROM {sequence} WHERE CASE WHEN is_called THEN last_value ELSE 0 END < %s"
    if query(behind, sequence, least, least):
        log.warning("partition.numbers_were_behind", table=of.table, next=least + 1)


def _use_short_lock_timeout() -> None:
    query("SELECT set_config('lock_timeout', %s, true)", f"{LOCK_SECONDS:g}s")


def run(statement: str, *values: Any) -> None:
    """Execute one SQL statement. Texts in `values` are inserted as identifiers, numbers as literals."""
    parts = [
        sql.Identifier(value) if isinstance(value, str) else sql.Literal(value) if isinstance(value, int) else value
        for value in values
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(statement).format(*parts))


# A partition is dropped as a whole: it is detached from its table during normal operation, then dropped.

# Comment that marks a table before it is detached.
DROP_MARK = "drydock: this partition is archived and leaves"
# Lock timeout while other transactions use the partition; the next run tries again.
WAIT_SECONDS = 5
# Bodies carried forward in one transaction.
PORTION = 2000
OPEN_EVENT = "event.status IN ('SCHEDULED', 'STARTED')"
# SQL condition on `row` for observations that outlive their partition: documents that list an event, while they are
# retained or the event is open; each machine's latest document; and reports that are not processed completely.
OUTLIVES = f"""
    ((%(days)s::int IS NULL OR received_at > %(now)s - make_interval(days => %(days)s::int)
      OR EXISTS (SELECT FROM fleet_sighting AS sighting JOIN fleet_scheduledevent AS event
                 ON event.id = sighting.event_id WHERE {OPEN_EVENT}
                 AND sighting.machine_id = row.machine_id AND sighting.listed_epoch = row.epoch
                 AND sighting.listed_seq >= row.seq))
     AND EXISTS (SELECT FROM {DocumentBody._meta.db_table} AS body WHERE body.hash = row.document_id
                 AND (NOT body.readable OR position(%(mark)s::bytea IN body.body) > 0)))
    OR EXISTS (SELECT FROM {LatestDocument._meta.db_table} AS latest WHERE latest.machine_id = row.machine_id
               AND latest.epoch = row.epoch AND latest.seq = row.seq)
    OR EXISTS (SELECT FROM {WaitingReport._meta.db_table} AS waiting WHERE waiting.machine_id = row.machine_id
               AND waiting.epoch = row.epoch AND waiting.seq = row.seq)
"""
# Rows of `OUTLIVES` that are not in a later partition. Rows up to `last` are in this partition or an earlier one.
NOT_FORWARD = f"""({OUTLIVES}) AND NOT EXISTS (
    SELECT FROM {Observation._meta.db_table} AS again WHERE again.machine_id = row.machine_id
    AND again.epoch = row.epoch AND again.seq = row.seq AND again.id > %(last)s)"""
EVENT_ID = b'"EventId"'
# Whether reports of a partition are still being processed, or an open event began before them.
REPORTS_NEEDED = (
    f"SELECT EXISTS (SELECT FROM {{leaf}} AS row JOIN {WaitingReport._meta.db_table} AS waiting"
    " USING (machine_id, epoch, seq))"
    " OR EXISTS (SELECT FROM fleet_scheduledevent AS event"
    f" WHERE {OPEN_EVENT} AND event.first_seen_at <= %(newest)s)"
)


class RetainReason(StrEnum):
    """Reason why a partition must not be dropped."""

    OPEN = "open"
    TOO_NEW = "too-new"
    NOT_ARCHIVED = "not-archived"
    NOT_SEALED = "not-sealed"
    NEEDED = "needed"
    # Rows that outlive it have not been copied into a later one.
    NOT_COPIED = "not-copied"
    # Locked by a long reader: a later run drops it.
    HELD = "held"


def drop_partition(
    of: PartitionedTable, partition: Partition, *, before: datetime, archived_to: int | None, now: datetime, via: str
) -> RetainReason | None:
    """Detach and drop a partition if its newest row was written before `before` and its rows are archived
    (`archived_to` is the highest archived key). For notifications, also drop the partition of their reporters. Return
    the reason if it must be retained, else None. Raises RuntimeError inside a transaction.
    """
    if connection.in_atomic_block:
        raise RuntimeError("A partition cannot be dropped in a transaction.")
    why = retain_reason(of, partition, before=before, archived_to=archived_to) or _not_copied(of, partition, now=now)
    if why is not None:
        return why
    carried = _carry_forward(partition.name) if of is tables.BODIES else 0
    reporters, bounds = tables.REPORTERS if of is tables.NOTIFICATIONS else None, (partition.begin, partition.end)
    companions = partitions(reporters) if reporters else []
    same = [(reporters, each) for each in companions if (each.begin, each.end) == bounds and not each.is_open]
    for owner, each in [*same, (of, partition)]:
        if not _detach_and_drop(owner, each.name):
            return RetainReason.HELD
    log.info("partition.gone", name=partition.name, rows=partition.rows, carried=carried, via=via)
    return None


def retain_reason(
    of: PartitionedTable, partition: Partition, *, before: datetime, archived_to: int | None = None
) -> RetainReason | None:
    """Return the reason why the partition must not be dropped, or None. The arguments are those of `drop_partition`."""
    if partition.is_open:
        return RetainReason.OPEN
    if partition.newest is None:
        return None
    if partition.newest >= before:
        return RetainReason.TOO_NEW
    if archived_to is None or partition.last_id is None or archived_to < partition.last_id:
        return RetainReason.NOT_ARCHIVED
    if of is tables.ENTRIES and not _is_sealed(partition):
        return RetainReason.NOT_SEALED
    if of is tables.OBSERVATIONS and _is_true(REPORTS_NEEDED, partition.name, newest=partition.newest):
        return RetainReason.NEEDED
    with transaction.atomic():
        no_timeouts()
        needed = hold_reason(of, partition.first_id or 0, partition.last_id)
    return None if needed is None else RetainReason.NEEDED


def forward(now: datetime) -> dict[str, Any]:
    """Return the parameters of the SQL conditions in `OUTLIVES`."""
    return {"days": settings.RETENTION_DAYS["event_documents"], "now": now, "mark": EVENT_ID}


def _not_copied(of: PartitionedTable, partition: Partition, *, now: datetime) -> RetainReason | None:
    """Return a reason if rows that must outlive the partition were not copied to a later one by the caller, else
    None.
    """
    if of is not tables.OBSERVATIONS or partition.end is None:
        return None
    lacks = f"SELECT EXISTS (SELECT FROM {{leaf}} AS row WHERE {NOT_FORWARD})"
    return RetainReason.NOT_COPIED if _is_true(lacks, partition.name, last=partition.end - 1, **forward(now)) else None


def finish_drops() -> list[str]:
    """Finish drops that an earlier run began. Return the names of the dropped partitions."""
    found = query(
        "SELECT leaf.relname, parent.relname FROM pg_class AS leaf"
        " JOIN pg_description AS mark ON mark.objoid = leaf.oid AND mark.objsubid = 0"
        " AND mark.classoid = 'pg_class'::regclass AND mark.description = %s"
        " LEFT JOIN pg_inherits AS link ON link.inhrelid = leaf.oid"
        " LEFT JOIN pg_class AS parent ON parent.oid = link.inhparent WHERE leaf.relkind = 'r' ORDER BY leaf.oid",
        DROP_MARK,
    )
    by_name = {of.table: of for of in tables.TABLES}
    gone = [name for name, parent in found if _detach_and_drop(by_name.get(parent), name)]
    for name in gone:
        log.info("partition.gone", name=name, via="a later run")
    return gone


def _detach_and_drop(of: PartitionedTable | None, name: str) -> bool:
    """Detach and drop a partition. Return False if it stays locked for too long. `of` is None if it is already
    detached.
    """
    before = _set_timeouts(f"{WAIT_SECONDS}s", "0")
    try:
        if of is not None:
            run(f"COMMENT ON TABLE {{}} IS '{DROP_MARK}'", name)
            leaving = {each.name: each.is_detaching for each in partitions(of)}.get(name)
            if leaving is not None:
                how = "FINALIZE" if leaving else "CONCURRENTLY"
                run(f"ALTER TABLE {{}} DETACH PARTITION {{}} {how}", of.table, name)
        if name.startswith(tables.BODIES.first):
            # A body may have been referenced while the partition was detached.
            _carry_forward(name)
        run("DROP TABLE {}", name)
    except DatabaseError as error:
        if not is_timeout(error):
            raise
        log.info("partition.held", name=name)
        return False
    finally:
        _set_timeouts(*before)
    return True


def _set_timeouts(lock: str, statement: str) -> tuple[str, str]:
    """Set lock timeout and statement timeout of this connection. Return the previous values."""
    ((*before,),) = query("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
    query("SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false)", lock, statement)
    return before[0], before[1]


def _is_sealed(partition: Partition) -> bool:
    newest = Seal.objects.order_by("-number").first()
    if newest is None:
        return False
    era, xid, pk = newest.place
    later = "SELECT EXISTS (SELECT FROM {leaf} WHERE (era, xid, id) > (%(era)s, %(xid)s, %(id)s))"
    return not _is_true(later, partition.name, era=era, xid=xid, id=pk)


def _is_true(statement: str, leaf: str, **values: Any) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        no_timeouts()
        cursor.execute(statement.replace("{leaf}", connection.ops.quote_name(leaf)), values)
        return bool(cursor.fetchone() == (True,))


def _carry_forward(name: str) -> int:
    """Move the document bodies that are still needed from the partition `name` to the newest one: those of latest
    documents and of reports in the database. Return their number.
    """
    statement = f"""
        WITH needed AS (
            SELECT body.hash FROM {connection.ops.quote_name(name)} AS body
            WHERE EXISTS (SELECT FROM {LatestDocument._meta.db_table} AS latest WHERE latest.document_hash = body.hash)
                  OR body.hash IN (SELECT document_id FROM {Observation._meta.db_table} WHERE document_id IS NOT NULL)
            LIMIT %(most)s
        ), moved AS (
            DELETE FROM {connection.ops.quote_name(name)} AS body USING needed
            WHERE body.hash = needed.hash RETURNING body.*
        )
        INSERT INTO {DocumentBody._meta.db_table} (hash, body, readable, flags, first_received_at)
        SELECT hash, body, readable, flags, first_received_at FROM moved ON CONFLICT DO NOTHING
    """
    return in_portions(statement, most=PORTION)


def in_portions(statement: str, *, most: int, **values: Any) -> int:
    """Execute a statement that changes at most `most` rows, each time in a transaction of its own, until it changes
    fewer. Return the number of changed rows.
    """
    changed = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            no_timeouts()
            cursor.execute(statement, {"most": most, **values})
            last: int = cursor.rowcount
        changed += last
        if last < most:
            return changed
