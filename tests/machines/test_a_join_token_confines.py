"""A machine that enrols by a join token with a set is in that set and in no other, whatever is stated, until a person
moves it.
"""

from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.machines.inventory import read_inventory
from fleet.models import AvailabilitySet, Entry, JoinToken, Machine, Order, Sighting
from fleet.operations.machines.inventory import RefusedStatement, import_inventory
from fleet.operations.orders import queue
from fleet.operations.sets.changes import move_machine
from fleet.projections import blind_spots
from tests import accounts
from tests.approvals.asking import entries, refused
from tests.factories import EVENT, Fleet, acting, admin, approver, listing, open_order, the_event, the_set
from tests.machines.test_inventories import sample
from tests.sets.test_where_a_machine_belongs import instance, tagged
from tests.words import sentence, sentences, text

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    """Six machines of the set db, whose join token knows no set."""
    fleet = Fleet()
    fleet.enrol_set(6, prefix="db", availability_set="db")
    return fleet


def use_token(fleet: Fleet, name: str = "web", **fields: Any) -> JoinToken:
    token, fleet.join_token = accounts.join_token(
        comment="", expires_in=timedelta(days=1), now=fleet.now, set_name=name, **fields
    )
    return token


@pytest.fixture
def machine(fleet: Fleet) -> Machine:
    """A machine enrols by a join token that confines to the set web."""
    use_token(fleet)
    return fleet.enrol("vm1", availability_set="").machine


def home_of(machine: Machine) -> str:
    return Machine.objects.select_related("availability_set").get(pk=machine.pk).availability_set.name


@pytest.mark.parametrize(
    ("stated", "compute", "said"),
    [
        ("db", {}, "its configuration states availability set “db”"),
        ("", tagged("db"), "its tag drydock:availability-set states availability set “db”"),
        ("web", tagged("scale_set:web"), "its tag drydock:availability-set states scale set “web”"),
        ("", {"vmScaleSetName": "workers"}, "Azure's scale set metadata states scale set “workers”"),
    ],
)
def test_who_states_another_set_when_it_enrols_is_refused_with_both_names(
    fleet: Fleet, stated: str, compute: dict[str, Any], said: str
) -> None:
    use_token(fleet)
    error = refused(lambda: fleet.enrol("vm1", availability_set=stated, **compute))
    assert error.code == "join-token-refused"
    assert "This join token is for machines of availability set “web” alone, but" in sentence(error)
    assert said in sentence(error)
    assert not Machine.objects.filter(resource_name="vm1").exists()
    assert JoinToken.objects.get(comment="").uses == 0


def test_so_is_whom_the_inventory_knows_elsewhere(fleet: Fleet) -> None:
    items = sample("vm_list")
    import_inventory(inventory=read_inventory(items), now=fleet.now)
    use_token(fleet, "db")
    error = refused(lambda: fleet.enrol("web1", availability_set="", vm_id=items[0]["vmId"]))
    assert "the imported inventory states availability set “WEB”" in sentence(error)


def test_later_stated_set_is_ignored_with_a_warning(fleet: Fleet, machine: Machine) -> None:
    assert (home_of(machine), machine.confined_to["name"]) == ("web", "web")
    for configured, compute in (("db", {}), ("", tagged("db")), ("", {"vmScaleSetName": "db", **tagged("")})):
        found = instance(fleet, "vm1", configured, **compute)
        assert home_of(machine) == "web"
        (warning,) = sentences(found.set_warnings)
        assert "This machine is confined to availability set “web”, but" in warning
        assert "“db”" in warning
    spots = [spot for spot in blind_spots.overview(now=fleet.now).spots if spot.code == "states-another-set"]
    assert [spot.names for spot in spots] == [("vm1",)]
    assert "“db”" in sentence(spots[0].reason) and "“web”" in sentence(spots[0].reason)
    told = Entry.objects.filter(kind="set_disputed", machine=machine).earliest("id")
    assert "“web”" in text(told) and "“db”" in text(told)
    assert instance(fleet, "vm1", "web", vmScaleSetName="").set_warnings == []


def test_nor_does_an_inventory_which_says_what_it_refuses(fleet: Fleet) -> None:
    items = sample("vm_list")
    use_token(fleet, "db")
    machine = fleet.enrol("web1", availability_set="", vm_id=items[0]["vmId"]).machine
    found = import_inventory(inventory=read_inventory(items), now=fleet.now)
    assert found.refused == (RefusedStatement("web1", "availability_set:WEB", "availability_set:db"),)
    assert home_of(machine) == "db"
    assert "web1 in availability_set:WEB, because it is confined to availability_set:db" in text(
        Entry.objects.get(kind="inventory_imported")
    )
    # The same file again says it again.
    assert import_inventory(inventory=read_inventory(items), now=fleet.now).refused == found.refused


