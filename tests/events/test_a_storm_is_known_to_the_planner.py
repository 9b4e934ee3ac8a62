"""Query plans in a storm: Postgres analyses fast-growing tables within seconds, so that pages stay fast."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from fleet.models import ScheduledEvent
from fleet.operations.events import scheduling
from tests import factories
from tests.holding import as_patient_as, session

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = ScheduledEvent._meta.db_table
EVENTS_OF_A_STORM = 500


def rows(fleet: factories.Fleet) -> None:
    made = {"availability_set": factories.the_set(), "created_at": fleet.now, "first_seen_at": fleet.now}
    ScheduledEvent.objects.bulk_create(
        ScheduledEvent(event_id=f"E{number}", status="SCHEDULED", **made) for number in range(EVENTS_OF_A_STORM)
    )


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def expected() -> int:
    """How many open events the planner expects."""
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) SELECT FROM fleet_scheduledevent WHERE status = 'SCHEDULED'")
        (plan,) = cursor.fetchone()
    found: Any = json.loads(plan) if isinstance(plan, str) else plan
    return int(found[0]["Plan"]["Plan Rows"])


@pytest.fixture
def fleet(transactional_db: None) -> factories.Fleet:
    return factories.Fleet(now=timezone.now())


@pytest.fixture
def storm(fleet: factories.Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many events, of which Postgres has not heard: it saw the table when it had been emptied."""
    fleet.enrol_set(1)
    # Its own look may come at any moment.
    run(f"ALTER TABLE {EVENTS} SET (autovacuum_enabled = off)")
    rows(fleet)
    run(f"DELETE FROM {EVENTS}")
    run(f"ANALYZE {EVENTS}")
    rows(fleet)
    # Each session tells of what it changed when it is idle, at most once a second.
    run("SELECT pg_stat_force_next_flush()")
    monkeypatch.setattr(scheduling, "PAUSE_SECONDS", 0)
    assert expected() < 100
    yield
    run(f"ALTER TABLE {EVENTS} RESET (autovacuum_enabled)")


def test_a_tick_analyses_what_has_filled_up_unless_it_is_locked_or_has_just_been_analysed(
    storm: None, fleet: factories.Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(scheduling, "PAUSE_SECONDS", 5)
        assert EVENTS not in scheduling.renew()
    with session() as other, as_patient_as("relay"):
        other.execute(f"LOCK TABLE {EVENTS} IN SHARE UPDATE EXCLUSIVE MODE")
        # A blocked ANALYZE would be cancelled: the relay's lock timeout is half a second.
        scheduling.renew()
    assert expected() < 100
    fleet.advance()
    assert EVENTS_OF_A_STORM / 2 < expected() < EVENTS_OF_A_STORM * 2
    run("SELECT pg_stat_force_next_flush()")
    scheduling.renew()
    # What has changed little is left alone.
    run(f"UPDATE {EVENTS} SET description = 'new' WHERE id % 10 = 0")
    run("SELECT pg_stat_force_next_flush()")
    assert EVENTS not in scheduling.renew()
