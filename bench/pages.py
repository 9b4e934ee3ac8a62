"""Every page and list whose cost must not grow with the fleet, over the small base and the large one, in turns.

Each base is read by a process of its own, in which the time stands still just after its machines were heard. Every page
is asked of the one, then of the other, `PAGES_ROUNDS` times; a process that has just started is slower, so the first
round does not count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bench.bases import LARGE, SMALL, base
from bench.stage import ROOT, Stage
from bench.table import Line, at_most
from fleet.embedded.parent_death import bound

ROUNDS = int(os.environ.get("PAGES_ROUNDS", "9"))
# How many times as long a page may take in the large fleet.
AIM = 1.3

# By what each is called in the table; `{}` are filled in by `_names`. What begins with `=` is a call of `CALLS`.
PAGES = {
    "blind spots": "/blind-spots/",
    "blind spots, one kind": "/blind-spots/?kind=upgrades-unknown",
    "GET blind-spots": "/api/v1/blind-spots/",
    "the status bar, uncached": "=head",
    "/metrics, uncached": "=metrics",
    "/readyz": "=ready",
    "queue": "/",
    "machines": "/machines/",
    "an event": "/events/{event}/",
    "search by name": "/find/?q={machine_name}",
    "machines by name": "/machines/?q={machine_name}",
    "GET machines by name": "/api/v1/machines/?q={machine_name}",
    "sets": "/sets/",
    "GET sets": "/api/v1/sets/",
    "a set": "/sets/{set}/",
    "GET sets, fifty": "/api/v1/sets/?page_size=50",
    "GET sets, fifty in numbers": "/api/v1/sets/?page_size=50&machines=false",
    "GET sets/N": "/api/v1/sets/{set}/",
    "a service": "/services/{service}/",
    "timeline": "/timeline/",
    "first steps": "/first-steps/",
    "reports": "/reports/",
}
# How long some may take in the large fleet, with its 5,000 open events, and how large they may be: milliseconds, kB.
MOST: dict[str, tuple[float | None, float | None]] = {
    "queue": (200, 150),
    "sets": (None, 100),
    "GET sets": (None, 100),
    "GET sets, fifty in numbers": (None, 100),
    "blind spots": (100, None),
    "/metrics, uncached": (100, None),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one page: wall-clock and processor seconds (ours and Postgres'), bytes, and queries."""

    wall: float
    processor: float
    size: int
    queries: int


def measure(stage: Stage) -> list[Line]:
    """A line a page: the small base, the large one, and how many times as long it takes there."""
    lines = []
    with base(SMALL) as few, base(LARGE) as many, answering(few) as small, answering(many) as large:
        for name, address in PAGES.items():
            taken = [(ask(small, address), ask(large, address)) for _ in range(ROUNDS + 1)][1:]
            one, other = (_middle([pair[side] for pair in taken]) for side in (0, 1))
            lines.append(
                Line(
                    name,
                    f"{one.wall * 1000:.1f} -> {other.wall * 1000:.1f} ms",
                    f"{one.processor * 1000:.0f} -> {other.processor * 1000:.0f} ms of processors,"
                    f" {other.size / 1000:.0f} kB, {one.queries} -> {other.queries} queries",
                    key=f"pages: {name}",
                    ratio=other.wall / one.wall,
                    aim=at_most(AIM),
                )
            )
            lines += _bounds(name, other)
    return lines


def _bounds(name: str, cost: Cost) -> list[Line]:
    """Return lines for the pages with a stated limit of time and size."""
    told = (("ms", cost.wall * 1000), ("kB", cost.size / 1000))
    return [
        Line(f"{name}: {unit}", f"{found:.0f}", key=f"pages: {name}, {unit}", ratio=found, aim=at_most(most))
        for (unit, found), most in zip(told, MOST.get(name, (None, None)), strict=True)
        if most is not None
    ]


def _middle(costs: list[Cost]) -> Cost:
    # The kernel counts a process's time in hundredths of a second, so that of one page says little.
    return Cost(
        statistics.median(one.wall for one in costs),
        statistics.mean(one.processor for one in costs),
        costs[-1].size,
        costs[-1].queries,
    )


