"""What Postgres knows of the tables that a storm fills.

Its own look comes once a minute. A fleet without a past that is told of a thousand events has tables that it took for
empty, and until then every page goes through all decisions for each of its events.
"""

from django.db import connection

from fleet.models import Approval, Claim, Hold, Order, ScheduledEvent, Sighting

TABLES = tuple(model._meta.db_table for model in (ScheduledEvent, Sighting, Approval, Order, Claim, Hold))
# A table is looked at again once so many rows have changed, and this part of all that it has; and not more often.
ROWS = 50
PART = 0.2
PAUSE_SECONDS = 5

_CHANGED = """SELECT stat.relname FROM pg_stat_user_tables stat JOIN pg_class class ON class.oid = stat.relid
    WHERE class.oid = ANY (ARRAY(SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name))
        AND stat.n_mod_since_analyze > %(rows)s + %(part)s * greatest(class.reltuples, 0)
        AND greatest(stat.last_analyze, stat.last_autoanalyze, '-infinity')
            < clock_timestamp() - make_interval(secs => %(pause)s)"""


def renew() -> list[str]:
    """Let Postgres look at those of the tables that have changed much since; which ones. Nobody waits: what somebody
    else looks at is left out, and so is what is not ours.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CHANGED, {"tables": list(TABLES), "rows": ROWS, "part": PART, "pause": PAUSE_SECONDS})
        changed = [name for (name,) in cursor.fetchall()]
        if changed:
            cursor.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(changed)}")
    return changed
