"""Repeated, late and refused reports."""

import pytest

from fleet.models import Entry, LatestDocument, Observation, ScheduledEvent, Sighting
from fleet.operations.intake import keep
from tests.factories import Fleet, announced, document_data, listing, the_event

pytestmark = pytest.mark.django_db


def state() -> tuple[object, ...]:
    events = list(ScheduledEvent.objects.order_by("pk").values())
    sightings = list(Sighting.objects.order_by("pk").values())
    return events, sightings, list(LatestDocument.objects.order_by("pk").values()), Entry.objects.count()


def test_the_same_delivery_again_changes_nothing(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    agent = fleet.agents["vm1"]
    delivery = agent.delivery(agent.document(listing(), at=fleet.now))
    # Twice in one batch, too.
    first = fleet.record(delivery, delivery)
    assert Observation.objects.filter(machine=agent.machine, seq=delivery.reports[0].seq).count() == 1
    before = state()
    fleet.later(30)
    ((again,), (was,)) = fleet.record(delivery).values(), first.values()
    assert (again.acknowledged, again.before, was.before) == (was.acknowledged, was.acknowledged, 1)
    assert state() == before


def test_a_late_document_changes_nothing_but_history(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    agent = fleet.agents["vm1"]
    late = agent.document(listing(), at=fleet.now)
    fleet.later(10)
    newer = agent.document(at=fleet.now)
    fleet.record(agent.delivery(newer))
    before = state()
    fleet.record(agent.delivery(late))
    assert state() == before
    assert Observation.objects.filter(machine=agent.machine, seq=late.seq).exists()


def test_the_acknowledgement_covers_refused_numbers(fleet: Fleet) -> None:
    fleet.enrol_set(1)
    agent = fleet.agents["vm1"]
    good = agent.document(at=fleet.now)
    delivery = keep.Delivery(
        machine_id=agent.machine.pk, spool=agent.spool, reports=[good], refused=[(good.seq + 1, "no such field")]
    )
    assert fleet.record(delivery)[delivery.key].acknowledged == good.seq + 1
    assert Entry.objects.filter(kind="report_refused", machine=agent.machine).count() == 1


def test_a_document_that_cannot_be_read_is_kept_flagged_and_shown_once(fleet: Fleet) -> None:
    announced(fleet)
    for name in ("vm1", "vm2"):
        fleet.report(name, document_data(b""))
    assert Entry.objects.filter(kind="document_unreadable").count() == 1
    assert the_event().status == "SCHEDULED"
    assert Sighting.objects.filter(gone_at__isnull=True).count() == 6
