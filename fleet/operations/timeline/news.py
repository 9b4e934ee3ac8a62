"""The timeline as a feed for reconciliation: every change by people, machines and Azure has an entry in its
transaction.

The position is a Postgres snapshot: no entry is missed, however long a transaction takes, and no transaction waits.
"""

from dataclasses import dataclass

from django.db import connection

from fleet.domain.timeline import Trait, kinds_with
from fleet.models import Entry, LastRun
from fleet.models.timeline import NEWEST_ERA

# In the order of the columns that `read_news` reads.
ASKED = (Trait.MOVES_MACHINE, Trait.MOVES_EVENT, Trait.CHANGES_FLEET, Trait.CHANGES_PEOPLE)


@dataclass(frozen=True, slots=True)
class News:
    """New entries by row id: `events` with an entry, `sets` whose machines changed, and sets in which an event `moved`.
    `people`: an account, a role or a token changed.
    """

    events: frozenset[int] = frozenset()
    sets: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    everywhere: bool = False
    people: bool = False


def read_news(run: LastRun) -> News:
    """Return the news since the last read; the run stores the position, and its caller saves it. Runs one query."""
    known = run.snapshot or "1:1:"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT pg_current_snapshot()::text, max(id), array_agg(DISTINCT event_id),
                   array_agg(DISTINCT availability_set_id) FILTER (WHERE kind = ANY(%s)),
                   array_agg(DISTINCT availability_set_id) FILTER (WHERE kind = ANY(%s)),
                   bool_or(kind = ANY(%s)), bool_or(kind = ANY(%s))
            FROM {Entry._meta.db_table}
            WHERE era = {NEWEST_ERA} AND xid >= %s AND xid < greatest(
                pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                coalesce(pg_current_xact_id_if_assigned()::text::bigint + 1, 0)) AND CASE
                -- No snapshot speaks of the transaction that took it.
                WHEN xid = pg_current_xact_id()::text::bigint THEN id > %s
                ELSE NOT pg_visible_in_snapshot(xid::text::xid8, %s::pg_snapshot) END
            """,
            [
                *([kind.value for kind in kinds_with(trait)] for trait in ASKED),
                int(known.split(":")[0]),
                run.newest_id,
                known,
            ],
        )
        ((snapshot, newest, events, sets, moved, everywhere, people),) = cursor.fetchall()
    # A restored database starts its transaction count again. A new era has its own entry.
    is_new_run = not run.snapshot or int(snapshot.split(":")[1]) < int(known.split(":")[1])
    run.snapshot, run.newest_id = snapshot, max(newest or 0, run.newest_id)
    events, sets, moved = (frozenset(found or ()) - {None} for found in (events, sets, moved))
    return News(events, sets, moved, everywhere=bool(everywhere) or is_new_run, people=bool(people))
