"""Pages and lists next to 21,000 open events of one machine that is silent now.

It is in a set of twenty, and nothing ends without a live witness.
"""

from __future__ import annotations

import statistics

import psycopg

from bench.pages import answering, ask
from bench.stage import Stage
from bench.table import Line, at_most

ROUNDS = 7
FLOOD = 21_000
# Seconds.
AIM = 1.0
SILENT = """
    UPDATE fleet_presencerow SET last_heard_at = now() - interval '1 hour', last_poll_at = now() - interval '1 hour'
    WHERE machine_id IN (SELECT id FROM fleet_machine WHERE availability_set_id = %s)
"""
PAGES = {
    "GET sets, two hundred": "/api/v1/sets/?page_size=200",
    "GET sets, two hundred in numbers": "/api/v1/sets/?page_size=200&machines=false",
    "GET sets/N": "/api/v1/sets/{set}/",
    "GET machines, two hundred": "/api/v1/machines/?page_size=200",
    "GET machines/N": "/api/v1/machines/{machine}/",
    "GET events, two hundred": "/api/v1/events/?page_size=200",
    "GET events/N": "/api/v1/events/{event}/",
    "queue": "/",
    "sets": "/sets/",
    "a set": "/sets/{set}/",
    "a machine": "/machines/{machine}/",
    "an event": "/events/{event}/",
    "a wave": "/waves/begin/?set={set}",
    "a service": "/services/{service}/",
    "the map": "/fleet/",
    "events of the set": "/history/?set={set}",
    "timeline": "/timeline/",
    "timeline of the set": "/timeline/?set={set}",
    "search by name": "/find/?q={machine_name}",
    "the status bar": "/pulse/",
    "/metrics, uncached": "=metrics",
}


def measure(stage: Stage) -> list[Line]:
    """A line a page: how long it takes, and how much it sends."""
    stage.seed("--machines=4000", "--entries=20000", "--open-events=100", f"--flood={FLOOD}")
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        flooded = connection.execute(
            "SELECT availability_set_id FROM fleet_scheduledevent WHERE status = 'SCHEDULED'"
            " GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
        connection.execute(SILENT, flooded)
    lines = []
    with answering(stage, set_of="flooded") as child:
        for name, address in PAGES.items():
            costs = [ask(child, address) for _ in range(ROUNDS + 1)][1:]
            times = [cost.wall for cost in costs]
            lines.append(
                Line(
                    name,
                    f"{statistics.median(times) * 1000:.0f} ms",
                    f"worst {max(times) * 1000:.0f} ms; {costs[-1].size / 1000:.0f} kB, {costs[-1].queries} queries",
                    key=f"flooded: {name}",
                    ratio=statistics.median(times),
                    aim=at_most(AIM),
                )
            )
    return lines
