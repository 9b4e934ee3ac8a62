"""The simulator's fleet file: valid files load, and each mistake gets an error that names it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import azure_simulator
import pytest
from azure_simulator import fleet

from tests.simulator.asking import west_norway

DEMO_FLEET = Path(azure_simulator.__file__).with_name("demo_fleet.json")


def test_the_demo_fleet_is_as_promised() -> None:
    demo = fleet.load(DEMO_FLEET)
    sizes = {(each.kind, each.name): len(each.machines) for each in demo.sets}
    assert sizes == {
        ("availability_set", "web"): 6,
        ("scale_set", "workers"): 4,
        ("cloud_service", "legacy"): 2,
        ("standalone", "jumpbox"): 1,
    }
    web = demo.find_set("web")
    assert len({(m.fault_domain, m.update_domain) for m in web.machines}) == 6
    assert [m.name for m in demo.find_set("legacy").machines] == ["FrontEnd_IN_0", "BackEnd_IN_0"]
    assert len(demo.caches) == 2


def test_placement_groups_stay_the_same_and_belong_to_scale_sets_only() -> None:
    first, second = fleet.load(DEMO_FLEET), fleet.load(DEMO_FLEET)
    assert first == second
    assert [bool(each.placement_group_id) for each in first.sets] == [False, True, False, False]


def twice(key: str) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        machines = whole["sets"][0]["machines"]
        machines[1][key] = machines[0][key]

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda whole: whole.pop("sets"), "sets: expected a list, found nothing"),
        (lambda whole: whole.update(sets=[]), "sets: there must be at least one"),
        (lambda whole: whole.update(machines=[]), "does not know machines"),
        (lambda whole: whole["sets"][0].update(kind="zoo"), "sets[0].kind: 'zoo' is none of"),
        (lambda whole: whole["sets"][0].update(kind="standalone"), "a standalone set has one machine"),
        (lambda whole: whole["sets"][1].update(machines=[]), "sets[1].machines: there must be at least one"),
        (lambda whole: whole["sets"][0]["machines"][1].pop("name"), "sets[0].machines[1].name: is missing"),
        (lambda whole: whole["sets"][0]["machines"][0].update(id="a/b"), "must do as one part of a URL's path"),
        (lambda whole: whole["sets"][0]["machines"][0].update(fault_domain="1"), "expected a whole number from 0"),
        (lambda whole: whole["sets"][0]["machines"][0].update(tags={"a": 1}), "every value must be text"),
        (lambda whole: whole["sets"].append(copy.deepcopy(whole["sets"][0])), "two sets have the same kind"),
        (twice("id"), "two machines have the same id: WestNO_0"),
        (twice("name"), "two machines of the set have the same name: westno_0"),
        (twice("vm_id"), "two machines have the same vm_id"),
        (
            lambda whole: whole["sets"][0].update(load_balancer={"address": "51.0.0.1"}),
            "load_balancer.ports: expected an",
        ),
        (
            lambda whole: whole["sets"][0].update(load_balancer={"address": "a", "ports": {"80": 0}}),
            "ports: 0 is no port",
        ),
        (lambda whole: whole["caches"][0].pop("tier"), "caches[0].tier: is missing"),
    ],
)
def test_a_mistake_is_named_with_its_place(change: Callable[[dict[str, Any]], Any], complaint: str) -> None:
    whole = west_norway()
    change(whole)
    with pytest.raises(fleet.FleetError) as caught:
        fleet.parse(whole)
    assert complaint in str(caught.value)


def test_names_may_repeat_in_different_sets() -> None:
    whole = west_norway()
    whole["sets"][2]["machines"][0]["name"] = "WestNO_0"
    assert len(fleet.parse(whole).sets) == 3


def test_a_file_that_is_no_json_or_not_there_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    for path in (broken, tmp_path / "missing.json"):
        with pytest.raises(fleet.FleetError, match=path.name):
            fleet.load(path)