def test_a_shared_event_gives_it_no_vote_and_no_order_elsewhere(fleet: Fleet, machine: Machine) -> None:
    fleet.all_say(listing(resources=("db1",)), names=["db1", "db2"])
    event = the_event()
    assert event.availability_set == the_set("db")
    fleet.say("vm1", listing(resources=("db1",), status="Started"))
    assert (home_of(machine), the_event().availability_set.name, the_event().status) == ("web", "db", "SCHEDULED")
    assert Sighting.objects.get(machine=machine).foreign
    # Nor does it get the order when no other machine is left.
    approval = fleet.approve()
    for _ in range(8):
        fleet.later(30)
        fleet.heard("vm1")
        fleet.advance()
    assert not Order.objects.filter(approval=approval, machine=machine).exists()
    # And its own set goes nowhere: not even into a provisional one.
    _, fleet.join_token = accounts.join_token(comment="x", expires_in=timedelta(days=1), now=fleet.now)
    fleet.enrol("stray", availability_set="")
    other = "0A1B2C3D-0000-4000-8000-00000000000A"
    fleet.say("stray", listing(other))
    fleet.say("vm1", listing(other))
    assert AvailabilitySet.objects.get(name="web").merged_into is None
    assert home_of(machine) == "web"


def test_enrolling_again_changes_nothing_about_it(fleet: Fleet, machine: Machine) -> None:
    # By its credential, without any join token; then a token for another set is in its configuration.
    for token in ("", use_token(fleet, "db") and fleet.join_token):
        fleet.join_token = token
        again = fleet.enrol("vm1", availability_set="db", vm_id=machine.vm_id).machine
        assert (home_of(again), again.confined_to["name"]) == ("web", "web")
        assert "“db”" in sentences(again.set_warnings)[0]


def test_sets_of_one_name_are_distinguished_by_location(fleet: Fleet) -> None:
    """Subscription and resource group are the machine's own words: the token knows the set that is here already; for a
    new one the first machine decides, once for all.
    """
    use_token(fleet, "db")
    error = refused(lambda: fleet.enrol("vm1", availability_set="db", resourceGroupName="other"))
    assert "in resource group shop" in sentence(error) and "in resource group other" in sentence(error)
    token = use_token(fleet, "NEW")
    fleet.enrol("one", availability_set="", resourceGroupName="first")
    assert JoinToken.objects.get(pk=token.pk).confined_to["resource_group"] == "first"
    assert refused(lambda: fleet.enrol("two", availability_set="new", resourceGroupName="other")).code
    fleet.enrol("three", availability_set="", resourceGroupName="first")
    assert instance(fleet, "three", "new", resourceGroupName="other").availability_set.resource_group == "first"
    assert AvailabilitySet.objects.filter(name__iexact="new").count() == 1
    # With two of them a name is not enough.
    fleet.join_token = Fleet(now=fleet.now).join_token
    fleet.enrol("far", availability_set="new", resourceGroupName="other")
    error = refused(lambda: use_token(fleet, "new"))
    assert "in first and other" in sentence(error)
    far = AvailabilitySet.objects.get(name="new", resource_group="other")
    assert use_token(fleet, "", set_id=far.pk).confined_to["resource_group"] == "other"
    assert refused(lambda: use_token(fleet, "new", set_id=far.pk)).code == "validation"
    assert refused(lambda: use_token(fleet, "", set_id=999_999)).code == "not-found"


def test_a_machine_that_cannot_say_where_it_is_waits_for_the_others(fleet: Fleet) -> None:
    use_token(fleet, "new")
    machine = fleet.enrol("one", availability_set="", resourceGroupName="", subscriptionId="").machine
    fleet.enrol("two", availability_set="", resourceGroupName="first")
    found = instance(fleet, "one", resourceGroupName="other", subscriptionId="other")
    assert (found.availability_set.resource_group, home_of(machine)) == ("first", "new")


