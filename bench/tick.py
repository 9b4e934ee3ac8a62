"""One tick of reconciling with thousands of events open: in sets of twenty machines, each of them live, nothing due.

A thousand of the events run in waves, the approvals of a thousand more wait for their time, and a thousand drills and
operations on caches are open as well.

Each tick is a process of its own (`manage.py reconcile --once`), so that its peak of memory is its own, too.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

import psycopg

from bench.stage import Stage
from bench.table import Line, at_most

EVENTS, MACHINES, OTHERS = 5_000, 20, 1_000
TICKS = 7
PERSON = """INSERT INTO auth_user (username, password, first_name, last_name, email, is_superuser, is_staff, is_active,
        date_joined) VALUES ('bench', '', '', '', '', false, false, false, now()) RETURNING id"""
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
    # Waves whose first event is under way.
    "UPDATE fleet_sighting SET status = 'Started', started_at = now() WHERE event_id <= %(o)s",
    "UPDATE fleet_scheduledevent SET status = 'STARTED', started_at = now() WHERE id <= %(o)s",
    """INSERT INTO fleet_wave (id, service, state, created_by_id, via, token_name, comment, created_at, reason)
       SELECT n, '', 'RUNNING', %(p)s, 'page', '', '', now(), '' FROM generate_series(1, %(o)s) n""",
    """INSERT INTO fleet_approval (event_id, wave_id, turn, state, decided_by_id, decided_at, granted_at, via,
           token_name, "when", comment, consent_comment, rule_wording, event_version, overrides, reason, inferred)
       SELECT n, n, 1, 'CONFIRMED', %(p)s, now(), now(), 'page', '', 'now', '', '', '', 1, '[]', '', false
       FROM generate_series(1, %(o)s) n""",
    # Approvals that wait for their time.
    """INSERT INTO fleet_approval (event_id, state, decided_by_id, decided_at, via, token_name, "when", due_at, comment,
           consent_comment, rule_wording, event_version, overrides, reason, inferred)
       SELECT %(o)s + n, 'WAITING', %(p)s, now(), 'page', '', 'time', now() + interval '20 hours', '', '', '', 1, '[]',
           '', false FROM generate_series(1, %(o)s) n""",
    # Drills of sets with one machine each.
    """INSERT INTO fleet_availabilityset (id, kind, name, key, subscription, resource_group, service, second_person,
           created_at)
       SELECT %(e)s + n, 'availability_set', 'drilled ' || n, 'drilled|' || n, '', '', '', false, now()
       FROM generate_series(1, %(o)s) n""",
    """INSERT INTO fleet_machine (id, vm_id, resource_name, availability_set_id, stated_set, token_set, set_source,
           set_warnings, zone, region, size, os_type, compute, agent_version, protocol, enrolled_at, credential_hash,
           warnings)
       SELECT %(e)s::bigint * %(m)s + n, 'drilled-' || n, 'drilled' || n, %(e)s + n, '', '', '', '[]', '', '', '', '',
           '{}', '', 1, now(), 'drilled' || n, '[]' FROM generate_series(1, %(o)s) n""",
    """INSERT INTO fleet_scheduledevent (id, event_id, availability_set_id, created_at, drill, status, version,
           first_seen_at, ended_as, certainty, watched, approved_elsewhere, warnings, event_type, resource_type, source,
           description, not_before, resources)
       SELECT %(e)s + n, 'DRILL-' || n, %(e)s + n, now(), true, 'SCHEDULED', 1, now(), '', '', true, false, '[]',
           'Freeze', 'VirtualMachine', 'Platform', '', now() + interval '1 day', '[]'
       FROM generate_series(1, %(o)s) n""",
    """INSERT INTO fleet_drill (id, event_id, started_by_id, via, token_name, comment, created_at, ends_by, outcome,
           reason)
       SELECT n, %(e)s + n, %(p)s, 'page', '', '', now(), now() + interval '1 hour', '', ''
       FROM generate_series(1, %(o)s) n""",
    """INSERT INTO fleet_rehearsal (drill_id, machine_id, left_out, gone_reason, epoch, seq)
       SELECT n, %(e)s::bigint * %(m)s + n, '', '', 0, 0 FROM generate_series(1, %(o)s) n""",
    # Operations whose end is awaited.
    """INSERT INTO fleet_cache (id, host, source, tier, service, divisor, created_at)
       SELECT n, 'cache' || n, 'azure-redis', '', '', 2, now() FROM generate_series(1, %(o)s) n""",
    """INSERT INTO fleet_maintenance (id, cache_id, source, status, first_at, last_at, approximate, began_at, swapped,
           next_check_at)
       SELECT n, n, 'azure-redis', 'UNDER_WAY', now(), now(), false, now(), false, now() + interval '30 minutes'
       FROM generate_series(1, %(o)s) n""",
)


# Rows that no tick has checked yet: the tick's own line counts events only.
DUE = """SELECT (SELECT count(*) FROM fleet_scheduledevent WHERE next_check_at <= now() OR next_check_at IS NULL)
    + (SELECT count(*) FROM fleet_wave WHERE state = 'RUNNING' AND (next_check_at <= now() OR next_check_at IS NULL))
    + (SELECT count(*) FROM fleet_drill WHERE closed_at IS NULL AND (next_check_at <= now() OR next_check_at IS NULL))
    + (SELECT count(*) FROM fleet_maintenance WHERE next_check_at <= now() OR next_check_at IS NULL)
    + (SELECT count(*) FROM fleet_staleset)"""


def populate(
    execute: Callable[[str, dict[str, int]], Any], *, person: int, events: int, machines: int, others: int
) -> None:
    """Write this many open events, in sets of this many machines, and `others` each of waves, waiting approvals, drills
    and cache operations.
    """
    for statement in FILL:
        execute(statement, {"e": events, "m": machines, "o": others, "p": person})


def measure(stage: Stage) -> list[Line]:
    """The ticks that look at everything for the first time, then those with nothing to do."""
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        ((person,),) = connection.execute(PERSON).fetchall()
        populate(
            lambda statement, values: connection.execute(statement.encode(), values),
            person=person, events=EVENTS, machines=MACHINES, others=OTHERS,
        )  # fmt: skip
        connection.execute("ANALYZE")
        first = [_tick(stage)]
        while connection.execute(DUE).fetchall() != [(0,)]:
            first.append(_tick(stage))
    idle = [_tick(stage) for _ in range(TICKS)]
    seconds, processor, memory, _ = zip(*idle, strict=True)
    looked, idly = sum(one[1] for one in first), statistics.median(processor) * 1000
    return [
        Line("everything for the first time", f"{sum(one[0] for one in first):.1f} s", f"{len(first)} ticks"),
        Line("of it the processor", f"{looked:.1f} s", key="tick-first", ratio=looked, aim=at_most(30)),
        Line("most memory of it", f"{max(one[2] for one in first):.0f} MB"),
        Line(f"{EVENTS:,} events open, nothing due", _milliseconds(seconds), f"{min(seconds) * 1000:.0f} ms at best"),
        Line(
            "of it the processor",
            f"{idly:.0f} ms",
            f"{min(processor) * 1000:.0f} ms at best",
            key="tick-idle",
            ratio=idly,
            aim=at_most(25),
        ),
        Line("most memory of it", f"{max(memory):.0f} MB"),
    ]


def _milliseconds(seconds: tuple[float, ...]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f} ms"


def _tick(stage: Stage) -> tuple[float, float, float, float]:
    """Seconds, those of the processor, megabytes, and how many events it looked at."""
    seconds, processor, megabytes, looked = re.findall(r"[\d.]+", stage.manage("reconcile", "--once"))[:4]
    return float(seconds), float(processor), float(megabytes), float(looked)
