"""Naming and merging sets, taking inventories, and blind spots, through the API."""

from typing import Any

import pytest

from fleet.models import InventoryMachine
from tests import factories
from tests.api.conftest import Caller, problem
from tests.machines.test_inventories import IDS, SAMPLES, sample

pytestmark = pytest.mark.django_db


def provisional(fleet: factories.Fleet, name: str = "a") -> int:
    return fleet.enrol(name, availability_set="").machine.availability_set_id


def test_a_provisional_set_is_named(fleet: factories.Fleet, admin: Caller) -> None:
    set_id = provisional(fleet)
    named = {"name": "workers", "kind": "scale_set", "service": "shop"}
    shown = admin("PATCH", f"sets/{set_id}/", named).json()
    assert {name: shown[name] for name in ("id", *named, "warnings")} == {"id": set_id, **named, "warnings": []}


def test_a_name_or_a_merge_that_makes_no_sense_is_a_problem(fleet: factories.Fleet, admin: Caller) -> None:
    set_id = provisional(fleet)
    names: list[tuple[dict[str, Any], str]] = [({}, ""), ({"nam": "x"}, "nam"), ({"name": None}, "name")]
    for body, field in names:
        refused = problem(admin("PATCH", f"sets/{set_id}/", body), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == [field], body
    for merge in ({}, {"into": "web"}, {"into": 0}, {"into": 2**63}, {"into": 1, "x": 1}):
        problem(admin.post(f"sets/{set_id}/merge/", merge), 422, "validation")


def test_two_sets_are_merged_and_the_old_id_leads_on(fleet: factories.Fleet, admin: Caller) -> None:
    old = provisional(fleet)
    fleet.enrol("vm1")
    web = factories.the_set("web").pk
    assert problem(admin("PATCH", f"sets/{old}/", {"name": "web"}), 409, "set-exists")["set"] == web
    problem(admin("PATCH", "sets/999999/", {"name": "x"}), 404, "not-found")
    problem(admin.post(f"sets/{old}/merge/", {"into": 999999}), 404, "not-found")
    answer = admin.post(f"sets/{old}/merge/", {"into": web})
    assert [machine["resource_name"] for machine in answer.json()["machines"]] == ["a", "vm1"]
    assert admin.get(f"sets/{old}/").json()["id"] == web
    assert [row["id"] for row in admin.get("sets/").json()["results"]] == [web]
    problem(admin.post(f"sets/{old}/merge/", {"into": web}), 422, "validation")


def test_what_az_prints_is_taken_as_it_is(fleet: factories.Fleet, admin: Caller) -> None:
    fleet.enrol("web1", availability_set="shop", vm_id=IDS["web1"])
    printed = (SAMPLES / "az_vm_list.json").read_bytes()
    answer = admin.post("inventory/", printed)
    assert answer.json() == {"machines": 5, "new": 5, "without_agent": 4, "dropped": 0, "scale_sets": 0, "refused": []}
    (web,) = admin.get("sets/?q=web").json()["results"]
    assert [machine["name"] for machine in web["without_agent"]] == ["web2", "web3"]
    (machine,) = admin.get("machines/").json()["results"]
    assert machine["set_source"] == "configuration"
    assert "WEB" in machine["warnings"][0]
    shop = admin.get(f"sets/{machine['set']['id']}/").json()
    assert f"web1: {machine['warnings'][0]}" in shop["warnings"]
    admin.get("sets/")


def test_a_complete_inventory_forgets_what_it_does_not_list(fleet: factories.Fleet, admin: Caller) -> None:
    admin.post("inventory/", sample("vm_list"))
    assert admin.post("inventory/?complete=true", sample("vm_list")[:2]).json()["dropped"] == 3
    assert InventoryMachine.objects.count() == 2
    problem(admin.post("inventory/?complete=perhaps", []), 422, "validation")
    problem(admin.post("inventory/?completely=true", []), 422, "validation")


def test_an_inventory_may_be_large_but_not_endless(admin: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (b"Name  ResourceGroup", b'[{"id": "x", "type": "Microsoft.Compute/disks"}]', b"7"):
        problem(admin.post("inventory/", body), 422, "validation")
    many = sample("vm_list") * 10
    assert len(str(many)) > 64 * 1024
    assert admin.post("inventory/", many).json()["machines"] == 5
    monkeypatch.setattr("fleet.api.views.machines.MAX_INVENTORY_BYTES", 1024)
    problem(admin.post("inventory/", many), 413, "too-large")


def test_blind_spots_say_why_what_to_do_and_how_sure_that_is(fleet: factories.Fleet, viewer: Caller) -> None:
    assert viewer.get("blind-spots/").json() == {"next": None, "previous": None, "results": []}
    fleet.enrol("a", availability_set="", heard=False)
    answer = viewer.get("blind-spots/")
    first, second = answer.json()["results"]
    assert (first["code"], first["certainty"], first["names"]) == ("agent-never-heard", "certain", ["a"])
    assert (second["code"], second["certainty"]) == ("unnamed-set", "possible")
    assert first["machines"] == [{"id": fleet.agents["a"].machine.pk, "resource_name": "a"}]
    assert first["set"]["kind"] == "provisional"
    assert all(spot["reason"] and spot["advice"] for spot in (first, second))


def test_machines_may_be_asked_for_as_numbers(fleet: factories.Fleet, operator: Caller) -> None:
    fleet.enrol("vm1", availability_set="web")
    (whole,) = operator.get("sets/").json()["results"]
    (short,) = operator.get("sets/?machines=false").json()["results"]
    assert (len(whole["machines"]), short["machines"]) == (1, [])
    assert short == whole | {"machines": [], "omitted": 1, "server_time": short["server_time"]}
    alone = operator.get(f"sets/{whole['id']}/?machines=false").json()
    assert alone == short | {"server_time": alone["server_time"]}
    problem(operator.get("sets/?machines=perhaps"), 422, "validation")
