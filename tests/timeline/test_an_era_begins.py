"""After a restore a new era begins: what is written then comes after all that is there, whatever its transaction.

A role without special rights restores a dump on any server; the timeline continues and verifies.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from pytest_django.plugin import DjangoDbBlocker

from fleet.audit import seals as sealing
from fleet.domain.actor import COMMAND_LINE
from fleet.domain.gauges import UNSEALED
from fleet.domain.timeline import EntryKind
from fleet.gateway.feed import cursor_text, feed_frame
from fleet.gateway.streams import read_cursor
from fleet.models import Entry, LastRun, ScheduledEvent, Seal
from fleet.models.timeline import numbering
from fleet.operations.events import scheduling
from fleet.operations.timeline.entries import tell
from fleet.projections.blind_spots import overview
from fleet.projections.desk.gauges import measure
from fleet.projections.timeline import entries
from tests import restoring
from tests.archive.shelves import NOW, findings, without_triggers
from tests.databases import database, database_named, django_on
from tests.factories import EVENT, Fleet, announced, listing
from tests.processes import wait_for
from tests.timeline.test_the_timeline_is_sealed import BARE, behind_our_back
from tests.words import sentence, text

AHEAD = 1_000_000


@pytest.fixture
def restored(migrated_template: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database whose rows, sealed, name transactions that its server has not reached."""
    with database(migrated_template) as name, django_db_blocker.unblock(), django_on(name):
        with connection.cursor() as cursor:
            for number in range(6):
                cursor.execute(BARE, [f"before {number}"])
            sealing.seal(now=NOW, via="beat")
            # As if their server had been in use for longer than this one; sealed as it would have been there.
            with without_triggers():
                cursor.execute("DELETE FROM fleet_seal")
                cursor.execute(f"UPDATE fleet_entry SET xid = xid + {AHEAD}")
        yield


def begin() -> str:
    out = StringIO()
    call_command("begin_era", "--why", "the disk died", stdout=out)
    return out.getvalue()


def write(said: str) -> Entry:
    with transaction.atomic():
        tell(EntryKind.SET_NAMED, COMMAND_LINE, at=datetime.now(UTC), name=said)
    return Entry.objects.order_by("pk").last() or pytest.fail("nothing was written")


def codes() -> list[str]:
    return [spot.code for spot in overview(now=NOW).spots]


def test_missing_era_is_reported_and_the_command_says_what_it_did_and_twice_is_once(restored: None) -> None:
    assert numbering().missing
    assert "era-not-begun" in codes()
    assert any("Run “drydock-fleet begin_era”." in sentence(each.reason) for each in findings())
    said = begin()
    assert not numbering().missing
    assert "era-not-begun" not in codes()
    assert "of a dump" in said and "Era 2 of the timeline begins." in said
    line = Entry.objects.get(kind="era_begun")
    assert (line.era, line.via, line.why) == (2, "command", "the disk died")
    assert (line.before, line.after) == ({"era": 1}, {"era": 2})
    assert text(line) == "Era 2 of the timeline began: a backup was restored, and transaction numbers start again."
    assert begin() == "Era 2 has only just begun: nothing to do.\n"
    write("something")
    assert "behind the newest line's" in begin()
    assert write("more").era == 3


def test_migrating_begins_it_where_a_dump_was_restored_and_nowhere_else(restored: None) -> None:
    out = StringIO()
    call_command("migrate", "--plan", stdout=out)
    assert numbering().missing
    call_command("migrate", stdout=out)
    assert "era 2 of the timeline begins" in out.getvalue()
    call_command("migrate", verbosity=0)
    assert (numbering().era, numbering().missing) == (2, False)


def test_streams_tell_everything_once_and_in_order(restored: None) -> None:
    newest = Entry.objects.order_by("era", "xid", "id").last()
    assert newest is not None
    cursor = (newest.era, newest.xid, newest.pk)
    begin()
    after = [write(f"after {number}") for number in range(3)]
    # A transaction in another database of the same server holds the feed back while it runs.
    wait_for(lambda: entries.newest_cursor()[1] >= after[-1].xid, seconds=20, what="the entries are below the horizon")
    resumed = entries.entries_after(cursor=cursor)
    assert [entry.row.id for entry in resumed] == [after[0].pk - 1, *(row.pk for row in after)]
    whole = entries.entries_after(cursor=(0, 0, 0))
    assert [entry.cursor for entry in whole] == sorted(entry.cursor for entry in whole)
    assert len(whole) == Entry.objects.count() == 10
    assert entries.newest_cursor() > whole[-1].cursor
    assert entries.entries_after(cursor=whole[-1].cursor) == []


