"""Machines are found by their names; no machine takes another's name; a partial answer takes nothing away."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.approvals.guards import affected_machines
from fleet.domain.intake import NEW_STATEMENTS
from fleet.domain.machines.inventory import KEPT, MOST_TAGS, merged
from fleet.gateway.readers import READERS
from fleet.models import AvailabilitySet, Entry, Machine, ScheduledEvent
from fleet.models.facts.events import load_facts
from fleet.operations import reconcile
from fleet.operations.machines import decommission, enrolment
from fleet.projections import blind_spots, machines
from fleet.projections.desk import find
from fleet.projections.filters import MachineFilter
from tests import factories
from tests.api.conftest import caller
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, Agent, Fleet, acting, admin, announced, open_order, the_event, the_set
from tests.plans import is_answered_by
from tests.words import sentence, sentences, text

pytestmark = pytest.mark.django_db


def says(fleet: Fleet, agent: Agent, name: str) -> Machine:
    """The machine calls itself so in its instance metadata; how it is called then."""
    data = wire.InstanceData(compute=agent.machine.compute, resource_name=name, availability_set="web")
    fleet.record(agent.delivery(agent.report(data, at=fleet.now)))
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


def test_a_machine_that_renames_itself_keeps_its_own_name(fleet: Fleet, event: ScheduledEvent) -> None:
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
    assert text(line).startswith("Machine vm6 reports the name VM1")
    # Recorded once, however often the machine reports it; shown on its page and among the blind spots.
    says(fleet, evil, "VM1")
    assert Entry.objects.filter(kind="name_held").count() == 1
    shown = machines.detail(machine_id=evil.machine.pk, now=fleet.now)
    assert any("reports the name VM1" in one for one in sentences(shown.machine.warnings))
    (spot,) = [one for one in blind_spots.overview(now=fleet.now).spots if one.code == "name-held"]
    assert sentence(spot.reason).startswith("vm6 reports the name VM1")
    # Any other name it may have.
    assert says(fleet, evil, "vm66").resource_name == "vm66"
    assert says(fleet, evil, "vm66").called == ""


def test_machine_with_a_taken_name_gets_a_suffix(fleet: Fleet, event: ScheduledEvent) -> None:
    evil = again(fleet, "vm1")
    row = called(evil)
    assert (row.resource_name, row.called) == (f"vm1~{row.vm_id[:8]}", "vm1")
    assert hit(fleet)[0] == fleet.agents["vm1"].machine.pk
    tick(fleet)
    assert called(evil).resource_name == row.resource_name
    # No machine can call itself like that.
    assert "~" not in says(fleet, fleet.agents["vm5"], row.resource_name).resource_name


def test_rebuilt_vm_gets_the_name_once_the_old_one_is_silent(fleet: Fleet, event: ScheduledEvent) -> None:
    new, old = again(fleet, "vm1"), fleet.agents["vm1"]
    fleet.later(settings.MACHINE_LATE_SECONDS + 1)
    fleet.heard(*(name for name in fleet.agents if name != "vm1"))
    tick(fleet)
    assert (called(new).resource_name, called(new).called) == ("vm1", "")
    assert called(old).resource_name == f"vm1~{old.machine.vm_id[:8]}"
    assert hit(fleet)[0] == new.machine.pk
    given = Entry.objects.get(kind="name_given")
    assert text(given).startswith(f"Machine vm1~{new.machine.vm_id[:8]} now has the name vm1")
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
    decommission.revoke(machine_id=fleet.agents["vm2"].machine.pk, actor=acting(admin(), why="gone"), now=fleet.now)
    tick(fleet)
    assert called(new).resource_name == "vm2"


def test_silence_loses_no_name_for_good(fleet: Fleet, event: ScheduledEvent) -> None:
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


NOW = datetime(2026, 7, 1, tzinfo=UTC)

NAMES = ("web-vm1", "web-vm2", "api_vm1", "Search%1", "b_vm", "bxvm", "straße-1")


@pytest.fixture
def named(db: None) -> None:
    home = AvailabilitySet.objects.create(kind="availability_set", name="web", created_at=NOW)
    Machine.objects.bulk_create(
        Machine(vm_id=f"0000000{number}-aaaa", resource_name=name, availability_set=home, enrolled_at=NOW)
        for number, name in enumerate(NAMES)
    )


def names_found(text: str) -> set[str]:
    return {row.resource_name for row in machines.listing(now=NOW, machines=MachineFilter({"q": text}).qs).results}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("WEB", {"web-vm1", "web-vm2"}),
        ("vm1", {"web-vm1", "api_vm1"}),
        ("vm web", {"web-vm1", "web-vm2"}),
        ("00000002", {"api_vm1"}),
        # Names do not begin so: these are parts of them.
        ("xv", {"bxvm"}),
        ("EARCH", {"Search%1"}),
        # A separator matches literally, and is no pattern.
        ("%", {"Search%1"}),
        ("_", {"api_vm1", "b_vm"}),
        ("straße", {"straße-1"}),
        ("nobody", set()),
        ("\\", set()),
    ],
)
def test_a_name_is_found_by_how_its_words_begin_and_else_by_a_part_of_it(
    text: str, names: set[str], named: None
) -> None:
    assert names_found(text) == names


def test_what_very_many_are_called_is_found_in_order_by_a_part_of_the_name(
    monkeypatch: pytest.MonkeyPatch, named: None
) -> None:
    monkeypatch.setattr(find, "FEW", 1)
    assert names_found("v") == {"web-vm1", "web-vm2", "api_vm1", "b_vm", "bxvm"}
    assert names_found("vm w") == {"web-vm1", "web-vm2"}


def test_lists_of_machines_go_by_an_index() -> None:
    rows = Machine.objects.order_by("resource_name", "pk")
    assert is_answered_by(rows.filter(resource_name__gte="web")[:50], "machine_by_name")
    assert is_answered_by(Machine.objects.order_by("-enrolled_at", "-pk")[:50], "machine_by_enrolment")
    assert is_answered_by(Machine.objects.filter(resource_name__named=["WEB-vm1"]), "machine_by_name_in_any_case")
    assert is_answered_by(Machine.objects.filter(resource_name__iexact="WEB-vm1"), "machine_by_name_in_any_case")


def test_a_name_in_any_case_is_what_postgres_says_it_is(named: None) -> None:
    found = Machine.objects.filter(resource_name__named=["STRAße-1", "API_VM1", "%", "bXvM", None])
    assert {row.resource_name for row in found} == {"straße-1", "api_vm1", "bxvm"}


def test_few_are_put_in_order_by_their_ids(named: None) -> None:
    with CaptureQueriesContext(connection) as caught:
        assert names_found("web") == {"web-vm1", "web-vm2"}
    assert len(caught) == 2
    assert "LIKE '%" not in caught[1]["sql"]


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
    place = {"fault_domain": 2, "update_domain": 1, "vmScaleSetName": "workers", "placementGroupId": "pg", **WHERE}
    return fleet.enrol("workers_0", availability_set="", **place).machine


def reports(fleet: Fleet, compute: dict[str, Any], *, complete: bool = False, name: str = "") -> None:
    """The machine `workers_0` reports its instance metadata."""
    fleet.report("workers_0", wire.InstanceData(compute=compute, resource_name=name, complete=complete))


def place(machine: Machine) -> dict[str, Any]:
    return Machine.objects.filter(pk=machine.pk).values(*PLACE).get()


@pytest.mark.parametrize(
    "compute",
    [
        {}, {"vmId": "x", "name": "workers_0"}, BLANK, dict.fromkeys(BLANK),
        BLANK | {"platformFaultDomain": "?", "tagsList": "none", "vmSize": 7, "zone": ["1"]},
        {"resourceGroupName": "shop"},
    ],
)  # fmt: skip
def test_a_partial_answer_moves_no_machine_and_removes_nothing(compute: dict[str, Any], fleet: Fleet) -> None:
    machine = scaled(fleet)
    before, told = place(machine), Entry.objects.count()
    reports(fleet, compute)
    assert place(machine) == before
    assert Entry.objects.count() == told, "nothing changed, so nothing is recorded"


@pytest.mark.parametrize(
    ("compute", "complete", "changed"),
    [
        # Only a complete answer states that a value is empty; a missing key states nothing.
        ({"platformFaultDomain": "", "zone": ""}, True, {"fault_domain": None, "zone": ""}),
        ({"name": "workers_0"}, True, {}),
        ({"vmSize": "Standard_E4", "platformFaultDomain": "0"}, False, {"size": "Standard_E4", "fault_domain": 0}),
    ],
)
def test_what_an_answer_states_counts(
    compute: dict[str, Any], complete: bool, changed: dict[str, Any], fleet: Fleet
) -> None:
    before = place(scaled(fleet))
    reports(fleet, compute, complete=complete)
    assert place(fleet.agents["workers_0"].machine) == before | changed


def test_a_set_that_a_tag_stated_stays(fleet: Fleet) -> None:
    tags = [{"name": TAG, "value": "web"}, {"name": "team", "value": "shop"}]
    machine = fleet.enrol("workers_0", availability_set="", tagsList=tags).machine
    home = machine.availability_set_id
    assert the_set("web").pk == home
    for compute in ({}, {"tagsList": []}, {"tagsList": [{"name": "team", "value": "shop"}]}):
        reports(fleet, compute)
        machine.refresh_from_db()
        assert (machine.availability_set_id, machine.set_source) == (home, "tag")
    reports(fleet, {"tagsList": [{"name": "team", "value": "shop"}]}, complete=True)
    machine.refresh_from_db()
    assert machine.set_source == ""


def test_enrolling_again_with_a_partial_answer_or_none_takes_nothing_away(fleet: Fleet) -> None:
    machine = scaled(fleet)
    before = place(machine)
    agent = fleet.agents["workers_0"]
    for instance in (None, {}, {"vmId": machine.vm_id}, BLANK):
        request = wire.EnrolRequest(
            join_token=fleet.join_token, machine_id=machine.vm_id, instance=instance, credential=agent.credential
        )
        answer = enrolment.enrol(request=request, now=fleet.now)
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


# The name of a machine's Kubernetes node: reported, checked as what a hostile machine may send, shown and found.

NODE = "aks-web-21922338-vmss00001b"


@pytest.fixture
def web(db: None) -> Fleet:
    web = Fleet(now=datetime.now(UTC))
    web.enrol_set()
    return web


def node_of(web: Fleet, *stated: str) -> str:
    """vm1 reports its instance metadata with each of these names of its node; the stored name."""
    machine = web.agents["vm1"].machine
    usual = {"compute": machine.compute, "resource_name": "vm1", "availability_set": "web"}
    web.report("vm1", *(wire.InstanceData(**usual, node_name=name) for name in stated))
    return Machine.objects.get(pk=machine.pk).node_name


def test_name_follows_the_newest_report(web: Fleet) -> None:
    told = Entry.objects.count()
    assert node_of(web, NODE) == NODE
    assert node_of(web, NODE) == NODE
    assert Entry.objects.count() == told
    # An agent before 0.2.0 does not send it.
    assert node_of(web, "") == ""


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (NODE, NODE),
        ("n", "n"),
        ("a" * 253, "a" * 253),
        *((text, "") for text in ("", "a" * 254, "Node", "-n", "n.", "a b", "n\n", "n\x00", "\u202en", "<b>", "ñ")),
    ],
)
def test_only_a_name_of_kubernetes_is_kept(sent: str, kept: str) -> None:
    form, check = READERS[wire.INSTANCE]
    data = form(compute={}, node_name=sent)
    check(data)
    assert data.node_name == kept


def test_changes_of_one_machine_are_bounded(web: Fleet) -> None:
    stated = [f"node-{number}" for number in range(NEW_STATEMENTS + 10)]
    assert node_of(web, *stated) == f"node-{NEW_STATEMENTS - 1}"


def test_pages_and_api_show_it_with_the_resource_name(web: Fleet) -> None:
    node_of(web, NODE)
    event = announced(web)
    machine = web.agents["vm1"].machine.pk
    client, api = logged_in(factories.viewer()), caller(factories.viewer("other"))
    set_id = AvailabilitySet.objects.get(name="web").pk
    for address in (f"/machines/{machine}/", "/machines/", f"/events/{event.event_id}/", f"/sets/{set_id}/"):
        assert text_of(client.get(address)).count(NODE) == 1, address
    assert api.get(f"machines/{machine}/").json()["node_name"] == NODE
    hit = api.get(f"events/{event.event_id}/").json()["hit"]
    assert [(one["name"], one["node_name"]) for one in hit] == [("vm1", NODE), ("vm2", "")]


def test_machine_is_found_by_the_beginning_of_its_node_name(web: Fleet, client: Client) -> None:
    node_of(web, NODE)
    client.force_login(factories.viewer())
    assert NODE in text_of(client.get("/find/", {"q": "AKS-web-2192"}))
    found = MachineFilter({"q": NODE}, now=web.now).qs
    assert [row.resource_name for row in found] == ["vm1"]
    assert is_answered_by(Machine.objects.filter(node_name__startswith="aks-"), "machine_by_node_name")