def test_a_scale_set_is_all_its_placement_groups(fleet: Fleet) -> None:
    use_token(fleet, "scale_set:workers")
    for name, group in (("w1", "pg1"), ("w2", "pg2")):
        machine = fleet.enrol(name, availability_set="", vmScaleSetName="workers", placementGroupId=group).machine
        assert machine.availability_set.key.endswith(f"workers/{group}")


def move(fleet: Fleet, machine: Machine, set_id: int | None, why: str = "rebuilt") -> None:
    move_machine(machine_id=machine.pk, set_id=set_id, actor=acting(admin(), why=why), now=fleet.now)


def test_a_person_moves_it_and_it_has_its_vote_there_and_none_here(fleet: Fleet, machine: Machine) -> None:
    fleet.enrol("vm2", availability_set="web")
    mine, theirs = listing(resources=("vm1",)), listing("0A1B2C3D-0000-4000-8000-00000000000A", resources=("db1",))
    fleet.all_say(mine, names=["vm1", "vm2"])
    fleet.all_say(theirs, names=["db1"])
    approval = fleet.approve(EVENT)
    order = open_order(approval)
    assert order.machine == machine
    fleet.later(1)
    fleet.say("vm1", {**mine, "EventStatus": "Started"}, {**theirs, "EventStatus": "Started"})
    assert (the_event().status, the_event(theirs["EventId"]).status) == ("STARTED", "SCHEDULED")
    move(fleet, machine, the_set("db").pk)
    # No remaining machine in web has seen the event started.
    assert (the_event().status, the_event(theirs["EventId"]).status) == ("SCHEDULED", "STARTED")
    votes = dict(Sighting.objects.filter(machine=machine).values_list("event__event_id", "foreign"))
    assert votes == {EVENT: True, theirs["EventId"]: False}
    order.refresh_from_db()
    assert open_order(approval).machine.resource_name == "vm2"
    assert order.state == "SUPERSEDED"
    (told,) = entries("machine_moved")
    assert (told.before, told.after) == ({"set": "web", "confined": True}, {"set": "db", "confined": True})
    assert text(told) == "ada moved machine vm1 into “db” and confined it there. “rebuilt”"
    # It stays there, whatever it says.
    assert instance(fleet, "vm1", "web").availability_set == the_set("db")


def test_lifting_lets_what_is_stated_count_again(fleet: Fleet, machine: Machine) -> None:
    instance(fleet, "vm1", "db")
    move(fleet, machine, None)
    assert home_of(machine) == "db"
    assert Machine.objects.get(pk=machine.pk).set_warnings == []
    (told,) = entries("machine_moved")
    assert text(told) == ("ada lifted the confinement of machine vm1, which is now in “db” as stated. “rebuilt”")
    before = Entry.objects.count()
    move(fleet, machine, None)
    assert Entry.objects.count() == before


def test_only_admins_move_and_only_into_sets_that_have_a_name(fleet: Fleet, machine: Machine) -> None:
    _, fleet.join_token = accounts.join_token(comment="x", expires_in=timedelta(days=1), now=fleet.now)
    stray = fleet.enrol("stray", availability_set="").machine
    db = the_set("db").pk

    def refusal(**fields: Any) -> str:
        asked = {"machine_id": machine.pk, "set_id": db, "actor": acting(admin()), "now": fleet.now, **fields}
        return refused(lambda: move_machine(**asked)).code

    assert refusal(actor=acting(approver())) == "not-permitted"
    assert refusal(set_id=999_999) == "not-found"
    assert refusal(machine_id=999_999) == "unknown-machine"
    assert refusal(set_id=stray.availability_set_id) == "validation"
    assert home_of(machine) == "web"
    # A machine of a provisional set is moved alone; with its last machine that set disappears, and its events follow.
    fleet.enrol("stray2", availability_set="")
    fleet.all_say(listing(resources=("stray",)), names=["stray", "stray2"])
    move(fleet, stray, db)
    assert home_of(stray) == "db"
    assert the_event().availability_set == AvailabilitySet.objects.get(machines__resource_name="stray2")
    move(fleet, fleet.agents["stray2"].machine, db)
    assert the_event().availability_set == the_set("db")


def test_an_order_is_not_handed_to_who_has_left_the_set(fleet: Fleet, machine: Machine) -> None:
    fleet.all_say(listing(resources=("vm1",)), names=["vm1"])
    fleet.approve()
    assert queue.waiting_orders(machine_ids=[machine.pk])
    Machine.objects.filter(pk=machine.pk).update(availability_set=the_set("db"))
    assert queue.waiting_orders(machine_ids=[machine.pk]) == {}
