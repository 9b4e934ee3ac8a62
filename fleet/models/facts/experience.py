"""Loading what earlier events tell: the newest of each set, by index and bounded."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from django.db import connection

from fleet.domain.approvals.recommend import NONE_YET, Experience

# So many events of a set are looked back on.
NEWEST = 50
# One walk along the index `event_by_set` for each set. Cancelled ones and those of unknown ending tell nothing of how
# long a machine was away.
EARLIER = """
SELECT wanted.set_id, past.event_type,
    count(*) FILTER (WHERE past.ended_as = 'completed' AND past.started_at IS NOT NULL),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY EXTRACT(EPOCH FROM past.ended_at - past.started_at))
        FILTER (WHERE past.ended_as = 'completed' AND past.started_at IS NOT NULL),
    count(*) FILTER (WHERE past.ended_as = 'cancelled'),
    max((SELECT EXTRACT(EPOCH FROM max(approval.accepted_at - approval.granted_at)) FROM fleet_approval approval
        WHERE approval.event_id = past.id AND approval.accepted_at IS NOT NULL))
FROM unnest(%s::bigint[]) AS wanted (set_id)
CROSS JOIN LATERAL (
    SELECT id, event_type, started_at, ended_at, ended_as, drill FROM fleet_scheduledevent
    WHERE availability_set_id = wanted.set_id ORDER BY first_seen_at DESC, id DESC LIMIT %s
) AS past
WHERE NOT past.drill
GROUP BY wanted.set_id, past.event_type
"""


class Experiences:
    """What is known of each set (row id) and type."""

    def __init__(self, found: Mapping[int, Mapping[str, Experience]]) -> None:
        self._found = found

    def of(self, set_id: int, event_type: str) -> Experience:
        here = self._found.get(set_id, {})
        slowest = max((one.relay_seconds for one in here.values() if one.relay_seconds is not None), default=None)
        known = here.get(event_type, NONE_YET)
        # The way to Azure is the same for every type.
        return Experience(known.count, known.median_seconds, known.cancelled, slowest)


def experiences(set_ids: Collection[int]) -> Experiences:
    """What the newest events of these sets tell. One query."""
    found: dict[int, dict[str, Experience]] = defaultdict(dict)
    if set_ids:
        with connection.cursor() as cursor:
            cursor.execute(EARLIER, [sorted(set(set_ids)), NEWEST])
            for set_id, event_type, count, median, cancelled, relay in cursor.fetchall():
                found[set_id][event_type] = Experience(
                    count=count,
                    median_seconds=None if median is None else float(median),
                    cancelled=cancelled,
                    relay_seconds=None if relay is None else float(relay),
                )
    return Experiences(found)