def test_ids_of_streams_have_the_old_form_in_the_first_era(restored: None) -> None:
    assert cursor_text((1, 77, 5)) == b"77.5"
    assert cursor_text((2, 77, 5)) == b"2.77.5"
    for cursor in ((1, 77, 5), (2, 77, 5), (2**15 - 1, 2**63 - 1, 2**63 - 1)):
        assert read_cursor(cursor_text(cursor).decode()) == cursor
    assert [read_cursor(text) for text in ("32768.1.1", "1.2.3.4", "1", "", "9" * 30 + ".1", "1.²")] == [None] * 6
    begin()
    (entry,) = entries.entries_after(cursor=(1, 2**62, 0))
    assert feed_frame(entry).frame.startswith(b"id: 2.")


def test_seals_continue_across_eras_and_each_change_is_found(restored: None) -> None:
    # What an era leaves unsealed is sealed in the next: nothing can come among it any more.
    begin()
    for number in range(3):
        write(f"after {number}")
    assert sealing.seal(now=NOW + timedelta(minutes=1), via="beat", most_rows=4).rows == 10
    assert list(Seal.objects.order_by("number").values_list("last_era", "rows")) == [(1, 4), (2, 4), (2, 2)]
    assert findings() == []
    rows = list(Entry.objects.order_by("era", "xid", "id").values_list("pk", flat=True))
    changes = ["era = era + 1", "era = era - 1", f"xid = xid + {AHEAD}", "why = 'x'"]
    statements = [
        f"UPDATE fleet_entry SET {change} WHERE id = {pk}"
        for change in changes
        for pk in (rows[0], rows[5], rows[6], rows[-1])
    ]
    of_seals = ("last_era = 1", "last_era = 3", "last_xid = last_xid + 1")
    statements += [f"UPDATE fleet_seal SET {change} WHERE number = 3" for change in of_seals]
    for statement in statements:
        with behind_our_back(statement):
            assert findings(), statement
    assert findings() == []


def test_reconciling_reads_what_is_new_in_the_era_and_nothing_of_before_again(restored: None) -> None:
    run = LastRun(name="reconcile", ran_at=NOW, via="beat", snapshot=f"{AHEAD}:{2 * AHEAD}:", newest_id=10**9)
    begin()
    assert scheduling.read_news(run).everywhere
    assert scheduling.read_news(run) == scheduling.News()
    write("something")
    assert not scheduling.read_news(run).everywhere
    assert run.snapshot
    # Nor does the age of what is unsealed go by the transaction alone.
    assert unsealed_seconds() > 0
    sealing.seal(now=NOW, via="beat")
    assert unsealed_seconds() == 0


def unsealed_seconds() -> float:
    (found,) = [one for one in measure(now=datetime.now(UTC)) if one.gauge is UNSEALED]
    return found.values[()]


OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"
# A server in use has seen more transactions than a new one.
TRANSACTIONS = 1500


@pytest.fixture
def dumped(migrated_template: str, django_db_blocker: DjangoDbBlocker, tmp_path: Path) -> Iterator[Fleet]:
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


def test_restore_needs_no_special_rights_and_the_timeline_continues(dumped: Fleet) -> None:
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
    dumped.later(30)
    agent = dumped.agents["vm1"]
    both = agent.document(listing(), listing(OTHER), at=dumped.now)
    delivery = agent.delivery(both)
    delivery.acknowledged = agent.seq - 1
    dumped.record(delivery)
    assert set(ScheduledEvent.objects.values_list("event_id", "status")) == {(EVENT, "SCHEDULED"), (OTHER, "SCHEDULED")}
    assert Entry.objects.filter(kind="reports_lost", era=2).exists()
    told = entries.entries_after(cursor=place)
    assert {"era_begun", "event_seen", "reports_lost"} <= {entry.row.kind for entry in told}
    assert {entry.cursor[0] for entry in told} == {2}
    assert sealing.seal(now=dumped.now, via="beat").rows == len(told)
    call_command("verify_audit", stdout=StringIO())
