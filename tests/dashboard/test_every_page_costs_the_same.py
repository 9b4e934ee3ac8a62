"""Page costs: each page needs a fixed number of queries, whatever the fleet's size, and reads no large table whole."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from fleet import models
from fleet.models import AvailabilitySet, Entry, Maintenance, ScheduledEvent
from fleet.notifications import models as notification_models
from fleet.notifications import router
from fleet.projections import blind_spots, intake, machines, sets, spans
from fleet.projections.caches.coverage import Span
from fleet.projections.desk import fleet_map, gauges, queue, service, status_bar
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import event_detail
from fleet.projections.filters import EventFilter, MachineFilter
from fleet.projections.timeline import entries
from tests import factories
from tests.caches.walking import Listeners, line
from tests.plans import queries

PAGES = """
/ /fleet/ /fleet/?as=table /services/{service}/ /sets/ /sets/{set}/ /machines/ /machines/?as=counts
/machines/{machine}/ /history/ /events/{event}/ /timeline/ /timeline/?kind=stop_lifted&kind=approvals_stopped
/timeline/?service={service} /timeline/?resource_group=nowhere /blind-spots/ /blind-spots/?kind=agent-too-old
/find/?q=vm /views/ /caches/ /caches/{cache}/ /maintenances/{maintenance}/ /pulse/ /audit/ /audit/?q=no+such+words
/audit/?via=slack&via=pagerduty /audit/?actor_kind=person&kind=stop_lifted /timeline/?set={set}&kind=stop_lifted
/history/?type=Nothing /policy/ /handover/?since={day}T00:00:00Z&until=2090-01-01T00:00:00Z /reports/
/reports/{month}/ /reports/events/{event}/
"""
LISTS = """
events/ events/?needs_decision=true machines/ machines/?q=s1 machines/?ordering=-enrolled_at machines/counts/
events/{event}/ events/{event}/timeline/ events/{event}/documents/ approvals/ sets/ audit/ blind-spots/ caches/
maintenances/ notifications/ events/?changed_since=2026-01-01T00:00:00Z sets/?changed_since=2026-01-01T00:00:00Z
approvals/?changed_since=2026-01-01T00:00:00Z events/?resource_group=shop&set_name=set-1&machine_name=s1-1
machines/?resource_group=shop&set_name=set-1&machine_name=s1-1
audit/?resource_group=shop&set_name=set-1&machine_name=s1-1
"""


def answered(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200, answer


def grow(walker: Listeners, number: int) -> None:
    """One more set of three machines with an open, a decided and an ended event each, and a cache of its own."""
    names = [f"s{number}-{machine}" for machine in range(3)]
    for name in names:
        walker.enrol(name, availability_set=f"set-{number}")
        walker.say(name)
    walker.later(0.1)
    ids = [f"0A1B2C3D-0000-4000-8000-{number:06d}{kind:06d}" for kind in range(3)]
    times = [walker.now + timedelta(minutes=5 + kind) for kind in range(3)]
    listings = [
        factories.listing(event_id, resources=(names[kind],), not_before=times[kind])
        for kind, event_id in enumerate(ids)
    ]
    walker.all_say(*listings, names=names)
    walker.approve(ids[1])
    walker.all_say(*listings[:2], names=names)
    AvailabilitySet.objects.update(service="shop")
    host = f"cache{number}.redis.cache.windows.net"
    walker.cover(names[0], "subscribed", host=host)
    for kind in ("Start", "Ended", "Start"):
        walker.hear(names[0], line(f"NodeMaintenance{kind}"), host=host)


def calls(client: Client) -> dict[str, Callable[[], Any]]:
    """What is read often, by name: projections, pages and lists of the API."""
    now = datetime.now(UTC)
    event = ScheduledEvent.objects.order_by("pk")[0]
    machine_id = event.availability_set.machines.order_by("pk")[0].pk
    set_id, maintenance = event.availability_set_id, Maintenance.objects.order_by("pk")[0]
    found: dict[str, Callable[[], Any]] = {
        "queue": lambda: queue.decision_queue(now=now),
        "pulse": lambda: queue.pulse(now=now),
        "overview": lambda: status_bar.overview(now=now),
        "cards": lambda: sets.cards(now=now, first=[set_id]),
        "sets": lambda: sets.listing(now=now),
        "set lines": lambda: sets.lines(now=now),
        "gauges": lambda: gauges.measure(now=now),
        "set": lambda: sets.detail(set_id=set_id, now=now),
        "machines": lambda: machines.listing(now=now, machines=MachineFilter({"q": "s"}).qs),
        "machine": lambda: machines.detail(machine_id=machine_id, now=now),
        "events": lambda: event_rows.listing(now=now, events=EventFilter({}, now=now).qs, size=100),
        "event": lambda: event_detail(event_id=event.event_id, now=now),
        "documents": lambda: intake.for_event(event_id=event.event_id),
        "fleet map": lambda: fleet_map.fleet_map(now=now),
        "service": lambda: service.detail(service=event.availability_set.service, now=now),
        "spans": lambda: spans.of_machines(
            set_id, Span(now - timedelta(hours=1), now), now=now, availability_set=set_id
        ),
        "timeline": entries.fleet,
        "story": lambda: entries.for_event(event_id=event.event_id),
        "blind spots": lambda: blind_spots.overview(now=now),
    }
    parts = {
        "service": event.availability_set.service, "set": set_id, "machine": machine_id, "event": event.event_id,
        "cache": maintenance.cache_id, "maintenance": maintenance.pk, "day": f"{now:%Y-%m-%d}", "month": f"{now:%Y-%m}",
    }  # fmt: skip
    found |= {f"page {path}": partial(answered, client, path.format(**parts)) for path in PAGES.split()}
    found |= {
        f"GET {path}": partial(answered, client, f"/api/v1/{path.format(event=event.event_id)}")
        for path in LISTS.split()
    }
    return found


# The number of queries of each page. If this file is missing, the test writes it.
COMMITTED = Path(__file__).with_name("queries.json")


@pytest.fixture
def small(db: None) -> Listeners:
    fleet = Listeners(now=datetime.now(UTC))
    grow(fleet, 1)
    # Its first run stores a cursor, and the gauges read one query more from then on.
    router.route(now=fleet.now, via="celery")
    return fleet


def costs(client: Client) -> dict[str, int]:
    return {name: len(queries(call)) for name, call in calls(client).items()}


def test_projections_and_pages_cost_what_is_committed_and_no_more_in_a_larger_fleet(
    small: Listeners, operator: Client
) -> None:
    # Once without being compared: what a process keeps is no part of what a page costs.
    costs(operator)
    before = costs(operator)
    if not COMMITTED.exists():
        COMMITTED.write_text(json.dumps(before, indent=2) + "\n", encoding="utf-8")
        pytest.fail(f"{COMMITTED.name} has been rewritten: read and commit it.")
    assert before == json.loads(COMMITTED.read_text(encoding="utf-8"))
    for number in range(2, 4):
        grow(small, number)
    assert costs(operator) == before
    lists_neither_count_nor_skip()
    # Overviews omit that further machines have seen an event.
    assert Entry.objects.filter(kind="event_sighted").exists()
    kinds = {row.kind for row in entries.fleet(size=500).results}
    assert "event_seen" in kinds and "event_sighted" not in kinds


def lists_neither_count_nor_skip() -> None:
    now = datetime.now(UTC)
    for call in (
        lambda cursor: event_rows.listing(now=now, cursor=cursor, size=2),
        lambda cursor: machines.listing(now=now, cursor=cursor, size=2),
        lambda cursor: sets.listing(now=now, cursor=cursor, size=1),
        lambda cursor: entries.fleet(cursor=cursor, size=2),
    ):
        first = call(None)
        assert first.next is not None
        for sql in queries(lambda call=call, first=first: call(first.next)):
            assert "OFFSET" not in sql
            assert "COUNT(" not in sql


# Whatever is read often is found by an index. Postgres is asked with sequential scans switched off, so that neither
# the size of a test's tables nor an estimate decides: what is then still read so has no index that could answer it.

# What grows with the fleet or with time.
GROWING = {
    model._meta.db_table
    for model in (
        models.Approval, notification_models.DeliveryAttempt, models.Entry, models.LatestDocument, models.Machine,
        notification_models.Message,
        notification_models.MessageDelivery, models.Notification, models.Observation, models.Order, models.PresenceRow,
        models.ScheduledEvent, models.Sighting,
    )
}  # fmt: skip
# Reads of a month's report, which users do not open during an incident, and reads that count a whole table by their
# nature: the fleet's presence, its machines by value, and its map.
WHOLE = {
    "page /reports/{month}/",
    "gauges",
    "overview",
    "fleet map",
    "blind spots",
    "page /machines/?as=counts",
    "GET machines/counts/",
    "page /fleet/",
    "page /fleet/?as=table",
    "page /blind-spots/",
}


def plan(sql: str) -> dict[str, Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        found: Any = (cursor.fetchone() or ("",))[0]
        transaction.set_rollback(True)
    return dict((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])


def read_whole(node: dict[str, Any]) -> Iterator[str]:
    """The tables that grow and are read from end to end."""
    if node["Node Type"] == "Seq Scan":
        # A test's table has one partition, and that is what is read.
        name = {"fleet_observation": "fleet_observation_all"}.get(node["Relation Name"], node["Relation Name"])
        if name.removesuffix("_from_0") in GROWING:
            yield name
    for child in node.get("Plans", ()):
        yield from read_whole(child)


def faults(client: Client) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, call in calls(client).items():
        for sql in queries(call):
            if sql.lstrip("( ").upper().startswith(("SELECT", "WITH")):
                found.setdefault(name, []).extend((table, sql[:2000]) for table in read_whole(plan(sql)))
    return {name: wrong for name, wrong in found.items() if wrong and name not in WHOLE}


@pytest.fixture
def home(db: None) -> None:
    fleet = Listeners(now=datetime.now(UTC))
    for number in range(1, 3):
        grow(fleet, number)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


@pytest.mark.long
def test_nothing_that_is_read_often_reads_a_table_that_grows_from_end_to_end(home: None, operator: Client) -> None:
    found = faults(operator)
    # By name and table first: the statements are long.
    assert {name: sorted({table for table, _ in wrong}) for name, wrong in found.items()} == {}, found
