"""Marks of spools: up to where the reports of each are acknowledged, and so what is new of a delivery."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from fleet.domain.aside import HELD
from fleet.models import Observation, Spool, driver
from fleet.models.intake import WaitingReport
from fleet.models.machines import Machine
from fleet.operations.intake.keep import Delivery, KeptReport, Numbered

SPOOL, OBSERVATION = Spool._meta.db_table, Observation._meta.db_table
ASK = f"""
    SELECT EXISTS (SELECT FROM {WaitingReport._meta.db_table} WHERE what = ANY(%s)),
           ARRAY(SELECT id FROM {Machine._meta.db_table} WHERE id = ANY(%s::bigint[]) AND revoked_at IS NOT NULL)
"""
MOVE = f"""
    INSERT INTO {SPOOL} AS spool (machine_id, spool, epoch, acknowledged, first_seen_at)
    SELECT given.machine_id, given.spool,
           (SELECT COALESCE(MAX(known.epoch), 0) + 1 FROM {SPOOL} AS known
            WHERE known.machine_id = given.machine_id),
           given.highest, %s
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS given (machine_id, spool, highest)
    ON CONFLICT (machine_id, spool) DO UPDATE
    -- The row as it is now that it is locked: another process may have taken the same reports since this statement
    -- began, and a subquery would not see that.
    SET acknowledged_before = spool.acknowledged,
        acknowledged = GREATEST(spool.acknowledged, EXCLUDED.acknowledged)
    RETURNING machine_id, spool, epoch, acknowledged, acknowledged_before,
        (SELECT MAX(known.epoch) FROM {SPOOL} AS known WHERE known.machine_id = spool.machine_id)
"""
HELD_KINDS = [what.value for what in HELD]
TAKEN = f"""
    SELECT machine_id, epoch, seq
    FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS given (machine_id, epoch, seq)
    JOIN {OBSERVATION} USING (machine_id, epoch, seq)
"""


def ask(machine_ids: Sequence[int]) -> tuple[bool, set[int]]:
    """What has to be known first, in one question: whether anything said before still waits, and which of these
    machines (row ids) were revoked.
    """
    with driver.cursor() as cursor:
        waits, revoked = cursor.execute(ASK, [HELD_KINDS, driver.array(machine_ids)]).fetchone() or (False, [])
    return waits, set(revoked)


def number_spools(deliveries: Sequence[Delivery], now: datetime) -> dict[tuple[int, str], Numbered]:
    """The number (epoch) of each spool, and up to where it is acknowledged, by (machine row id, spool).

    What an agent was told is acknowledged even where it is not here: it does not have it either. The rows stay locked:
    until the end of this transaction nobody else takes reports of these spools.
    """
    highest: dict[tuple[int, str], int] = {}
    for delivery in deliveries:
        highest[delivery.key] = max(highest.get(delivery.key, 0), delivery.told or 0, *delivery.numbers, 0)
    keys = sorted(highest)
    columns: list[list[Any]] = [[key[0] for key in keys], [key[1] for key in keys], [highest[key] for key in keys]]
    given = [now, *(driver.array(column) for column in columns)]
    with driver.cursor() as cursor:
        return {
            (machine_id, spool): Numbered(epoch, acknowledged, before, newest or 0)
            for machine_id, spool, epoch, acknowledged, before, newest in cursor.execute(MOVE, given)
        }


def news_among(rows: Sequence[KeptReport], spools: Iterable[tuple[int, Numbered]]) -> list[KeptReport]:
    """Those that are not here yet; `spools` are their machines (row ids) and spools, locked by this transaction.

    An agent sends in order, so what lies beyond the mark of its spool is new. What lies behind it was taken, or was
    late on its way: that is asked for, and only that. No query where nothing comes again.
    """
    marks = {(machine_id, spool.epoch): spool.before for machine_id, spool in spools}
    behind = [row.key for row in rows if row.report.seq <= marks[row.machine_id, row.epoch]]
    if not behind:
        return list(rows)
    with driver.cursor() as cursor:
        taken = set(cursor.execute(TAKEN, [list(column) for column in zip(*behind, strict=True)]))
    return [row for row in rows if row.key not in taken]
