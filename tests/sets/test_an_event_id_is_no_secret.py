"""EventIds are not secret: a machine that knows one joins no other set by it, named or provisional."""

from datetime import timedelta

import pytest

from fleet.domain.states import EventStatus, OrderState
from fleet.models import AvailabilitySet, Entry, Order, ScheduledEvent
from fleet.projections import blind_spots, sets
from tests.approvals.asking import codes, refused
from tests.factories import EVENT, Agent, Fleet, listing, open_order, the_event, the_set
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


# A machine that was installed without its set captures no event of a named set: `Resources` decide.

EVENTS = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3)]


def started(fleet: Fleet) -> Agent:
    """The set `web` of two live machines, and a machine without its set."""
    fleet.enrol("vm1")
    fleet.enrol("vm2", fault_domain=1)
    fleet.all_say()
    return fleet.enrol("vm3", availability_set="", fault_domain=2)


def is_of_web(event_id: str, stranger: Agent) -> None:
    event = the_event(event_id)
    assert event.availability_set == the_set()
    assert list(event.sightings.filter(foreign=True).values_list("machine", flat=True)) == [stranger.machine.pk]
    assert event.status == EventStatus.SCHEDULED and event.watched


def test_events_stay_in_their_set_whichever_machine_lists_them_first(fleet: Fleet) -> None:
    stranger = started(fleet)
    named = (["vm1"], ["vm2"], ["vm1", "vm3"])
    events = [listing(event_id, resources=names) for event_id, names in zip(EVENTS, named, strict=True)]
    fleet.say("vm3", *events)
    for event_id in EVENTS:
        assert the_event(event_id).availability_set == the_set()
        assert not the_event(event_id).watched, "no machine of its set has listed it yet"
    fleet.all_say(*events, names=["vm1", "vm2"])
    for event_id in EVENTS:
        is_of_web(event_id, stranger)
    assert home(stranger).kind == "provisional"


def test_it_has_no_vote_and_no_order_until_its_set_is_confirmed(fleet: Fleet) -> None:
    stranger = started(fleet)
    fleet.say("vm3", listing(resources=["vm1"]))
    assert "no-live-machine" in codes(refused(fleet.approve))
    fleet.all_say(listing(resources=["vm1"]), names=["vm1", "vm2"])
    approval = fleet.approve()
    assert open_order(approval).machine.resource_name == "vm1"
    # What it says of its end counts for nothing; once it names its set, it counts.
    fleet.later(1)
    fleet.say("vm3")
    assert the_event().status == EventStatus.SCHEDULED
    fleet.say("vm3", listing(resources=["vm1"]))
    instance(fleet, "vm3", "web")
    assert home(stranger) == the_set()
    assert not the_event().sightings.filter(foreign=True).exists()


def test_an_event_that_it_captured_before_the_set_was_live_goes_back_with_its_order(fleet: Fleet) -> None:
    fleet.enrol("vm1", heard=False)
    stranger = fleet.enrol("vm3", availability_set="")
    fleet.say("vm3", listing(resources=["vm1"]))
    assert the_event().availability_set == home(stranger), "no better set is known yet"
    approval = fleet.approve()
    assert open_order(approval).machine == stranger.machine
    fleet.later(1)
    fleet.heard("vm1", "vm3")
    fleet.say("vm1", listing(resources=["vm1"]))
    is_of_web(EVENT, stranger)
    fleet.advance()
    assert open_order(approval).machine.resource_name == "vm1"
    assert Order.objects.get(machine=stranger.machine).state not in (OrderState.OFFERED.value, OrderState.DELIVERED)
    assert Entry.objects.filter(kind="foreign_sighting").count() == 1


def test_what_it_captured_goes_back_although_it_has_dropped_the_event_again(fleet: Fleet) -> None:
    fleet.enrol("vm1", heard=False)
    stranger = fleet.enrol("vm3", availability_set="")
    fleet.say("vm3", listing(resources=["vm1"]))
    fleet.later(1)
    fleet.say("vm3")
    fleet.heard("vm1")
    fleet.say("vm1", listing(resources=["vm1"]))
    event = the_event()
    assert (event.availability_set, event.status) == (the_set(), EventStatus.SCHEDULED)
    assert event.sightings.get(machine=stranger.machine).foreign


@pytest.mark.parametrize("place", [{}, {"resourceGroupName": "other"}])
def test_who_takes_a_name_of_the_set_captures_nothing_by_it(fleet: Fleet, place: dict[str, str]) -> None:
    first = fleet.enrol("vm1")
    impostor = fleet.enrol("vm1", availability_set="", vm_id="impostor", **place)
    fleet.agents |= {"impostor": impostor, "vm1": first}
    fleet.say("impostor", listing(resources=["vm1"]))
    fleet.say("vm1", listing(resources=["vm1"]))
    is_of_web(EVENT, impostor)


def test_a_machine_of_the_same_name_in_another_resource_group_keeps_its_own_events(fleet: Fleet) -> None:
    first = fleet.enrol("vm1")
    namesake = fleet.enrol("vm1", availability_set="", vm_id="namesake", resourceGroupName="other")
    fleet.agents |= {"namesake": namesake, "vm1": first}
    fleet.say("namesake", listing(resources=["vm1"]))
    event = the_event()
    assert event.availability_set == home(namesake) and event.watched
    assert not event.sightings.get().foreign


def test_names_that_are_live_in_two_named_sets_decide_nothing(fleet: Fleet) -> None:
    one, two = fleet.enrol("vm1"), fleet.enrol("vm1", availability_set="db", vm_id="two")
    fleet.agents |= {"one": one, "two": two}
    stranger = fleet.enrol("vm3", availability_set="")
    fleet.say("vm3", listing(resources=["vm1"]))
    assert the_event().availability_set == home(stranger)


def test_who_names_itself_and_its_set_later_takes_no_event_of_others(fleet: Fleet) -> None:
    victim = fleet.enrol("a", availability_set="")
    fleet.say("a", listing(resources=["a"]))
    thief = fleet.enrol("a", availability_set="mine", vm_id="thief")
    fleet.agents["thief"] = thief
    fleet.say("thief", listing(resources=["a"]))
    assert the_event().availability_set == home(victim)
    assert the_event().sightings.get(machine=thief.machine).foreign


def test_an_event_that_only_a_stranger_listed_ends_when_it_is_gone_there(fleet: Fleet) -> None:
    started(fleet)
    fleet.say("vm3", listing(resources=["vm1"]))
    assert the_event().status == EventStatus.SCHEDULED
    fleet.later(5)
    fleet.say("vm3")
    event = the_event()
    assert (event.status, event.ended_as, event.certainty) == (EventStatus.ENDED, "unknown", "inferred")
    # What the set itself says of it later counts.
    fleet.later(5)
    fleet.all_say(listing(resources=["vm1"], not_before=fleet.now + timedelta(minutes=5)), names=["vm1", "vm2"])
    assert the_event().status == EventStatus.SCHEDULED and the_event().watched
