"""What streams tell: entries in the order in which their transactions can no longer be overtaken."""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from fleet.models import Entry, ScheduledEvent

Cursor = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry as streams carry it; `event_id` is Azure's, the other ids are row ids."""

    xid: int
    id: int
    kind: str
    event_id: str | None
    set_id: int | None
    machine_id: int | None
    approval_id: int | None
    at: datetime
    text: str

    @property
    def cursor(self) -> Cursor:
        return (self.xid, self.id)


def newest_cursor() -> Cursor:
    """Where a stream begins that wants only what is new: just below the horizon."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1")
        row = cursor.fetchone()
    # Everything of that transaction counts as told.
    return (int(row[0]), 2**62)


def entries_after(*, cursor: Cursor, limit: int = 500) -> list[FeedEntry]:
    """Up to `limit` entries after the cursor, below the snapshot's horizon, oldest first.

    A transaction below the horizon has ended, so nothing can appear before an entry that was told already.
    """
    entry, event = Entry._meta.db_table, ScheduledEvent._meta.db_table
    with connection.cursor() as sql:
        sql.execute(
            f"""
            SELECT entry.xid, entry.id, entry.kind, event.event_id, entry.availability_set_id, entry.machine_id,
                   entry.approval_id, entry.at, entry.text
            FROM {entry} AS entry LEFT JOIN {event} AS event ON event.id = entry.event_id
            WHERE (entry.xid, entry.id) > (%s, %s)
              AND entry.xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
            ORDER BY entry.xid, entry.id LIMIT %s
            """,
            [cursor[0], cursor[1], limit],
        )
        return [FeedEntry(*row) for row in sql.fetchall()]
