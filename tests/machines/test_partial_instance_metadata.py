"""A partial answer of `/metadata/instance` takes nothing away that was known of a machine."""

from typing import Any

import pytest
from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.machines.inventory import KEPT, MOST_TAGS, merged
from fleet.models import Entry, Machine
from fleet.operations.machines import enrolment
from tests.factories import Fleet, the_set

pytestmark = pytest.mark.django_db

TAG = "drydock:availability-set"
WHERE = {"zone": "2", "location": "westeurope", "vmSize": "Standard_D2s_v5", "osType": "Linux"}
PLACE = ("fault_domain", "update_domain", "zone", "region", "size", "os_type", "availability_set_id", "resource_name")
BLANK = {
    "platformFaultDomain": "", "platformUpdateDomain": "", "zone": "", "location": "", "vmSize": "", "osType": "",
    "vmScaleSetName": "", "placementGroupId": "", "tagsList": [], "subscriptionId": "", "resourceGroupName": "",
    "name": "",
}  # fmt: skip


def scaled(fleet: Fleet) -> Machine:
    """A machine of a scale set, about which everything is known."""
    agent = fleet.enrol(
        "workers_0",
        availability_set="",
        fault_domain=2,
        update_domain=1,
        vmScaleSetName="workers",
        placementGroupId="pg",
        **WHERE,
    )
    return agent.machine


def says(fleet: Fleet, compute: dict[str, Any], *, complete: bool = False, name: str = "") -> None:
    """The machine `workers_0` reports its instance metadata."""
    agent = fleet.agents["workers_0"]
    data = wire.InstanceData(compute=compute, resource_name=name, complete=complete)
    fleet.record(agent.delivery(agent.report(data, kind=wire.INSTANCE, at=fleet.now)))


def place(machine: Machine) -> dict[str, Any]:
    return Machine.objects.filter(pk=machine.pk).values(*PLACE).get()


@pytest.mark.parametrize(
    "compute",
    [
        {},
        {"vmId": "x", "name": "workers_0"},
        BLANK,
        dict.fromkeys(BLANK),
        BLANK | {"platformFaultDomain": "?", "tagsList": "none", "vmSize": 7, "zone": ["1"]},
        {"resourceGroupName": "shop"},
    ],
)
def test_a_partial_answer_moves_no_machine_and_removes_nothing(compute: dict[str, Any], fleet: Fleet) -> None:
    machine = scaled(fleet)
    before, told = place(machine), Entry.objects.count()
    says(fleet, compute)
    assert place(machine) == before
    assert Entry.objects.count() == told, "nothing changed, so nothing is told"


def test_an_empty_value_in_a_complete_answer_is_a_statement(fleet: Fleet) -> None:
    machine = scaled(fleet)
    full = fleet.agents["workers_0"].machine.compute | {"platformFaultDomain": "", "zone": ""}
    says(fleet, full, complete=True)
    machine.refresh_from_db()
    assert (machine.fault_domain, machine.zone, machine.update_domain) == (None, "", 1)


def test_a_missing_key_in_a_complete_answer_is_none(fleet: Fleet) -> None:
    machine = scaled(fleet)
    before = place(machine)
    says(fleet, {"name": "workers_0"}, complete=True)
    assert place(machine) == before


def test_what_a_partial_answer_does_state_counts(fleet: Fleet) -> None:
    machine = scaled(fleet)
    says(fleet, {"vmSize": "Standard_E4s_v5", "platformFaultDomain": "0"})
    machine.refresh_from_db()
    assert (machine.size, machine.fault_domain, machine.region) == ("Standard_E4s_v5", 0, "westeurope")


def test_a_set_that_a_tag_stated_stays(fleet: Fleet) -> None:
    tags = [{"name": TAG, "value": "web"}, {"name": "team", "value": "shop"}]
    machine = fleet.enrol("workers_0", availability_set="", tagsList=tags).machine
    home = machine.availability_set_id
    assert the_set("web").pk == home
    for compute in ({}, {"tagsList": []}, {"tagsList": [{"name": "team", "value": "shop"}]}):
        says(fleet, compute)
        machine.refresh_from_db()
        assert (machine.availability_set_id, machine.set_source) == (home, "tag")
    says(fleet, {"tagsList": [{"name": "team", "value": "shop"}]}, complete=True)
    machine.refresh_from_db()
    assert machine.set_source == ""


def test_enrolling_again_with_a_partial_answer_or_none_takes_nothing_away(fleet: Fleet) -> None:
    machine = scaled(fleet)
    before = place(machine)
    agent = fleet.agents["workers_0"]
    for instance in (None, {}, {"vmId": machine.vm_id}, BLANK):
        request = wire.EnrolRequest(
            join_token=fleet.join_token,
            machine_id=machine.vm_id,
            instance=instance,
            credential=agent.credential,
        )
        answer = enrolment.enrol(request=request, now=fleet.now)
        assert isinstance(answer, wire.EnrolAnswer)
        agent.credential = answer.credential
        assert place(machine) == before


VALUES = st.one_of(st.none(), st.text(max_size=5), st.integers(), st.lists(st.text(max_size=3), max_size=3))
COMPUTE = st.dictionaries(st.sampled_from([*KEPT, "other"]), VALUES, max_size=10)


@given(known=COMPUTE, stated=COMPUTE, complete=st.booleans())
def test_merging_forgets_no_kept_key_and_keeps_no_other(
    known: dict[str, Any], stated: dict[str, Any], complete: bool
) -> None:
    found = merged(known, stated, complete=complete)
    assert set(found) == set(stated) | (set(known) & set(KEPT))
    if not complete:
        assert merged(found, {}, complete=False) == {key: found[key] for key in found if key in KEPT}


def test_tags_do_not_grow_without_end() -> None:
    known: dict[str, Any] = {}
    for number in range(3 * MOST_TAGS):
        known = merged(known, {"tagsList": [{"name": f"tag{number}", "value": "x"}]}, complete=False)
    assert len(known["tagsList"]) == MOST_TAGS
    assert known["tagsList"][0]["name"] == f"tag{3 * MOST_TAGS - 1}"
