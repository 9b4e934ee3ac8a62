"""Presence of machines: each is live, late, silent, gone or expected by its last report."""

from datetime import datetime, timedelta

import pytest

from fleet.domain.intake import Document, Limits, presence_of
from fleet.domain.states import Presence
from fleet.models import Machine, Observation, PollGap, PresenceRow
from fleet.operations.intake import listings, presence
from fleet.operations.intake.listings import MachineDocument
from fleet.operations.intake.presence import Contact
from fleet.projections.caches.coverage import Span
from fleet.projections.spans import unwatched
from tests.factories import NOW, Fleet


def ago(count: float | None) -> datetime | None:
    return None if count is None else NOW - timedelta(seconds=count)


@pytest.mark.parametrize(
    ("heard", "polled", "expected"),
    [
        (1, 1, Presence.LIVE), (1, 61, Presence.LATE), (61, 1, Presence.LATE), (1, 601, Presence.SILENT),
        (601, 601, Presence.SILENT), (1, None, Presence.SILENT), (1, 100_000, Presence.GONE),
        (100_000, 1, Presence.GONE), (None, None, Presence.EXPECTED),
    ],
)  # fmt: skip
def test_both_times_count(heard: float | None, polled: float | None, expected: Presence) -> None:
    found = presence_of(ago(heard), ago(polled), revoked=False, now=NOW, limits=Limits())
    assert found is expected


def test_a_revoked_machine_is_gone_however_loud_it_is() -> None:
    found = presence_of(NOW, NOW, revoked=True, now=NOW, limits=Limits())
    assert found is Presence.GONE


# An unchanged poll moves a time and writes no row; where polls leap, that is written down: history stays true.

HOUR = timedelta(hours=1)


@pytest.fixture
def machine(db: None) -> Machine:
    fleet = Fleet(now=NOW)
    fleet.enrol("vm1")
    fleet.say("vm1")
    return Machine.objects.get()


def polls(machine: Machine, begin: datetime, end: datetime) -> datetime:
    """As held calls tell of them."""
    at = begin
    while at <= end:
        presence.flush(contacts=[Contact(machine.pk, at, at)])
        at += timedelta(seconds=240)
    return end


def hatched(machine: Machine, now: datetime) -> list[tuple[int, int]]:
    """In minutes since the beginning."""
    poll = PresenceRow.objects.get().last_poll_at
    found = unwatched([(machine.pk, poll)], Span(NOW - HOUR, now), now=now)
    return [tuple(round((at - NOW).total_seconds() / 60) for at in (gap.begin, gap.end)) for gap in found]  # type: ignore[misc]


def test_a_machine_that_polls_all_the_time_is_watched_and_writes_no_row(machine: Machine) -> None:
    before = Observation.objects.count()
    now = polls(machine, NOW, NOW + 3 * HOUR)
    assert hatched(machine, now) == []
    assert (Observation.objects.count(), PollGap.objects.count()) == (before, 0)


def test_time_without_contact_is_hatched_permanently(machine: Machine) -> None:
    polls(machine, NOW, NOW + HOUR)
    assert hatched(machine, NOW + 2 * HOUR) == [(60, 120)]
    now = polls(machine, NOW + 2 * HOUR, NOW + 3 * HOUR)
    assert hatched(machine, now) == [(60, 120)]
    assert PollGap.objects.count() == 1


def test_time_of_a_backend_outage_counts_as_watched_after_a_reminder(machine: Machine) -> None:
    polls(machine, NOW, NOW + HOUR)
    document = Observation.objects.get()
    for number in range(1, 12):
        at = NOW + HOUR + timedelta(minutes=5 * number)
        times = {"at": at, "machine_at": at, "received_at": NOW + 2 * HOUR}
        place = {"epoch": document.epoch, "seq": document.seq + number, "document_id": document.document_id}
        Observation.objects.create(machine=machine, **place, **times)
    now = polls(machine, NOW + 2 * HOUR, NOW + 3 * HOUR)
    assert PollGap.objects.count() == 1
    assert hatched(machine, now) == []


def test_a_document_tells_of_a_leap_as_well(machine: Machine) -> None:
    polls(machine, NOW, NOW + HOUR)
    document = Document(readable=True)
    listings.ahead_of_latest([MachineDocument(machine.pk, (9, 1), NOW + 2 * HOUR, "f" * 64, None, document)])
    assert hatched(machine, NOW + 2 * HOUR) == [(60, 120)]


def test_before_leaps_were_written_down_reports_tell(machine: Machine) -> None:
    PresenceRow.objects.update(watched_from=NOW + 2 * HOUR, last_poll_at=NOW + 2 * HOUR)
    now = polls(machine, NOW + 2 * HOUR, NOW + 3 * HOUR)
    # Nothing but its first document is known of the time before.
    assert hatched(machine, now) == [(0, 120)]
