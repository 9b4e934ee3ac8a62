"""The name of a machine's Kubernetes node: reported, checked as what a hostile machine may send, shown and found."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from drydock_agent import wire

from fleet.domain.intake import NEW_STATEMENTS
from fleet.gateway.readers import READERS
from fleet.models import AvailabilitySet, Entry, Machine
from fleet.projections.filters import MachineFilter
from tests import factories
from tests.api.conftest import caller
from tests.dashboard.conftest import logged_in, text_of
from tests.plans import is_answered_by

NODE = "aks-web-21922338-vmss00001b"


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    fleet = factories.Fleet(now=datetime.now(UTC))
    fleet.enrol_set()
    return fleet


def reports(fleet: factories.Fleet, **fields: Any) -> str:
    """vm1 reports its instance metadata; the stored name of its node."""
    machine = fleet.agents["vm1"].machine
    stated = wire.InstanceData(compute=machine.compute, resource_name="vm1", availability_set="web", **fields)
    fleet.report("vm1", stated)
    return Machine.objects.get(pk=machine.pk).node_name


def test_name_follows_the_newest_report(fleet: factories.Fleet) -> None:
    told = Entry.objects.count()
    assert reports(fleet, node_name=NODE) == NODE
    assert reports(fleet, node_name=NODE) == NODE
    assert Entry.objects.count() == told
    # An agent before 0.2.0 does not send it.
    assert reports(fleet) == ""


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


def test_changes_of_one_machine_are_bounded(fleet: factories.Fleet) -> None:
    machine = fleet.agents["vm1"].machine
    stated = [
        wire.InstanceData(
            compute=machine.compute, resource_name="vm1", availability_set="web", node_name=f"node-{number}"
        )
        for number in range(NEW_STATEMENTS + 10)
    ]
    fleet.report("vm1", *stated)
    assert Machine.objects.get(pk=machine.pk).node_name == f"node-{NEW_STATEMENTS - 1}"


def test_pages_and_api_show_it_with_the_resource_name(fleet: factories.Fleet) -> None:
    reports(fleet, node_name=NODE)
    event = factories.announced(fleet)
    machine = fleet.agents["vm1"].machine.pk
    client, api = logged_in(factories.viewer()), caller(factories.viewer("other"))
    set_id = AvailabilitySet.objects.get(name="web").pk
    for address in (f"/machines/{machine}/", "/machines/", f"/events/{event.event_id}/", f"/sets/{set_id}/"):
        assert text_of(client.get(address)).count(NODE) == 1, address
    assert api.get(f"machines/{machine}/").json()["node_name"] == NODE
    hit = api.get(f"events/{event.event_id}/").json()["hit"]
    assert [(one["name"], one["node_name"]) for one in hit] == [("vm1", NODE), ("vm2", "")]


def test_machine_is_found_by_the_beginning_of_its_node_name(fleet: factories.Fleet, client: Client) -> None:
    reports(fleet, node_name=NODE)
    client.force_login(factories.viewer())
    assert NODE in text_of(client.get("/find/", {"q": "AKS-web-2192"}))
    found = MachineFilter({"q": NODE}, now=fleet.now).qs
    assert [row.resource_name for row in found] == ["vm1"]
    assert is_answered_by(Machine.objects.filter(node_name__startswith="aks-"), "machine_by_node_name")
