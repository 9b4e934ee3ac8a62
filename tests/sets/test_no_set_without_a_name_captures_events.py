"""A machine that was installed without its set captures no event of a named set: `Resources` decide."""

from datetime import timedelta

import pytest

from fleet.domain.reasons import Refused
from fleet.domain.states import EventStatus, OrderState
from fleet.models import Entry, Order
from tests.factories import EVENT, Agent, Fleet, listing, open_order, the_event, the_set
from tests.sets.test_an_event_id_is_no_secret import home
from tests.sets.test_where_a_machine_belongs import instance

pytestmark = pytest.mark.django_db
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
    with pytest.raises(Refused) as caught:
        fleet.approve()
    assert "no-live-machine" in {guard["code"] for guard in caught.value.details["guards"]}
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
