"""Blind spots: each gap in observation has a reason, a next step and a degree of certainty."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from drydock_agent import wire

from fleet.domain.blind_spots import (
    ORDER,
    AgentFacts,
    BlindSpot,
    Confidence,
    SetFacts,
    never_announces_upgrades,
    of_set,
    read_version,
)
from fleet.domain.states import Presence
from fleet.models import Machine
from fleet.operations.intake import presence
from fleet.operations.machines import decommission
from fleet.projections.blind_spots import count, overview
from fleet.wording.blind_spots import SPOTS
from tests.factories import NOW, Fleet, acting, admin
from tests.machines.test_inventories import IDS, sample, take
from tests.words import sentence

pytestmark = pytest.mark.django_db

AGENT = AgentFacts(
    machine_id=1,
    name="vm1",
    presence=Presence.LIVE,
    last_heard_at=NOW,
    last_poll_at=NOW,
    enrolled_at=NOW - timedelta(days=9),
    clock_offset=0.1,
    agent_version="1.2.0",
    protocol=2,
    zone="1",
    size="Standard_D2s_v5",
)


def spots(*agents: AgentFacts, kind: str = "availability_set", **fields: Any) -> Any:
    each = SetFacts(set_id=7, kind=kind, agents=agents, **{"upgrade_notices": None, **fields})
    found = of_set(each, now=NOW, version="1.2.0", protocol=2, clock_tolerance=2)
    return {spot.code: spot for spot in found}


def agent(**fields: Any) -> AgentFacts:
    return replace(AGENT, **fields)


UNSURE = {"agent-too-old": Confidence.POSSIBLE, "many-spools": Confidence.LIKELY}
OLDER = "older than Drydock's own 1.2.0"
# What one of two agents reports, the code of the blind spot (empty: none), and words of its reason.
AGENTS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, "", ""),
    ({"presence": Presence.SILENT}, "agent-silent", "vm2"),
    ({"presence": Presence.GONE}, "agent-gone", "vm2"),
    ({"presence": Presence.LATE}, "agent-late", "vm2"),
    ({"presence": Presence.EXPECTED}, "agent-never-heard", "vm2"),
    ({"presence": Presence.SILENT, "poll_problem": wire.SPOOL_UNWRITABLE}, "spool-unwritable", "vm2"),
    # A live agent with a passing problem.
    ({"poll_problem": "status-403"}, "", ""),
    *(({"agent_version": version}, "agent-too-old", OLDER) for version in ("1.1.9", "1.2", "1.2.0.dev7+g1")),
    ({"protocol": 1, "agent_version": ""}, "agent-too-old", OLDER),
    *(({"agent_version": version}, "", "") for version in ("1.2.0", "1.10.0", "2.0", "", "unknown")),
    # A reminder of a document that is not here counts after a minute.
    ({"lacking_since": NOW - timedelta(seconds=59)}, "", ""),
    ({"lacking_since": NOW - timedelta(seconds=61)}, "document-lacking", "vm2"),
    ({"spools": 4}, "", ""),
    ({"spools": 7}, "many-spools", "Up to 7 new state folders within a day: vm2."),
    ({"clock_offset": 2.4}, "wrong-clock", "2.4 seconds (ahead)"),
    ({"clock_offset": -30.0}, "wrong-clock", "30.0 seconds (behind)"),
    *(({"clock_offset": offset}, "", "") for offset in (None, 0.0, 2.0, -2.0)),
)


@pytest.mark.parametrize(("fields", "code", "words"), AGENTS)
def test_each_state_of_an_agent_is_its_blind_spot(fields: dict[str, Any], code: str, words: str) -> None:
    found = spots(AGENT, agent(machine_id=2, name="vm2", **fields))
    assert set(found) == ({code} if code else set())
    for spot in found.values():
        assert (spot.set_id, spot.machine_ids, spot.names) == (7, (2,), ("vm2",))
        assert spot.certainty is UNSURE.get(code, Confidence.CERTAIN)
        assert words in sentence(spot.reason) and sentence(spot.advice)


@pytest.mark.parametrize("problem", ["no-answer", "empty", "unreadable", "status-403", "status-429", "status-418"])
def test_an_agent_that_is_heard_but_gets_no_document_is_named_with_the_reason(problem: str) -> None:
    refused = agent(machine_id=2, name="vm2", presence=Presence.SILENT, poll_problem=problem)
    found = spots(AGENT, refused)
    assert set(found) == {"metadata-unavailable"}
    spot: BlindSpot = found["metadata-unavailable"]
    assert (spot.machine_ids, spot.part, spot.values["problem"]) == ((2,), problem, problem)
    assert "vm2" in sentence(spot.reason) and sentence(spot.advice)
    if problem.startswith("status"):
        assert problem[-3:] in sentence(spot.reason)


def test_different_problems_of_one_set_are_different_blind_spots() -> None:
    refused = [
        agent(machine_id=n, name=f"vm{n}", presence=Presence.LATE, poll_problem=problem)
        for n, problem in ((2, "status-403"), (3, "unreadable"))
    ]
    each = SetFacts(set_id=7, kind="availability_set", upgrade_notices=None, agents=(AGENT, *refused))
    found = of_set(each, now=NOW, version="1.2.0", protocol=2, clock_tolerance=2)
    assert sorted(spot.part for spot in found) == ["status-403", "unreadable"]


def test_many_agents_of_one_set_are_one_blind_spot() -> None:
    silent = [agent(machine_id=n, name=f"vm{n}", presence=Presence.SILENT) for n in range(2, 10)]
    found = spots(AGENT, *silent)["agent-silent"]
    assert "vm2, vm3, vm4, vm5, vm6 and 3 more" in sentence(found.reason)
    assert len(found.machine_ids) == 8


@pytest.mark.parametrize(
    ("text", "numbers", "is_release"),
    [
        ("0.10.2rc1", (0, 10, 2), False), ("0.2.0.dev20261126101001+gaea227721234", (0, 2, 0), False),
        ("0.2.0+gaea227721234", (0, 2, 0), True), ("v1", (), True), ("", (), True), ("3", (3,), True),
    ],
)  # fmt: skip
def test_versions_are_compared_as_numbers(text: str, numbers: tuple[int, ...], is_release: bool) -> None:
    assert read_version(text) == (numbers, is_release)


def test_a_zone_without_a_live_poller_is_possible_and_says_who_says_what() -> None:
    quiet = agent(machine_id=2, name="vm2", zone="2", presence=Presence.LATE)
    found = spots(AGENT, quiet, missing=(("vm3", "3", ""), ("vm4", "", "")))
    spot = found["zone-without-poller"]
    assert spot.certainty is Confidence.POSSIBLE
    assert "zone 3" in sentence(spot.reason)
    assert "Microsoft's documentation, delivery does not depend on zones" in sentence(spot.reason)
    assert "one issue thread" in sentence(spot.reason)


def test_zone_without_poller_needs_a_live_poller_in_another_zone() -> None:
    assert "zone-without-poller" not in spots(agent(presence=Presence.LATE), agent(zone="2", presence=Presence.LATE))
    assert spots(AGENT, agent(machine_id=2, zone="2")) == {}


def test_upgrades_of_a_scale_set_are_not_detectable_without_an_inventory() -> None:
    unknown = spots(AGENT, kind="scale_set")
    assert set(unknown) == {"upgrades-unknown"}
    assert unknown["upgrades-unknown"].certainty.value == "cannot be told from here"
    assert spots(AGENT, kind="scale_set", upgrade_notices=True) == {}
    off = spots(AGENT, kind="scale_set", upgrade_notices=False)
    assert set(off) == {"upgrades-unannounced"}
    assert off["upgrades-unannounced"].certainty is Confidence.CERTAIN


@pytest.mark.parametrize(
    "size", ["Standard_G5", "Standard_GS2", "Standard_M128ms", "Standard_NC6s_v3", "Standard_HB120rs_v3", "basic_h8"]
)
def test_some_series_never_announce_upgrades(size: str) -> None:
    assert never_announces_upgrades(size)
    found = spots(agent(size=size), kind="scale_set")
    assert set(found) == {"size-without-upgrade-events"}
    assert size in sentence(found["size-without-upgrade-events"].reason)
    assert spots(agent(size=size)) == {}


@pytest.mark.parametrize(
    "size", ["Standard_D2s_v5", "Standard_B2ms", "Standard_E16_v4", "Standard_L8s", "", "Standard"]
)
def test_other_series_do(size: str) -> None:
    assert not never_announces_upgrades(size)


@pytest.mark.parametrize(
    ("hours", "code"), [(19, None), (20.5, "near-switch-off"), (23.9, "near-switch-off"), (25, "switched-off")]
)
def test_a_set_without_a_poll_nears_its_switch_off(hours: float, code: str | None) -> None:
    quiet = agent(last_poll_at=NOW - timedelta(hours=hours), presence=Presence.SILENT)
    found = spots(quiet, agent(machine_id=2, last_poll_at=None, enrolled_at=quiet.last_poll_at))
    assert {"near-switch-off", "switched-off"} & set(found) == ({code} if code else set())
    # One machine that asks keeps the service on.
    assert not {"near-switch-off", "switched-off"} & set(spots(quiet, AGENT))


def test_machines_without_an_agent_and_sets_without_a_name_are_blind_spots() -> None:
    found = spots(AGENT, kind="provisional", missing=(("vm2", "", ""),))
    assert set(found) == {"no-agent", "unnamed-set"}
    assert sentence(found["no-agent"].reason) == "1 machine of the imported inventory has no agent: vm2."
    several = spots(AGENT, missing=(("jump", "", ""), ("build", "", "")))["no-agent"]
    assert sentence(several.reason) == "2 machines of the imported inventory have no agent: jump, build."


def test_the_most_dangerous_come_first_and_each_has_a_title() -> None:
    assert set(SPOTS) == set(ORDER)
    off = agent(presence=Presence.SILENT, clock_offset=9.0)
    both = SetFacts(set_id=2, kind="provisional", upgrade_notices=None, agents=(agent(), off))
    found = of_set(both, now=NOW, version="1", protocol=1, clock_tolerance=2)
    assert [spot.code for spot in found] == ["agent-silent", "wrong-clock", "unnamed-set"]


def test_the_fleets_blind_spots_are_seen_from_its_rows(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.enrol("never", availability_set="web", heard=False)
    fleet.enrol("mine", availability_set="")
    fleet.enrol("web1", availability_set="", vm_id=IDS["web1"])
    fleet.enrol("jump", availability_set="", vm_id=IDS["jump"])
    take(fleet, sample("vm_list"))
    moved = Machine.objects.get(resource_name="vm2").pk
    presence.flush(contacts=[presence.Contact(moved, fleet.now, fleet.now, clock_offset=4.0)])
    decommission.revoke(machine_id=Machine.objects.get(resource_name="jump").pk, actor=acting(admin()), now=fleet.now)
    found = overview(now=fleet.now)
    shown = [(spot.code, spot.set.name if spot.set else None, spot.names) for spot in found.spots]
    assert ("agent-never-heard", "web", ("never",)) in shown
    assert ("wrong-clock", "web", ("vm2",)) in shown
    assert ("no-agent", "web", ("web2", "web3")) in shown
    assert ("no-agent", "jump", ("jump",)) in shown
    assert [names for code, _, names in shown if code == "unnamed-set"] == [("mine",)]
    assert ("upgrades-unknown", "burst", ()) in shown
    assert sum(group.count for group in found.groups) == len(found.spots) == count(now=fleet.now)


def test_agents_are_compared_with_this_very_backend(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    fleet.enrol("vm1")
    assert overview(now=fleet.now).spots == ()
    monkeypatch.setattr(settings, "VERSION", "9.0.0")
    assert [spot.code for spot in overview(now=fleet.now).spots] == ["agent-too-old"]
