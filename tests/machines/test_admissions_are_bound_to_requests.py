"""Admissions: an administrator admits exactly the displayed request, and a changed one counts as another."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from drydock_agent import wire
from pytest_django import Settings

from fleet.models import Admission, AvailabilitySet, Machine
from fleet.operations.intake.keep import AgentReport
from fleet.operations.machines import admissions, enrolment
from fleet.operations.reports import place
from fleet.operations.sets.changes import move_machine
from tests.approvals.asking import entries, refused
from tests.factories import acting, admin, change_set
from tests.machines.forger import NOW, OTHER_VM_ID, VM_ID
from tests.machines.newcomers import COMPUTE, admit_all, ask, document, granted, home, key_of, request_of, token, waits
from tests.sets.test_where_a_machine_belongs import tagged

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("azure")]
LAB = {"resource_name": "lab1", "availability_set": "lab", "instance": COMPUTE | {"name": "lab1"}}


def tells(stated: str = "", **compute: Any) -> None:
    """The machine reports its instance metadata again, with this set."""
    machine = Machine.objects.get(vm_id=VM_ID)
    data = wire.InstanceData(compute=COMPUTE | compute, resource_name="web-vm77", availability_set=stated)
    place(AgentReport(machine.pk, (1, 1), NOW, data), {}, NOW)


@pytest.mark.parametrize(
    "other",
    [
        {"resource_name": "web-vm77"},
        {"resource_name": "", "instance": COMPUTE | {"name": "web-vm77"}},
        {"availability_set": "web"},
        {"availability_set": "scale_set:lab"},
        {"availability_set": ""},
        {"availability_set": "", "instance": LAB["instance"] | tagged("web")},
        {"availability_set": "", "instance": LAB["instance"] | {"vmScaleSetName": "web"}},
        {"instance": LAB["instance"] | {"resourceGroupName": "shop2"}},
        {"instance": LAB["instance"] | {"subscriptionId": OTHER_VM_ID}},
        {"instance": LAB["instance"] | {"location": "northeurope"}},
        {"instance": LAB["instance"] | {"privateIpAddresses": ["10.0.0.9"]}},
        {"instance": None},
        {"join_token": "of the set web"},
        {"join_token": "of no set"},
    ],
)
def test_other_details_are_another_request(other: dict[str, Any]) -> None:
    tokens = {"of the set web": token("web"), "of no set": token()}
    assert waits(ask(**LAB))
    admit_all()
    fields = LAB | other
    fields["join_token"] = tokens.get(fields.get("join_token", ""), "")
    if fields["join_token"] == tokens["of the set web"]:
        fields["availability_set"] = ""
    assert waits(ask(**fields))
    assert not Machine.objects.exists()
    assert Admission.objects.filter(admitted_at=None).count() == 1
    # What was admitted still is.
    granted(ask(**LAB))
    assert home() == "lab"


def test_another_address_is_another_request() -> None:
    assert waits(ask(**LAB))
    admit_all()
    assert waits(enrolment.enrol(request=request_of(**LAB), now=NOW, address="198.51.100.1"))


def test_the_token_of_one_set_is_no_way_into_another() -> None:
    lab = token("lab")
    fields = LAB | {"availability_set": "", "join_token": lab}
    assert waits(ask(**fields))
    assert Admission.objects.get().said["home"] == "availability_set:lab"
    admit_all()
    assert waits(ask(**fields | {"join_token": "", "availability_set": "web"}))
    assert waits(ask(**fields | {"join_token": "", "availability_set": ""}))
    granted(ask(**fields))
    assert home() == "lab"


@pytest.mark.parametrize("stated", ["web", ""])
def test_an_admitted_machine_stays_in_the_set_that_was_shown(stated: str) -> None:
    ask(**LAB)
    admit_all()
    ask(**LAB)
    tells(stated, **(tagged("web") if not stated else {}))
    assert home() == "lab"
    assert Machine.objects.get().set_warnings[0]["code"] == "states-another-set"
    tells("lab", resourceGroupName="other", subscriptionId=OTHER_VM_ID)
    assert home() == "lab" and AvailabilitySet.objects.count() == 1
    # Until a person decides otherwise.
    tells("web")
    move_machine(machine_id=Machine.objects.get().pk, set_id=None, actor=acting(admin()), now=NOW)
    assert home() == "web"


def test_a_machine_admitted_without_a_set_enters_no_named_one_by_its_own_word() -> None:
    alone = LAB | {"availability_set": ""}
    ask(**alone)
    assert Admission.objects.get().said["home"] == ""
    admit_all()
    ask(**alone)
    tells("web")
    machine = Machine.objects.select_related("availability_set").get()
    assert machine.availability_set.kind == "provisional"
    # A person names its set, and it stays there.
    change_set(set_id=machine.availability_set_id, actor=acting(admin()), now=NOW, name="lab")
    tells("web")
    assert home() == "lab"


def test_a_machine_that_enrols_again_with_its_key_stays_confined() -> None:
    ask(**LAB)
    admit_all()
    first = granted(ask(**LAB))
    granted(ask(**LAB | {"availability_set": "web"}, signed_by=key_of(first)))
    assert home() == "lab"


def test_a_known_machine_is_admitted_to_the_set_where_it_is() -> None:
    ask(document(), **LAB)
    assert waits(ask(ask="rebuilt", **LAB | {"availability_set": ""}))
    assert Admission.objects.get().said["home"] == "availability_set:lab"
    admit_all()
    assert waits(ask(ask="rebuilt", **LAB | {"availability_set": "web"}))
    granted(ask(ask="rebuilt", **LAB | {"availability_set": ""}))
    tells("web")
    assert home() == "lab"


def test_the_rule_of_a_set_admits_into_that_set_alone(settings: Settings) -> None:
    ask(document(), **LAB)
    later = NOW + timedelta(minutes=5)
    settings.ENROLMENT_POLICY = "admit"
    lab = AvailabilitySet.objects.get()
    admissions.set_rule(set_id=lab.pk, until=NOW + timedelta(days=1), actor=acting(admin()), now=NOW)
    granted(ask(document(later), now=later, ask="rebuilt", **LAB | {"availability_set": "web"}))
    assert home() == "lab"
    # An unknown machine also goes into that set.
    stranger = LAB | {"resource_name": "lab2", "machine_id": OTHER_VM_ID}
    granted(ask(document(later, vmId=OTHER_VM_ID), now=later, **stranger))
    confined = Machine.objects.get(vm_id=OTHER_VM_ID).confined_to
    assert confined is not None and confined["name"] == "lab"


def test_a_request_that_changes_while_it_waits_replaces_the_one_before() -> None:
    """The page shows one line for it, and the line that an administrator saw is gone."""
    ask(**LAB)
    shown = Admission.objects.get().pk
    for number in range(20):
        assert waits(ask(**LAB | {"resource_name": f"web-vm{number}"}))
    assert Admission.objects.get().resource_name == "web-vm19"
    actor = acting(admin())
    assert refused(lambda: admissions.admit(ids=[shown], actor=actor, now=NOW)).code == "not-found"
    assert not entries("machine_admitted")


def test_the_page_shows_the_set_and_the_resource_group_that_are_admitted(ada: Client) -> None:
    ask(**LAB | {"availability_set": "", "instance": LAB["instance"] | tagged("web")})
    (row,) = ada.get("/admissions/").context["rows"]
    assert (row.placed_set, row.stated_resource_group, row.resource_name) == ("availability_set:web", "shop", "lab1")


def test_a_known_machine_that_asks_for_another_set_is_contradicted(ada: Client) -> None:
    ask(document(), **LAB)
    ask(ask="thief", **LAB | {"availability_set": "web", "instance": LAB["instance"] | {"resourceGroupName": "shop2"}})
    (row,) = ada.get("/admissions/").context["rows"]
    assert [reason.code for reason in row.contradictions] == ["admission-other-group", "admission-other-set"]
