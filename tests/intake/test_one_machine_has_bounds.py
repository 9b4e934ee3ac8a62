"""What one machine brings beyond its bounds is kept as received and quarantined; its own events never are."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from drydock_agent import wire

from fleet.domain import intake
from fleet.domain.intake import MOST_READ, read_document
from fleet.domain.timeline import EntryKind
from fleet.models import Cache, DocumentBody, Entry, Observation, ScheduledEvent, Sighting, WaitingReport
from fleet.models.machines import AvailabilitySet, Machine
from fleet.operations import reports
from fleet.projections import blind_spots
from tests.factories import Agent, Fleet, document, listing

pytestmark = pytest.mark.django_db

FOREIGN = "nobody-here"


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.enrol("loud", availability_set="loud")
    fleet.enrol("other", availability_set="other")
    return fleet


def ids() -> Iterator[str]:
    while True:
        yield str(uuid4()).upper()


EVENT_IDS = ids()


def listings(count: int, *resources: str) -> list[dict[str, object]]:
    return [listing(next(EVENT_IDS), resources=resources or (FOREIGN,)) for _ in range(count)]


def ticks(fleet: Fleet, most: int = 60) -> None:
    """Ticks until no document waits any more."""
    for _ in range(most):
        if not WaitingReport.objects.filter(what="document").exists():
            return
        fleet.later(2)
        reports.catch_up(now=fleet.now)
    raise AssertionError("it never ends")


def quarantined() -> list[str]:
    return [entry.data["reason"]["code"] for entry in Entry.objects.filter(kind=EntryKind.QUARANTINED.value)]


def spots(fleet: Fleet) -> list[tuple[str, ...]]:
    return [one.names for one in blind_spots.overview(now=fleet.now).spots if one.code == "reports-quarantined"]


def test_of_thousands_of_events_a_bounded_number_is_taken_and_all_is_kept(fleet: Fleet) -> None:
    fleet.say("loud", *listings(3000))
    assert ScheduledEvent.objects.count() == intake.PORTION
    assert (quarantined(), spots(fleet)) == (["too-many-events"], [("loud",)])
    ticks(fleet)
    assert ScheduledEvent.objects.count() == intake.EVENTS + 1
    body = DocumentBody.objects.get(pk=Observation.objects.latest("pk").document_id)
    assert bytes(body.body).count(b"EventId") == 3000
    fleet.later(3601)
    assert not spots(fleet)


def test_a_report_of_another_machine_in_the_same_batch_is_accepted(fleet: Fleet) -> None:
    loud, other = fleet.agents["loud"], fleet.agents["other"]
    many = [loud.document(*listings(500), at=fleet.now) for _ in range(20)]
    theirs = listing(resources=["other"])
    answers = fleet.record(loud.delivery(*many), other.delivery(other.document(theirs, at=fleet.now)))
    assert answers[loud.machine.pk, loud.spool].acknowledged == 20  # type: ignore[attr-defined]
    assert Observation.objects.filter(machine=loud.machine, kind="document").count() == 20
    assert ScheduledEvent.objects.get(event_id=theirs["EventId"]).version == 1
    assert Sighting.objects.filter(machine=loud.machine).count() == intake.PORTION


def test_events_that_name_the_machine_are_never_quarantined_wherever_they_stand(fleet: Fleet) -> None:
    own = listing(next(EVENT_IDS), resources=["LOUD"])
    fleet.say("loud", *listings(MOST_READ + 500), own)
    assert ScheduledEvent.objects.get(event_id=own["EventId"]).version == 1
    first = listings(300, "loud")
    fleet.say("loud", *listings(50), *first)
    ticks(fleet)
    taken = set(ScheduledEvent.objects.filter(version__gte=1).values_list("event_id", flat=True))
    assert {one["EventId"] for one in first} <= taken
    # It is gone, and no longer there: it ended like any other.
    assert ScheduledEvent.objects.get(event_id=own["EventId"]).status == "ENDED"


def test_a_whole_scale_set_that_is_deleted_passes(fleet: Fleet) -> None:
    for number in range(60):
        fleet.enrol(f"vm{number}", availability_set="scale", heard=number < 2)
    everybody = [listing(next(EVENT_IDS), event_type="Terminate", resources=[f"vm{number}"]) for number in range(60)]
    everybody += listings(100, "vm1")
    fleet.say("vm0", *everybody)
    fleet.say("vm1", *everybody)
    ticks(fleet)
    assert Sighting.objects.filter(machine=fleet.agents["vm0"].machine).count() == len(everybody)
    assert quarantined() == []


def test_what_a_machine_lists_already_does_not_seem_gone_in_a_flood(fleet: Fleet) -> None:
    real = listing(next(EVENT_IDS), resources=[FOREIGN])
    fleet.say("loud", real)
    fleet.later(1)
    fleet.say("loud", *listings(MOST_READ + 1), real)
    assert ScheduledEvent.objects.get(event_id=real["EventId"]).status == "SCHEDULED"
    fleet.later(1)
    fleet.say("loud")
    assert ScheduledEvent.objects.get(event_id=real["EventId"]).status == "ENDED"
    ticks(fleet)
    assert not Sighting.objects.filter(machine=fleet.agents["loud"].machine, gone_at=None).exists()


def cache(agent: Agent, host: str, fleet: Fleet) -> object:
    data = wire.CoverageData(cache=host, state="subscribed")
    return agent.report(data, at=fleet.now)


def test_new_caches_of_one_machine_have_a_bound_and_are_tried_again_in_another_hour(fleet: Fleet) -> None:
    loud, other = fleet.agents["loud"], fleet.agents["other"]
    hosts = [f"cache{number}.example.net" for number in range(intake.NEW_CACHES + 5)]
    fleet.record(loud.delivery(*(cache(loud, host, fleet) for host in hosts)))  # type: ignore[misc]
    assert Cache.objects.count() == intake.NEW_CACHES
    assert Observation.objects.filter(machine=loud.machine, kind="coverage").count() == len(hosts)
    assert (quarantined(), spots(fleet)) == (["too-many-caches"], [("loud",)])
    fleet.record(other.delivery(cache(other, "another.example.net", fleet)))  # type: ignore[arg-type]
    assert Cache.objects.filter(host="another.example.net").exists()
    fleet.later(3601)
    reports.catch_up(now=fleet.now)
    assert Cache.objects.count() == len(hosts) + 1
    assert not WaitingReport.objects.exists()


def test_new_sets_and_names_of_one_machine_have_a_bound(fleet: Fleet) -> None:
    loud = fleet.agents["loud"]
    before = AvailabilitySet.objects.count()

    def says(number: int) -> object:
        stated = wire.InstanceData(
            compute={}, resource_name=f"n{number}", availability_set=f"availability_set:s{number}"
        )
        return loud.report(stated, at=fleet.now)

    fleet.record(loud.delivery(*(says(number) for number in range(200))))  # type: ignore[misc]
    assert AvailabilitySet.objects.count() - before == intake.NEW_STATEMENTS
    assert Observation.objects.filter(machine=loud.machine, kind="instance").count() == 200
    assert (quarantined(), len(spots(fleet))) == (["too-many-statements"], 1)
    fleet.later(3601)
    for _ in range(5):
        reports.catch_up(now=fleet.now)
    machine = Machine.objects.select_related("availability_set").get(pk=loud.machine.pk)
    assert (machine.resource_name, machine.availability_set.name) == ("n199", "s199")
    assert AvailabilitySet.objects.count() - before < 2 * intake.NEW_STATEMENTS


def test_a_machine_that_says_the_same_again_says_nothing_new(fleet: Fleet) -> None:
    stated = wire.InstanceData(compute={"name": "loud"}, resource_name="loud", availability_set="availability_set:loud")
    for _ in range(3):
        fleet.report("loud", *[stated] * 20)
    assert quarantined() == []


def test_document_of_a_mebibyte_is_read_in_part_and_marked() -> None:
    found = read_document(document(listings(MOST_READ + 7)))
    assert (len(found.listings), len(found.rest)) == (MOST_READ, 7)
    assert [flag.code for flag in found.flags] == ["events-not-read"]


@pytest.mark.parametrize(("own", "machines", "taken"), [(False, 1, 101), (False, 1000, 600), (True, 1, 600)])
def test_how_many_events_of_a_document_count(own: bool, machines: int, taken: int) -> None:
    listed = [intake.Listed(str(number), own=own, known=False) for number in range(600)]
    found = intake.limit_listed_events(listed, machines=machines, room=intake.PORTION)
    assert len(found.now) == intake.PORTION
    assert len(found.now | found.later) == taken
    assert len(found.quarantined) == 600 - taken
