"""Machines are found by their names without looking through a hundred thousand of them."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import AvailabilitySet, Machine
from fleet.projections import machines
from fleet.projections.desk import find
from fleet.projections.filters import MachineFilter
from tests.plans import is_answered_by

NOW = datetime(2026, 7, 1, tzinfo=UTC)
NAMES = ("web-vm1", "web-vm2", "api_vm1", "Search%1", "b_vm", "bxvm", "straße-1")


@pytest.fixture(autouse=True)
def named(db: None) -> None:
    home = AvailabilitySet.objects.create(kind="availability_set", name="web", created_at=NOW)
    Machine.objects.bulk_create(
        Machine(vm_id=f"0000000{number}-aaaa", resource_name=name, availability_set=home, enrolled_at=NOW)
        for number, name in enumerate(NAMES)
    )


def called(text: str) -> set[str]:
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
def test_a_name_is_found_by_how_its_words_begin_and_else_by_a_part_of_it(text: str, names: set[str]) -> None:
    assert called(text) == names


def test_what_very_many_are_called_is_found_in_order_by_a_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "FEW", 1)
    assert called("v") == {"web-vm1", "web-vm2", "api_vm1", "b_vm", "bxvm"}
    assert called("vm w") == {"web-vm1", "web-vm2"}


def test_lists_of_machines_go_by_an_index() -> None:
    rows = Machine.objects.order_by("resource_name", "pk")
    assert is_answered_by(rows.filter(resource_name__gte="web")[:50], "machine_by_name")
    assert is_answered_by(Machine.objects.order_by("-enrolled_at", "-pk")[:50], "machine_by_enrolment")
    assert is_answered_by(Machine.objects.filter(resource_name__named=["WEB-vm1"]), "machine_by_name_in_any_case")
    assert is_answered_by(Machine.objects.filter(resource_name__iexact="WEB-vm1"), "machine_by_name_in_any_case")


def test_a_name_in_any_case_is_what_postgres_says_it_is() -> None:
    found = Machine.objects.filter(resource_name__named=["STRAße-1", "API_VM1", "%", "bXvM", None])
    assert {row.resource_name for row in found} == {"straße-1", "api_vm1", "bxvm"}


def test_few_are_put_in_order_by_their_ids() -> None:
    with CaptureQueriesContext(connection) as caught:
        assert called("web") == {"web-vm1", "web-vm2"}
    assert len(caught) == 2
    assert "LIKE '%" not in caught[1]["sql"]
