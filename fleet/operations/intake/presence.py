"""When machines were heard."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from fleet.models import PresenceRow


@dataclass(frozen=True, slots=True)
class Contact:
    """One contact: backend's time, the machine's last good poll (corrected), seconds its clock is ahead."""

    machine_id: int
    heard_at: datetime
    poll_at: datetime | None = None
    clock_offset: float | None = None


def flush(*, contacts: Iterable[Contact]) -> int:
    """Write the newest contact of each machine in one statement, sorted by machine; the number of rows."""
    newest: dict[int, Contact] = {}
    for contact in contacts:
        known = newest.get(contact.machine_id)
        if known is None or contact.heard_at >= known.heard_at:
            newest[contact.machine_id] = contact
    rows = [newest[machine_id] for machine_id in sorted(newest)]
    if not rows:
        return 0
    table = PresenceRow._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {table} AS row (machine_id, last_heard_at, last_poll_at, clock_offset)
            SELECT * FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::float8[])
            ON CONFLICT (machine_id) DO UPDATE SET
                last_heard_at = GREATEST(row.last_heard_at, EXCLUDED.last_heard_at),
                last_poll_at = GREATEST(
                    -- No poll is later than the contact that told of it.
                    CASE WHEN row.last_poll_at <= GREATEST(row.last_heard_at, EXCLUDED.last_heard_at)
                         THEN row.last_poll_at END,
                    EXCLUDED.last_poll_at),
                clock_offset = COALESCE(EXCLUDED.clock_offset, row.clock_offset)
            """,
            [
                [row.machine_id for row in rows],
                [row.heard_at for row in rows],
                [row.poll_at for row in rows],
                [row.clock_offset for row in rows],
            ],
        )
    return len(rows)
