"""What streams tell: entries in the order in which their transactions can no longer be overtaken."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db import connection
from django.db.models import Subquery
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan

from fleet.models import Entry
from fleet.models.timeline import HORIZON, NEWEST_ERA
from fleet.projections.sight import seen
from fleet.projections.timeline.entries import TimelineRow, rows_of, with_subjects

# (era, xid, id).
Cursor = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry with its place in the order in which streams tell."""

    cursor: Cursor
    row: TimelineRow


def newest_cursor() -> Cursor:
    """Where a stream begins that wants only what is new: just below the horizon."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NEWEST_ERA}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1")
        era, xid = cursor.fetchone() or (0, 0)
    # Everything of that transaction counts as told.
    return (int(era), int(xid), 2**62)


def entries_after(*, cursor: Cursor, limit: int = 500) -> list[FeedEntry]:
    """Up to `limit` entries after the cursor, below the snapshot's horizon, oldest first. One query.

    Transactions below the horizon have ended, so nothing can appear before an entry that was told already.
    """
    newest = Subquery(seen(Entry).order_by("-era").values("era")[:1])
    behind = TupleGreaterThan(Tuple("era", "xid", "id"), cursor)
    below = seen(Entry).filter(behind, TupleLessThan(Tuple("era", "xid"), (newest, HORIZON)))
    entries = list(with_subjects(below).order_by("era", "xid", "id")[:limit])
    rows = rows_of(entries)
    return [FeedEntry((entry.era, entry.xid, entry.pk), row) for entry, row in zip(entries, rows, strict=True)]


def entries_in_sight(ids: Collection[int]) -> list[FeedEntry]:
    """Of these entries (row ids) the ones that the reader sees. One query, and one more for what stands beside them."""
    entries = list(with_subjects(seen(Entry).filter(pk__in=ids)))
    rows = rows_of(entries)
    return [FeedEntry((entry.era, entry.xid, entry.pk), row) for entry, row in zip(entries, rows, strict=True)]
