"""Large fleets to measure with, made by `python -m bench.seed` the first time and kept: `with base(SMALL) as stage`.

They are data folders of the servers that come along, in `.bench/` or where BENCH_BASES says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.stage import ROOT, Stage
from fleet.embedded import servers

FOLDER = Path(os.environ.get("BENCH_BASES") or ROOT / ".bench")
# Its machines were heard just now and its open events are as far ahead as when it was seeded, however old the base is.
AHEAD = """
    UPDATE fleet_scheduledevent SET not_before = not_before + age
    FROM (SELECT now() - max(last_heard_at) AS age FROM fleet_presencerow) AS base
    WHERE status = 'SCHEDULED'
"""
HEARD = "UPDATE fleet_presencerow SET last_heard_at = now(), last_poll_at = now()"


@dataclass(frozen=True, slots=True)
class Base:
    """A seeded fleet, in sets of twenty machines."""

    name: str
    machines: int
    entries: int
    open_events: int


SMALL = Base("small", machines=1_000, entries=100_000, open_events=50)
LARGE = Base("large", machines=100_000, entries=10_000_000, open_events=5_000)


@contextmanager
def base(wanted: Base) -> Iterator[Stage]:
    """Open a stage with this fleet, at the newest schema, its machines heard. Changes are permanent: only read."""
    folder = FOLDER / wanted.name
    # Written last, by hand for a folder that was seeded elsewhere.
    whole = folder / "seeded"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
    without = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    with ExitStack() as stack:
        urls = stack.enter_context(servers(folder, without))
        made = Stage.upon(folder, without | urls.environment, stack)
        made.manage("migrate", "--verbosity=0")
        if not whole.exists():
            print(f"Seeding {wanted.machines:,} machines and {wanted.entries:,} entries into {folder}.", flush=True)
            numbers = {"machines": wanted.machines, "entries": wanted.entries, "open-events": wanted.open_events}
            made.seed("--set-size=20", *(f"--{name}={count}" for name, count in numbers.items()))
            whole.touch()
        with psycopg.connect(made.database_url, autocommit=True) as connection:
            connection.execute(AHEAD)
            connection.execute(HEARD)
            connection.execute("VACUUM ANALYZE")
        yield made
