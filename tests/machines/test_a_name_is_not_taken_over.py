"""Names in `Resources`: no machine takes another's name, and a rebuilt machine gets its earlier name again."""

import pytest
from django.conf import settings
from drydock_agent import wire

from fleet.domain.approvals.guards import affected_machines
from fleet.models import Entry, Machine
from fleet.models.facts.events import load_facts
from fleet.operations import reconcile
from fleet.operations.machines import keys
from fleet.projections import blind_spots, machines
from tests.factories import EVENT, Agent, Fleet, acting, admin, announced, open_order, the_event
from tests.words import sentence, sentences, text

pytestmark = pytest.mark.django_db


def says(fleet: Fleet, agent: Agent, name: str) -> Machine:
    """The machine calls itself so in its instance metadata; how it is called then."""
    data = wire.InstanceData(compute=agent.machine.compute, resource_name=name, availability_set="web")
    fleet.record(agent.delivery(agent.report(data, kind=wire.INSTANCE, at=fleet.now)))
    return called(agent)


def called(agent: Agent) -> Machine:
    return Machine.objects.get(pk=agent.machine.pk)


def hit(fleet: Fleet) -> list[int]:
    facts = load_facts([the_event().pk], now=fleet.now)[the_event().pk]
    return [machine.machine_id for machine in affected_machines(facts)]


def tick(fleet: Fleet) -> None:
    reconcile.advance(now=fleet.now, via="beat")


def again(fleet: Fleet, name: str) -> Agent:
    """Another VM under a name that is there already; the fleet knows both."""
    old = fleet.agents.pop(name)
    new = fleet.enrol(name)
    fleet.agents[f"new {name}"], fleet.agents[name] = new, old
    return new


def test_a_machine_that_renames_itself_keeps_its_own_name(fleet: Fleet) -> None:
    announced(fleet)
    evil, victim = fleet.agents["vm6"], fleet.agents["vm1"]
    row = says(fleet, evil, "VM1")
    assert (row.resource_name, row.called) == ("vm6", "VM1")
    assert hit(fleet) == [victim.machine.pk, fleet.agents["vm2"].machine.pk]
    # The order goes to the machine that Azure means.
    approval = fleet.approve(EVENT)
    tick(fleet)
    assert open_order(approval).machine_id == victim.machine.pk
    line = Entry.objects.get(kind="name_held")
    assert (line.machine_id, line.data["holder"]) == (evil.machine.pk, victim.machine.vm_id)
    assert text(line) == (
        "Machine vm6 calls itself VM1, and another machine of its set is taken for that one: of those that are heard,"
        " the other one was called so first."
    )
    # Recorded once, however often the machine reports it; shown on its page and among the blind spots.
    says(fleet, evil, "VM1")
    assert Entry.objects.filter(kind="name_held").count() == 1
    shown = machines.detail(machine_id=evil.machine.pk, now=fleet.now)
    assert shown is not None
    assert any("calls itself VM1" in one for one in sentences(shown.machine.warnings))
    (spot,) = [one for one in blind_spots.overview(now=fleet.now).spots if one.code == "name-held"]
    assert sentence(spot.reason).startswith("vm6 would be called VM1")
    # Any other name it may have.
    assert says(fleet, evil, "vm66").resource_name == "vm66"
    assert says(fleet, evil, "vm66").called == ""


def test_machine_with_a_taken_name_gets_a_suffix(fleet: Fleet) -> None:
    announced(fleet)
    evil = again(fleet, "vm1")
    row = called(evil)
    assert (row.resource_name, row.called) == (f"vm1~{row.vm_id[:8]}", "vm1")
    assert hit(fleet)[0] == fleet.agents["vm1"].machine.pk
    tick(fleet)
    assert called(evil).resource_name == row.resource_name
    # No machine can call itself like that.
    assert "~" not in says(fleet, fleet.agents["vm5"], row.resource_name).resource_name


def test_rebuilt_vm_gets_the_name_once_the_old_one_is_silent(fleet: Fleet) -> None:
    announced(fleet)
    new, old = again(fleet, "vm1"), fleet.agents["vm1"]
    fleet.later(settings.MACHINE_LATE_SECONDS + 1)
    fleet.heard(*(name for name in fleet.agents if name != "vm1"))
    tick(fleet)
    assert (called(new).resource_name, called(new).called) == ("vm1", "")
    assert called(old).resource_name == f"vm1~{old.machine.vm_id[:8]}"
    assert hit(fleet)[0] == new.machine.pk
    given = Entry.objects.get(kind="name_given")
    assert text(given).startswith(f"Machine vm1~{new.machine.vm_id[:8]} is taken for vm1 from now on")
    assert not [one for one in blind_spots.overview(now=fleet.now).spots if one.code == "name-held"]


def test_it_gets_the_name_at_once_where_the_old_one_is_silent_already_or_revoked(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(settings.MACHINE_LATE_SECONDS + 1)
    fleet.heard(*(name for name in fleet.agents if name not in ("vm1", "vm2")))
    assert called(again(fleet, "vm1")).resource_name == "vm1"
    assert called(fleet.agents["vm1"]).called == "vm1"
    fleet.heard("vm2")
    new = again(fleet, "vm2")
    assert called(new).called == "vm2"
    keys.revoke(machine_id=fleet.agents["vm2"].machine.pk, actor=acting(admin(), why="gone"), now=fleet.now)
    tick(fleet)
    assert called(new).resource_name == "vm2"


def test_silence_loses_no_name_for_good(fleet: Fleet) -> None:
    announced(fleet)
    evil, victim = again(fleet, "vm1"), fleet.agents["vm1"]
    others = [name for name in fleet.agents if name != "vm1"]
    fleet.later(settings.MACHINE_LATE_SECONDS + 1)
    fleet.heard(*others)
    tick(fleet)
    assert called(evil).resource_name == "vm1"
    # An event took it down for long; it is back.
    fleet.later(60)
    fleet.heard()
    tick(fleet)
    assert called(victim).resource_name == "vm1"
    assert called(evil).resource_name != "vm1"
    assert hit(fleet)[0] == victim.machine.pk


def test_who_comes_from_another_set_is_a_newcomer_whatever_it_was_called_there(fleet: Fleet) -> None:
    evil = fleet.enrol("vm1", availability_set="mine")
    fleet.later(60)
    fleet.agents.clear()
    fleet.enrol_set(2)
    assert says(fleet, evil, "vm1").called == "vm1"
    assert called(fleet.agents["vm1"]).resource_name == "vm1"


def test_of_two_with_one_name_from_the_release_before_the_first_counts_while_it_is_heard(fleet: Fleet) -> None:
    announced(fleet)
    Machine.objects.filter(pk=fleet.agents["vm6"].machine.pk).update(resource_name="vm1")
    fleet.later(1)
    fleet.heard("vm6")
    assert hit(fleet)[0] == fleet.agents["vm1"].machine.pk
    fleet.later(settings.MACHINE_LATE_SECONDS + 1)
    fleet.heard("vm6")
    assert hit(fleet)[0] == fleet.agents["vm6"].machine.pk
