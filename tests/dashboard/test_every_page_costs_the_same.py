"""Page costs: each page needs a fixed number of queries, whatever the fleet's size."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.test import Client

from fleet.models import Entry
from fleet.notifications import router
from fleet.projections import machines, sets
from fleet.projections.events import rows as event_rows
from fleet.projections.timeline import entries
from tests.caches.walking import Listeners
from tests.dashboard.hot import calls, grow
from tests.plans import queries

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
