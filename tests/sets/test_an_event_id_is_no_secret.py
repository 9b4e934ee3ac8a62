"""EventIds are not secret: a machine that knows one joins no other set by it, named or provisional."""

import pytest

from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Entry, ScheduledEvent
from fleet.projections import blind_spots, sets
from tests.factories import EVENT, Agent, Fleet, listing, the_event, the_set
from tests.sets.test_naming_and_merging import merge
from tests.sets.test_where_a_machine_belongs import instance
from tests.words import sentence, sentences

pytestmark = pytest.mark.django_db
OTHER = "0BB8CD25-5BF9-4D96-85F8-3E5B9B45F2B6"


def home(agent: Agent) -> AvailabilitySet:
    agent.machine.refresh_from_db()
    return agent.machine.availability_set


def told(fleet: Fleet) -> list[str]:
    spots = blind_spots.overview(now=fleet.now).spots
    return [sentence(spot.reason) for spot in spots if spot.code == "lists-of-another-set"]


def test_a_machine_without_a_set_does_not_join_one_that_has_a_name(fleet: Fleet, event: ScheduledEvent) -> None:
    stranger = fleet.enrol("stranger", availability_set="")
    own = home(stranger)
    for _ in range(2):
        fleet.say("stranger", listing(resources=("vm1", "vm2")))
    assert home(stranger) == own
    assert the_set().machines.count() == 6
    assert the_event().sightings.get(machine=stranger.machine).foreign
    assert Entry.objects.filter(kind="foreign_sighting").count() == 1
    # It has no vote: the event ends without it.
    fleet.later(60)
    fleet.heard("stranger")
    fleet.all_say(names=[f"vm{number}" for number in range(1, 7)])
    assert the_event().status == EventStatus.ENDED


def test_page_suggests_the_set_and_users_may_merge(fleet: Fleet, event: ScheduledEvent) -> None:
    stranger = fleet.enrol("vm7", availability_set="")
    fleet.say("vm7", listing(resources=("vm1", "vm2")))
    (said,) = told(fleet)
    assert said.startswith("vm7 may belong to “web”, because an open event of that set is listed there")
    shown = sets.detail(set_id=the_set().pk, now=fleet.now)
    assert any(one.startswith("vm7 of “unnamed set” lists an open event") for one in sentences(shown.set.warnings))
    merge(fleet, home(stranger), the_set())
    assert told(fleet) == []
    assert not the_event().sightings.filter(foreign=True).exists()


def test_a_machine_that_names_its_set_takes_no_set_without_a_name_with_it(fleet: Fleet) -> None:
    victims = [fleet.enrol(name, availability_set="") for name in ("a", "b")]
    fleet.all_say(listing(resources=["a"]))
    unnamed = home(victims[0])
    thief = fleet.enrol("thief", availability_set="mine")
    fleet.say("thief", listing(resources=["a"]))
    assert {home(victim) for victim in victims} == {unnamed}
    assert the_event().availability_set == unnamed
    assert home(thief).name == "mine"
    assert told(fleet) == [
        "thief may belong to a set without a name, because an open event of that set is listed there. An EventId"
        " is no secret, therefore a user has to decide."
    ]


def test_nor_when_it_was_taken_for_one_of_them_before(fleet: Fleet) -> None:
    victims = [fleet.enrol(name, availability_set="") for name in ("a", "b")]
    fleet.enrol("thief", availability_set="")
    fleet.all_say(listing(resources=["a"]))
    unnamed = home(victims[0])
    assert unnamed.machines.count() == 3
    instance(fleet, "thief", "mine")
    assert {home(victim) for victim in victims} == {unnamed}
    assert the_event().availability_set == unnamed
    assert list(the_set("mine").machines.values_list("resource_name", flat=True)) == ["thief"]


def test_who_lists_the_events_of_several_sets_makes_them_no_one_set(fleet: Fleet) -> None:
    one, two, liar = (fleet.enrol(name, availability_set="") for name in ("one", "two", "liar"))
    fleet.say("one", listing(resources=["one"]))
    fleet.say("two", listing(OTHER, resources=["two"]))
    fleet.say("liar", listing(resources=["one"]), listing(OTHER, resources=["two"]))
    assert len({home(agent) for agent in (one, two, liar)}) == 3
    # Nor one after the other: the machine joins one provisional set, then lists an event of another.
    fleet.say("liar", listing(resources=["one"]))
    assert home(liar) == home(one)
    fleet.say("liar", listing(OTHER, resources=["two"]))
    assert home(two) != home(one)


def test_machines_of_two_resource_groups_are_in_no_one_set(fleet: Fleet) -> None:
    one, two = fleet.enrol("one", availability_set=""), fleet.enrol("two", availability_set="", resourceGroupName="x")
    fleet.all_say(listing(resources=["one"]))
    assert home(one) != home(two)


def test_who_reads_the_event_before_the_others_of_its_set_waits_for_them(fleet: Fleet) -> None:
    agents = [fleet.enrol(name, availability_set="") for name in ("a", "b", "c")]
    fleet.all_say(listing(resources=["a"]), names=["a", "b"])
    fleet.later(1)
    fleet.say("a", listing(resources=["a"]), listing(OTHER, resources=["b"]))
    fleet.say("c", listing(resources=["a"]), listing(OTHER, resources=["b"]))
    assert home(agents[2]) != home(agents[0])
    fleet.say("b", listing(resources=["a"]), listing(OTHER, resources=["b"]))
    assert len({home(agent) for agent in agents}) == 1
    assert not the_event().sightings.filter(foreign=True).exists()
    assert EVENT != OTHER