@contextmanager
def answering(stage: Stage, *, set_of: str = "middle") -> Iterator[subprocess.Popen[str]]:
    """Start a process that reads this fleet; addresses name the set in the `middle` or the `flooded` one."""
    child = subprocess.Popen(
        bound([sys.executable, "-m", "bench.pages", set_of]),
        env=stage.environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield child
    finally:
        if child.stdin is not None:
            child.stdin.close()
        child.wait()


def ask(child: subprocess.Popen[str], address: str) -> Cost:
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("The child has no pipes.")
    child.stdin.write(f"{address}\n")
    child.stdin.flush()
    said = child.stdout.readline()
    if not said:
        raise RuntimeError(f"{address} was not answered.")
    return Cost(**json.loads(said))


def answer(set_of: str) -> None:
    """Addresses in, costs out, a line each; in the process that reads one base."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
    django.setup()
    from django.contrib.auth.models import Group, User
    from django.db import connection
    from django.test import Client
    from django.utils import timezone

    from fleet.operations import clock

    now = _bring_up_to_date()
    timezone.now = clock.now = lambda: now
    person, _ = User.objects.get_or_create(username="bench")
    person.groups.add(*Group.objects.all())
    client = Client(SERVER_NAME="localhost")
    client.force_login(person)
    names = _names(now, flooded=set_of == "flooded")
    calls = _calls(now)
    for line in sys.stdin:
        address = line.strip().format(**names)
        ask: Callable[[], int] = calls.get(address, lambda address=address: _page(client, address))
        asked: list[str] = []
        with connection.execute_wrapper(partial(_note, asked)):
            ask()
        backend = connection.connection.info.backend_pid
        began, spent = time.perf_counter(), time.process_time() + _spent(backend)
        size = ask()
        seconds, processor = time.perf_counter() - began, time.process_time() + _spent(backend) - spent
        print(json.dumps({"wall": seconds, "processor": processor, "size": size, "queries": len(asked)}), flush=True)


def _note(asked: list[str], execute: Any, sql: str, *rest: Any) -> Any:
    asked.append(sql)
    return execute(sql, *rest)


def _page(client: Any, address: str) -> int:
    found = client.get(address)
    if found.status_code != 200:
        raise RuntimeError(f"{address}: {found.status_code}")
    return len(found.content)


def _calls(now: datetime) -> dict[str, Callable[[], int]]:
    """Return the measured calls that are no Django pages."""
    from django.template.loader import render_to_string

    from fleet.gateway.probes import Probes
    from fleet.projections.desk import gauges
    from fleet.projections.desk.status_bar import status_bar

    probes: Any = Probes.__new__(Probes)
    probes.migrated = True
    return {
        "=head": lambda: len(render_to_string("desk/strip.html", {"strip": status_bar(now=now)})),
        "=metrics": lambda: len(repr(gauges.measure(now=now))),
        "=ready": lambda: len(repr(probes._ask())),
    }


def _bring_up_to_date() -> datetime:
    """Record changes of presence, as reconciliation does, at the time of the last contact; return that time."""
    from django.db import connection
    from django.db.models import Max

    from fleet.models import LastRun, PresenceRow
    from fleet.operations.intake import presence
    from fleet.operations.sets import coverage

    now: datetime = PresenceRow.objects.aggregate(at=Max("last_heard_at"))["at"] + timedelta(seconds=1)
    presence.turned(now=now)
    coverage.renew_all(now=now)
    LastRun.objects.update_or_create(name=LastRun.RECONCILE, defaults={"ran_at": now, "via": "beat"})
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return now


def _names(now: datetime, *, flooded: bool) -> dict[str, Any]:
    """Return the names in addresses: a set in the middle of the fleet or the flooded one, and its contents."""
    from fleet.models import AvailabilitySet, Machine, ScheduledEvent

    # Called same_suffix in both, so that a search for it finds as much: of `-00` the words begin those of nine others.
    same_suffix = AvailabilitySet.objects.filter(name__endswith="-05").order_by("name")
    # An event that is in both fleets as it is in the other: to be decided.
    events = ScheduledEvent.objects.filter(status="SCHEDULED", not_before__gt=now).order_by("pk")
    if flooded:
        home = AvailabilitySet.objects.order_by("-pk")[0]
        events = events.filter(availability_set=home)
    else:
        home = same_suffix[same_suffix.count() // 2]
    machine = Machine.objects.filter(availability_set=home).order_by("pk")[0]
    event = events.first()
    return {
        "set": home.pk,
        "service": home.service,
        "machine": machine.pk,
        "machine_name": machine.resource_name,
        "event": event.event_id if event else "",
    }


def _spent(backend: int) -> float:
    """Seconds of processor that a process of this machine has used."""
    fields = Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    answer(sys.argv[1])
