"""Which set a machine is in: configuration, tag, scale set metadata, inventory, in this order."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.sets import NAMED_KINDS, OUTSIDE, SetKey, SetSource, disagreement, read_stated, read_statements
from fleet.models import AvailabilitySet, Entry, JoinToken, Machine
from tests import accounts
from tests.factories import Fleet, listing, the_event, the_set
from tests.words import refused, sentence, sentences, text

pytestmark = pytest.mark.django_db

TAG = "drydock:availability-set"
PLACE = {"subscriptionId": "S", "resourceGroupName": "RG"}
SCALE_SET = {"vmScaleSetName": "workers", "placementGroupId": "pg"}


def tagged(value: str) -> dict[str, Any]:
    return {"tagsList": [{"name": TAG, "value": value}]}


def read(configured: str = "", inventory: SetKey | None = None, confined: SetKey | None = None, **compute: Any) -> Any:
    return read_statements(
        configured=configured, compute={**PLACE, **compute}, inventory=inventory, set_tag=TAG, confined=confined
    )


def test_each_source_counts_before_the_next() -> None:
    listed = SetKey("availability_set", "listed", "S", "RG")
    confined = SetKey("availability_set", "confined")
    every = read("configured", listed, confined, **tagged("tagged"), **SCALE_SET)
    assert [each.source for each in every.stated] == list(SetSource)
    # Its place is not filled in by what a machine says.
    assert every.key == confined
    every = read("configured", listed, **tagged("tagged"), **SCALE_SET)
    assert every.key.key == "availability_set|s|rg|configured"
    assert read("", listed, **tagged("tagged"), **SCALE_SET).key.key == "availability_set|s|rg|tagged"
    assert read("", listed, **SCALE_SET).key.key == "scale_set|s|rg|workers/pg"
    assert read("", listed).key.key == "availability_set|s|rg|listed"
    assert read().key is None


STATED = st.sampled_from(["", "web", "WEB", "db", "scale_set:web", "scale_set:workers", "rack:7", "a|b"])
PLACES = st.fixed_dictionaries(
    {},
    optional={
        "subscriptionId": st.sampled_from(["S", "other", ""]),
        "resourceGroupName": st.sampled_from(["RG", "other", ""]),
        "vmScaleSetName": st.sampled_from(["web", "workers", "db", ""]),
        "placementGroupId": st.sampled_from(["pg", "pg2", ""]),
    },
)
CONFINED = st.builds(SetKey, st.sampled_from(NAMED_KINDS), st.just("web"), st.sampled_from(["", "S"]), st.just("RG"))
LISTED = st.builds(SetKey, st.sampled_from(NAMED_KINDS), st.sampled_from(["web", "db"]), st.just("S"), st.just("RG"))


@given(configured=STATED, tag=STATED, place=PLACES, confined=CONFINED, listed=st.none() | LISTED)
def test_whatever_is_stated_of_a_confined_machine_moves_it_nowhere(
    configured: str, tag: str, place: dict[str, Any], confined: SetKey, listed: SetKey | None
) -> None:
    found = read_statements(
        configured=configured, compute={**place, **tagged(tag)}, inventory=listed, set_tag=TAG, confined=confined
    )
    assert replace(found.key, placement_group="") == confined
    assert found.source is SetSource.CONFINEMENT
    others = [each for each in found.stated[1:] if each.key.kind != confined.kind or each.key.name.lower() != "web"]
    warning = disagreement(found.stated, set_tag=TAG)
    assert not others or (warning is not None and warning.code == OUTSIDE)


def test_a_kind_may_be_named_and_must_be_known() -> None:
    assert read_stated("cloud_service:legacy") == ("cloud_service", "legacy")
    assert read_stated(" web ") == ("availability_set", "web")
    # The name of the tag has any case.
    upper = {"tagsList": [{"name": TAG.upper(), "value": "cloud_service:legacy"}]}
    assert read(**upper).key.key == "cloud_service|s|rg|legacy"
    # A flexible scale set has an empty placement group.
    assert read(vmScaleSetName="burst", placementGroupId="").key.key == "scale_set|s|rg|burst"
    for wrong in ("cluster:x", "scale_set:", "a|b", "x" * 201, "a\x00b"):
        with refused("names-no-set"):
            read_stated(wrong)


@pytest.mark.parametrize("listed", [None, "x", [None, 5, {"name": TAG}, {"name": TAG, "value": 7}]])
def test_tags_that_make_no_sense_are_no_tags(listed: Any) -> None:
    assert read(tagsList=listed).stated == ()


def test_a_tag_that_names_no_set_is_a_problem_and_the_next_source_counts() -> None:
    found = read(**tagged("rack:7"), **SCALE_SET)
    assert found.source is SetSource.SCALE_SET
    assert sentence(found.problems[0]).startswith(f"Its tag {TAG} cannot be read: 'rack:7' names no set")


def test_what_one_source_leaves_open_another_fills_in_and_is_no_disagreement() -> None:
    listed = SetKey("scale_set", "Workers", "s", "rg")
    found = read("scale_set:workers", listed, **SCALE_SET)
    assert found.key.key == "scale_set|s|rg|workers/pg"
    assert disagreement(found.stated, set_tag=TAG) is None


def test_a_disagreement_names_sources_what_each_says_and_what_to_do() -> None:
    found = read("web", SetKey("standalone", "vm1", "S", "RG"), **tagged("shop"))
    warning = disagreement(found.stated, set_tag=TAG)
    told = sentence(warning)
    for part in (
        "its configuration states availability set web",
        "its tag drydock:availability-set states availability set shop",
        "the imported inventory states standalone machine vm1",
        "its configuration applies",
        "DRYDOCK_AVAILABILITY_SET on the machine, or the tag drydock:availability-set of the VM, or the inventory",
        "merge the two sets",
    ):
        assert part in told


def test_same_name_in_two_resource_groups_is_a_disagreement() -> None:
    found = read("web", SetKey("availability_set", "web", "S", "OTHER"))
    disagrees = disagreement(found.stated, set_tag=TAG)
    warning = sentence(disagrees)
    assert "its configuration states availability set web in resource group RG" in warning
    assert "the imported inventory states availability set web in resource group OTHER" in warning


def instance(fleet: Fleet, name: str, configured: str = "", **compute: Any) -> Machine:
    """The machine reports its instance metadata, as it does every hour."""
    machine = fleet.agents[name].machine
    whole = {**machine.compute, **compute}
    fleet.report(name, wire.InstanceData(compute=whole, resource_name=name, availability_set=configured, complete=True))
    return Machine.objects.select_related("availability_set").get(pk=machine.pk)


def test_a_warning_comes_with_a_disagreement_and_goes_with_it(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    machine = instance(fleet, "vm1", "web", **tagged("shop"))
    assert machine.availability_set.name == "web"
    assert machine.set_source == "configuration"
    assert "states availability set shop" in sentences(machine.set_warnings)[0]
    assert instance(fleet, "vm1", "web", **tagged("shop")).set_warnings == machine.set_warnings
    assert instance(fleet, "vm1", "web", **tagged("web")).set_warnings == []
    kinds = list(Entry.objects.filter(kind__startswith="set_").order_by("id").values_list("kind", flat=True))
    assert kinds == ["set_disputed", "set_agreed"]


def test_the_name_of_the_tag_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "AVAILABILITY_SET_TAG", "team-set")
    fleet = Fleet()
    tags = [{"name": "team-set", "value": "scale_set:mine"}, {"name": TAG, "value": "other"}]
    machine = fleet.enrol("vm1", availability_set="", tagsList=tags).machine
    assert (machine.availability_set.kind, machine.availability_set.name) == ("scale_set", "mine")
    assert (machine.set_source, machine.set_warnings) == ("tag", [])


def test_the_set_of_a_join_token_of_0_1_0_counts_while_the_agent_names_none(fleet: Fleet) -> None:
    token, fleet.join_token = accounts.join_token(
        comment="", expires_in=timedelta(days=1), now=fleet.now, set_name="scale_set:workers"
    )
    JoinToken.objects.filter(pk=token.pk).update(confined_to=None)
    assert fleet.enrol("vm1", availability_set="").machine.availability_set.name == "workers"
    assert instance(fleet, "vm1", "web").availability_set.name == "web"
    back = instance(fleet, "vm1")
    assert (back.availability_set.name, back.set_source, back.confined_to) == ("workers", "configuration", None)
    assert fleet.enrol("vm2", availability_set="db").machine.availability_set.name == "db"


def test_machine_without_a_stated_set_stays_where_it_is(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    before = AvailabilitySet.objects.count()
    machine = instance(fleet, "vm1")
    assert (machine.availability_set.name, machine.set_source) == ("web", "")
    vm_id = machine.vm_id
    fleet.enrol("vm1", availability_set="", vm_id=vm_id)
    assert Machine.objects.get(vm_id=vm_id).availability_set.name == "web"
    assert AvailabilitySet.objects.count() == before


def test_each_machine_of_a_provisional_set_says_for_itself_which_set_it_is_in(fleet: Fleet) -> None:
    fleet.enrol("a", availability_set="")
    fleet.enrol("b", availability_set="")
    fleet.all_say(listing(resources=["a"]))
    unnamed = the_event().availability_set
    instance(fleet, "b", **tagged("web"))
    assert list(the_set("web").machines.values_list("resource_name", flat=True)) == ["b"]
    assert the_event().availability_set == unnamed
    # The last one brings what is left of the set, and its events.
    instance(fleet, "a", **tagged("web"))
    assert the_set("web").machines.count() == 2
    assert the_event().availability_set == the_set("web")
    assert not the_event().sightings.filter(foreign=True).exists()


def test_the_agents_version_follows_its_reports(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    agent = fleet.agents["vm1"]
    delivery = agent.delivery(agent.report(wire.InstanceData(compute=agent.machine.compute), at=fleet.now))
    delivery.agent_version = "0.2.0"
    fleet.record(delivery)
    assert Machine.objects.get().agent_version == "0.2.0"


@pytest.mark.parametrize("enrols", [False, True], ids=["by a report", "by enrolling again"])
def test_an_open_event_goes_with_the_last_machine_that_has_a_word_about_it(fleet: Fleet, enrols: bool) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(resources=["vm1"]))

    def leaves(name: str) -> None:
        agent = fleet.agents[name]
        if enrols:
            fleet.enrol(name, availability_set="other", vm_id=agent.machine.vm_id)
            # It keeps its spool.
            fleet.agents[name] = agent
        else:
            instance(fleet, name, "other")

    leaves("vm1")
    assert the_event().availability_set == the_set("web")
    assert the_event().sightings.get(machine__resource_name="vm1").foreign
    leaves("vm2")
    event = the_event()
    assert event.availability_set == the_set("other")
    assert not event.sightings.filter(foreign=True).exists()
    told = text(Entry.objects.get(kind="machine_moved", event=event))
    assert told == "Machine vm2 moved to “other”, together with its event."
    fleet.later(5)
    fleet.all_say()
    assert the_event().status == "ENDED"
