"""What agents say of themselves in a held call, beside what is known of them here.

An agent whose backend was put back to an older state, or whose newest document is not here, is told so: then it sends a
report, and what follows is as with any report.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fleet.models import LatestDocument, Machine, Spool, driver

COMPARE = f"""
    SELECT machine.id, machine.availability_set_id,
           given.spool IS NOT NULL AND (
               spool.id IS NULL OR spool.acknowledged < given.acknowledged
               -- A newer one of the same machine has spoken.
               OR EXISTS (SELECT FROM {Spool._meta.db_table} AS newer
                          WHERE newer.machine_id = given.machine_id AND newer.epoch > spool.epoch)),
           given.document IS NOT NULL AND latest.document_hash IS DISTINCT FROM given.document
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[])
        AS given (machine_id, spool, acknowledged, document)
    JOIN {Machine._meta.db_table} AS machine ON machine.id = given.machine_id
    LEFT JOIN {Spool._meta.db_table} AS spool
        ON spool.machine_id = given.machine_id AND spool.spool = given.spool
    LEFT JOIN {LatestDocument._meta.db_table} AS latest ON latest.machine_id = given.machine_id
"""


@dataclass(frozen=True, slots=True)
class AgentStanding:
    """One agent's: its spool, up to where that was acknowledged, and the hash of its newest document; None for what it
    does not say, as 0.1.0, or while anything waits in its spool.
    """

    machine_id: int
    spool: str | None = None
    acknowledged: int | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class StandingCheck:
    """The set (row id) of the machine; whether a `report` is wanted, since its spool is not known so, and whether it is
    to `remind`, since that document is not its newest here.
    """

    set_id: int
    report: bool = False
    remind: bool = False


def compare(standings: Collection[AgentStanding]) -> dict[int, StandingCheck]:
    """By machine (row id). One statement, by index."""
    columns: list[list[Any]] = [
        [one.machine_id for one in standings],
        [one.spool for one in standings],
        [one.acknowledged for one in standings],
        [one.document for one in standings],
    ]
    with driver.cursor() as cursor:
        return {
            machine_id: StandingCheck(set_id, *wanted)
            for machine_id, set_id, *wanted in cursor.execute(COMPARE, [driver.array(column) for column in columns])
        }
