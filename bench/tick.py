"""One tick of reconciling with thousands of events open: in sets of twenty machines, each of them live, nothing due.

Each tick is a process of its own (`manage.py reconcile --once`), so that its peak of memory is its own, too.
"""

from __future__ import annotations

import re
import statistics

import psycopg

from bench.stage import Stage
from bench.table import Line

EVENTS, MACHINES = 5_000, 20
TICKS = 7
FILL = (
    """INSERT INTO fleet_availabilityset (id, kind, name, key, subscription, resource_group, service, second_person,
           created_at)
       SELECT n, 'availability_set', 'set ' || n, 'set|' || n, '', '', '', false, now()
       FROM generate_series(1, %(e)s) n""",
    """INSERT INTO fleet_machine (id, vm_id, resource_name, availability_set_id, stated_set, token_set, set_source,
           set_warnings, zone, region, size, os_type, compute, agent_version, protocol, enrolled_at, credential_hash,
           warnings)
       SELECT n, 'vm-' || n, 'vm' || n, (n - 1) / %(m)s + 1, '', '', '', '[]', '', '', '', '', '{}', '', 1, now(),
           md5(n::text), '[]' FROM generate_series(1, %(e)s::bigint * %(m)s) n""",
    """INSERT INTO fleet_presencerow (machine_id, last_heard_at, last_poll_at)
       SELECT id, now() + interval '1 hour', now() + interval '1 hour' FROM fleet_machine""",
    """INSERT INTO fleet_head (machine_id, epoch, seq, document_hash, at)
       SELECT id, 1, 1, 'hash', now() FROM fleet_machine""",
    """INSERT INTO fleet_scheduledevent (id, event_id, availability_set_id, created_at, drill, status, version,
           first_seen_at, ended_as, certainty, watched, approved_elsewhere, warnings, event_type, resource_type, source,
           description, not_before, resources)
       SELECT n, 'EVENT-' || n, n, now(), false, 'SCHEDULED', 1, now(), '', '', true, false, '[]', 'Freeze',
           'VirtualMachine', 'Platform', '', now() + interval '1 day', '[]' FROM generate_series(1, %(e)s) n""",
    """INSERT INTO fleet_sighting (event_id, machine_id, "foreign", first_at, first_received_at, listed_epoch,
           listed_seq, listed_at, spelled, status, event_type, resource_type, source, description, not_before,
           resources)
       SELECT event.id, machine.id, false, now(), now(), 1, 1, now(), event.event_id, 'Scheduled', 'Freeze',
           'VirtualMachine', 'Platform', '', event.not_before, '[]'
       FROM fleet_scheduledevent event JOIN fleet_machine machine USING (availability_set_id)""",
)


def measure(stage: Stage) -> list[Line]:
    """The ticks that look at everything for the first time, then those with nothing to do."""
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        for statement in FILL:
            connection.execute(statement.encode(), {"e": EVENTS, "m": MACHINES})
        connection.execute("ANALYZE")
    first = []
    while not first or first[-1][2]:
        first.append(_tick(stage))
    idle = [_tick(stage) for _ in range(TICKS)]
    return [
        Line("everything for the first time", f"{sum(one[0] for one in first):.1f} s", f"{len(first) - 1} ticks"),
        Line("most memory of it", f"{max(one[1] for one in first):.0f} MB"),
        Line(f"{EVENTS:,} events open, nothing due", f"{statistics.median(one[0] for one in idle) * 1000:.0f} ms"),
        Line("most memory of it", f"{max(one[1] for one in idle):.0f} MB"),
    ]


def _tick(stage: Stage) -> tuple[float, float, float]:
    """Seconds, megabytes, and how many events it looked at."""
    seconds, megabytes, looked = re.findall(r"[\d.]+", stage.manage("reconcile", "--once"))[:3]
    return float(seconds), float(megabytes), float(looked)
