"""Database dumps: a role without special rights restores one on any server; the timeline continues and verifies."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from pytest_django.plugin import DjangoDbBlocker

from fleet.audit import seals as sealing
from fleet.models import Entry, ScheduledEvent
from fleet.models.timeline import numbering
from fleet.projections.timeline import entries
from tests import restoring
from tests.databases import database, database_named, django_on
from tests.factories import EVENT, Fleet, announced, listing

OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"
# A server in use has seen more transactions than a new one.
TRANSACTIONS = 1500


@pytest.fixture
def restored(migrated_template: str, django_db_blocker: DjangoDbBlocker, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet with one event, sealed, out of a dump, on another server; its second event came after the dump."""
    with database(migrated_template) as name, django_db_blocker.unblock():
        with django_on(name):
            with connection.cursor() as cursor:
                each = "PERFORM pg_current_xact_id(); COMMIT;"
                cursor.execute(f"DO $$ BEGIN FOR n IN 1..{TRANSACTIONS} LOOP {each} END LOOP; END $$")
            fleet = Fleet(now=datetime.now(UTC) - timedelta(minutes=2))
            announced(fleet)
            sealing.seal(now=fleet.now, via="beat")
            restoring.dump(database_named(name), tmp_path / "drydock.dump")
            announced(fleet, event_id=OTHER)
        with restoring.server() as url:
            there = restoring.restore_dump(tmp_path / "drydock.dump", url)
            with django_on(restoring.ROLE, HOST=restoring.host_of(there), USER=restoring.ROLE):
                yield fleet


def test_restore_needs_no_special_rights_and_the_timeline_continues(restored: Fleet) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, usesuper FROM pg_user WHERE usename = current_user")
        assert cursor.fetchone() == (restoring.ROLE, False)
    assert numbering().missing
    (*_, last) = entries.entries_after(cursor=(0, 0, 0)) or Entry.objects.order_by("xid", "id")
    place = (1, last.xid, last.pk)
    out = StringIO()
    call_command("begin_era", stdout=out)
    assert "of a dump" in out.getvalue()
    # The database still refuses to change what was written.
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM fleet_entry")
    assert list(ScheduledEvent.objects.values_list("event_id", flat=True)) == [EVENT]
    # An agent tells its newest document again, behind the numbers that are lost here.
    restored.later(30)
    agent = restored.agents["vm1"]
    both = agent.document(listing(), listing(OTHER), at=restored.now)
    delivery = agent.delivery(both)
    delivery.acknowledged = agent.seq - 1
    restored.record(delivery)
    assert set(ScheduledEvent.objects.values_list("event_id", "status")) == {(EVENT, "SCHEDULED"), (OTHER, "SCHEDULED")}
    assert Entry.objects.filter(kind="reports_lost", era=2).exists()
    told = entries.entries_after(cursor=place)
    assert {"era_begun", "event_seen", "reports_lost"} <= {entry.row.kind for entry in told}
    assert {entry.cursor[0] for entry in told} == {2}
    assert sealing.seal(now=restored.now, via="beat").rows == len(told)
    call_command("verify_audit", stdout=StringIO())
