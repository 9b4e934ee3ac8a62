"""The impact of an event on its set is counted in the database, and equals a count of its machines one by one."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from fleet.domain.states import Presence
from fleet.models import AvailabilitySet, LatestDocument, Machine, PresenceRow, ScheduledEvent
from fleet.models.facts.events import machine_presence
from fleet.projections.events.rows import BlastRadius, blast_radii, taken_by_others
from tests.plans import queries

NOW = datetime(2026, 7, 1, tzinfo=UTC)
AGES = (0, 30, 59, 61, 599, 601, 86_399, 86_401, None)


@pytest.fixture
def events(db: None) -> list[ScheduledEvent]:
    """Three sets of twelve machines in every presence, with four events each, some of which have started."""
    dice = Random(3)

    def ago() -> datetime | None:
        age = dice.choice(AGES)
        return None if age is None else NOW - timedelta(seconds=age)

    made = []
    for home in range(3):
        row = AvailabilitySet.objects.create(
            kind="availability_set",
            name=f"set-{home}",
            key=f"set-{home}",
            created_at=NOW,
            min_live=dice.choice([None, 4]),
        )
        for number in range(12):
            machine = Machine.objects.create(
                vm_id=f"{home}-{number}", resource_name=f"VM-{number % 11}", availability_set=row, enrolled_at=NOW,
                revoked_at=dice.choice([None, None, None, NOW]),
            )  # fmt: skip
            if dice.random() < 0.9:
                PresenceRow.objects.create(machine=machine, last_heard_at=ago(), last_poll_at=ago())
            at = ago()
            if at is not None:
                LatestDocument.objects.create(machine=machine, epoch=1, seq=1, document_hash="", at=at)
        made += [
            ScheduledEvent.objects.create(
                event_id=f"E{home}{number}", availability_set=row, created_at=NOW, first_seen_at=NOW,
                status=dice.choice(["SCHEDULED", "STARTED"]),
                resources=[f"vm-{n}" for n in dice.sample(range(13), 3)],
            )
            for number in range(4)
        ]  # fmt: skip
    return made


def test_it_equals_a_count_of_every_machine(events: list[ScheduledEvent]) -> None:
    down = taken_by_others(events)
    found = blast_radii(events, now=NOW)
    for event in events:
        machines = Machine.objects.filter(availability_set=event.availability_set)
        there = [
            (machine.resource_name.casefold(), presence)
            for machine in machines.select_related("presence", "latest_document")
            if (presence := machine_presence(machine, now=NOW)) is not Presence.GONE
        ]
        live = [name for name, presence in there if presence is Presence.LIVE]
        hit = {name.casefold() for name in event.resources}
        assert found[event.pk] == BlastRadius(
            stay_up=sum(name not in hit | down[event.pk] for name in live),
            total=len(there),
            hit=len(hit),
            not_live=len(there) - len(live),
            min_live=event.availability_set.min_live,
        )


def test_two_queries_read_only_named_machines(events: list[ScheduledEvent]) -> None:
    _, of_names = queries(blast_radii, events, now=NOW)
    assert "GROUP BY" in of_names
