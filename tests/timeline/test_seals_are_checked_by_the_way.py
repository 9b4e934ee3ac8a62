"""Background check of seals: a process recomputes some every few minutes, and reports a changed row unasked."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import connection, transaction

from fleet.audit import seals
from fleet.audit.seals import seal
from fleet.domain.actor import DRYDOCK
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, LastRun, OpenTrouble
from fleet.operations import blind_spots
from fleet.operations.timeline.entries import tell
from tests.agent.fleet_double import eventually
from tests.timeline.test_the_timeline_is_sealed import behind_our_back
from tests.words import text

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def _is_sealed(minute: int) -> bool:
    return seal(now=NOW + timedelta(minutes=minute), via="beat").rows == 1


def sealed(count: int) -> None:
    for minute in range(count):
        with transaction.atomic():
            tell(EntryKind.HANDOVER_READ, DRYDOCK, at=NOW)
        # A server that is not ours alone has other transactions, which hold the horizon back for a moment.
        eventually(partial(_is_sealed, minute))


def checked(times: int = 1) -> list[int | None]:
    return [seals.check(now=NOW + timedelta(minutes=number), via="beat") for number in range(times)]


def test_what_is_as_it_was_sealed_holds_and_nothing_at_all_does_too() -> None:
    assert checked() == [None]
    sealed(9)
    assert checked(5) == [None] * 5


CHANGES = (
    "UPDATE fleet_entry SET actor = 'stranger' WHERE id = (SELECT max(id) FROM fleet_entry)",
    "DELETE FROM fleet_entry WHERE id = (SELECT max(id) FROM fleet_entry)",
    "UPDATE fleet_seal SET hash = md5('x') WHERE number = 9",
    "UPDATE fleet_seal SET previous_hash = md5('x') WHERE number = 9",
    "UPDATE fleet_seal SET rows = 7 WHERE number = 9",
    "DELETE FROM fleet_seal WHERE number = 8",
)


def test_whatever_is_changed_among_the_newest_shows_at_once() -> None:
    sealed(9)
    for statement in CHANGES:
        with behind_our_back(statement):
            assert checked() == [9], statement


def test_what_lies_further_back_shows_when_its_turn_comes() -> None:
    sealed(12)
    with behind_our_back("UPDATE fleet_entry SET actor = 'stranger' WHERE id = (SELECT min(id) + 4 FROM fleet_entry)"):
        assert checked(2) == [None, 5]
    LastRun.objects.filter(name=seals.RUN).update(newest_id=0)
    # Three at a time, and then from the beginning again.
    assert checked(5) == [None] * 5
    assert LastRun.objects.get(name=seals.RUN).newest_id in range(13)


def test_broken_seal_is_reported_once_and_its_end_once() -> None:
    sealed(4)
    # After the last seal: a seal of later than now would be trouble of its own.
    blind_spots.compare(now=NOW + timedelta(minutes=4), via="beat")
    with behind_our_back(CHANGES[0]):
        for minutes in (10, 16, 17, 22):
            blind_spots.compare(now=NOW + timedelta(minutes=minutes), via="beat")
        (line,) = Entry.objects.filter(kind=EntryKind.AUDIT_FAILED.value)
        assert "seal 4 does not match its rows" in text(line)
        assert OpenTrouble.objects.filter(code="audit-failed").count() == 1
        with connection.cursor() as cursor:
            cursor.execute("UPDATE fleet_entry SET actor = 'Drydock' WHERE actor = 'stranger'")
        blind_spots.compare(now=NOW + timedelta(minutes=28), via="beat")
        (over,) = Entry.objects.filter(kind=EntryKind.COVERAGE_CLOSED.value)
        assert text(over) == "Resolved: The timeline does not match its seals."
