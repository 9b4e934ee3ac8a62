"""Whatever is read often is found by an index. Postgres is asked with sequential scans switched off, so that neither
the size of a test's tables nor an estimate decides: what is then still read so has no index that could answer it. How
far an index is walked, it does not say.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from fleet import models
from fleet.notifications import models as notification_models
from tests.caches.walking import Listeners
from tests.dashboard.hot import calls, grow
from tests.plans import queries

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
