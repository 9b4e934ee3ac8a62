"""What streams tell: entries in the order in which their transactions can no longer be overtaken."""

from dataclasses import dataclass

from django.db import connection
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan

from fleet.models import Entry
from fleet.models.timeline import HORIZON
from fleet.projections.timeline.entries import TimelineRow, rows_of, with_subjects

Cursor = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry with its place in the order in which streams tell."""

    cursor: Cursor
    row: TimelineRow


def newest_cursor() -> Cursor:
    """Where a stream begins that wants only what is new: just below the horizon."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1")
        row = cursor.fetchone()
    # Everything of that transaction counts as told.
    return (int(row[0]), 2**62)


def entries_after(*, cursor: Cursor, limit: int = 500) -> list[FeedEntry]:
    """Up to `limit` entries after the cursor, below the snapshot's horizon, oldest first. One query.

    Transactions below the horizon have ended, so nothing can appear before an entry that was told already.
    """
    below = Entry.objects.filter(TupleGreaterThan(Tuple("xid", "id"), cursor), xid__lt=HORIZON)
    entries = list(with_subjects(below).order_by("xid", "id")[:limit])
    return [FeedEntry((entry.xid, entry.pk), row) for entry, row in zip(entries, rows_of(entries), strict=True)]
