"""Of which sets what is kept holds no longer: whoever reads looks at those himself."""

from datetime import datetime, timedelta

from django.db import connection

from fleet.domain.desk import RECONCILED_WITHIN
from fleet.models import LastRun, SetCount, StaleSet
from fleet.models.facts.blind_spots import to_judge
from fleet.models.facts.events import presence_limits
from fleet.models.facts.presence import PRESENCE, presence_values
from fleet.projections.once import once
from fleet.projections.sight import reader_key, seen, sees_set

# Where nobody has looked lately who is heard, that has to be found out from everybody's times.
TURNED = f"""
    SELECT DISTINCT machine.availability_set_id FROM fleet_presencerow AS presence
    JOIN fleet_machine AS machine ON machine.id = presence.machine_id
    WHERE presence.seen IS DISTINCT FROM {PRESENCE} AND machine.revoked_at IS NULL
"""
AHEAD = timedelta(seconds=1)


def changed_sets(*, now: datetime) -> frozenset[int]:
    """The sets (row ids) of which something has changed since they were looked at. Two queries for an answer, however
    many parts of it ask; three where nobody reconciles.
    """
    return once(("changed_sets", now, reader_key()), lambda: _changed_sets(now))


def _changed_sets(now: datetime) -> frozenset[int]:
    run = seen(LastRun).filter(name=LastRun.RECONCILE).values_list("ran_at", flat=True).first()
    changed = set(seen(StaleSet).order_by().values_list("availability_set", flat=True).distinct())
    if run is None or not -AHEAD <= now - run <= RECONCILED_WITHIN:
        with connection.cursor() as cursor:
            cursor.execute(TURNED, presence_values(now=now, limits=presence_limits()))
            changed |= {set_id for (set_id,) in cursor.fetchall() if sees_set(set_id)}
    return frozenset(changed)


def stale_sets(*, now: datetime) -> list[int]:
    """Those, and of which time alone may have changed the blind spots, or a newer version judges otherwise. One more
    query.
    """
    due = seen(SetCount).filter(to_judge(now=now))
    return sorted(changed_sets(now=now) | set(due.order_by().values_list("pk", flat=True)))
