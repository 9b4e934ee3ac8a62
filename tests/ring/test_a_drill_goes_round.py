"""Hooks through real processes: in a drill, of which Azure hears nothing, and planned for an event hours ahead."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.machine_hooks import HookFolder
from tests.processes import wait_for
from tests.ring.ring import MIGRATION, Ring

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


@pytest.fixture
def hooks(one_ring: Ring, tmp_path: Path) -> Iterator[HookFolder]:
    """Of every agent of the ring, as long as the test lasts."""
    made, before = HookFolder(tmp_path), dict(one_ring.recipes)
    agents = [name for name in before if name.startswith("agent-")]
    for name in agents:
        environment = {**before[name].environment, "DRYDOCK_HOOKS_DIR": str(made.root)}
        one_ring.recipes[name] = replace(before[name], environment=environment)
    one_ring.kill(*agents)
    yield made
    one_ring.kill(*agents)
    one_ring.recipes.update(before)


def test_a_drill_goes_round_and_never_reaches_the_metadata_service(hooks: HookFolder, it: Ring, tmp_path: Path) -> None:
    hooks.add("prepare", "10-a", f'echo "$DRYDOCK_DRILL" >> "{tmp_path}/told"')
    hooks.add("recover", "10-b", f'echo "$DRYDOCK_DRILL" >> "{tmp_path}/told"')
    before = len(it.simulator.log())
    set_id = it.get("sets/")["results"][0]["id"]
    wish = {"set": set_id, "type": "Reboot", "machines": ["WestNO_1"], "notice_seconds": 300, "duration_seconds": 3}
    answer = it.call("POST", "drills/", json={**wish, "comment": "as in earnest"})
    assert answer.status_code == 201, answer.text
    drill = answer.json()["drill"]
    event_id = drill["event_id"]

    it.seen_by(event_id, 3)
    prepared = wait_for(
        lambda: it.event(event_id)["hit"][0]["prepared"] == "prepared", seconds=20, what="its hooks have prepared"
    )
    assert prepared
    approval = it.approve(event_id)
    it.event_when(event_id, "ENDED", seconds=40)
    approval = it.approval_when(approval["id"], "CONFIRMED")
    (order,) = approval["orders"]
    assert (order["machine"]["resource_name"], order["azure_status"]) == ("WestNO_1", 200)

    def over() -> Any:
        report = it.get(f"drills/{drill['id']}/")
        return report if report["drill"]["closed_at"] else None

    report = wait_for(over, seconds=40, what="the drill is over")
    assert (report["drill"]["outcome"], report["drill"]["reason"]) == (
        "completed", "The event was approved, started and ended.",
    )  # fmt: skip
    assert all(machine["took_part"] for machine in report["machines"])
    for machine in report["machines"]:
        labels = {step["label"] for step in machine["steps"]}
        assert {"Order received", "Announced", "Event started", "Event ended"} <= labels
        hit = machine["machine"]["resource_name"] == "WestNO_1"
        assert hit == ("Prepare hooks ended" in labels) == ("Recover hooks ended" in labels)

    # Only the machine that the drill named ran hooks, both times told that it is one.
    assert hooks.lines() == [f"prepare 10-a {event_id}", f"recover 10-b {event_id}"]
    assert (tmp_path / "told").read_text() == "1\n1\n"
    timeline = it.get(f"events/{event_id}/timeline/?page_size=200")["results"]
    assert timeline and all(line["text"].startswith("Drill: ") for line in timeline)

    # The proof: while all that happened, nothing but polls reached the metadata service, and none named the drill.
    during = it.simulator.log()[before:]
    assert len(during) > 3, "the agents continued polling"
    assert {line["method"] for line in during} == {"GET"}
    assert "drill" not in json.dumps(during).lower()
    assert it.starts() == []


def test_an_approval_makes_all_affected_machines_prepare_before_the_start(hooks: HookFolder, it: Ring) -> None:
    hooks.add("prepare", "10-a", 'echo "late $DRYDOCK_LATE $DRYDOCK_RESOURCE_NAME"')
    event_id = it.simulator.events.create(**{**MIGRATION, "notice_seconds": 7200})

    it.seen_by(event_id, 3)
    wait_for(
        lambda: {machine["prepared"] for machine in it.event(event_id)["hit"]} == {"planned"},
        seconds=40, what="both machines plan to prepare",
    )  # fmt: skip
    assert hooks.lines() == []
    answer = it.call("POST", f"events/{event_id}/approvals/", json={"comment": "agreed", "when": "prepared"})
    assert answer.status_code == 201, answer.text
    it.approval_when(answer.json()["id"], "CONFIRMED")
    assert hooks.lines() == [f"prepare 10-a {event_id}"] * 2
    timeline = it.get(f"events/{event_id}/timeline/?page_size=200")["results"]
    kinds = [line["kind"] for line in sorted(timeline, key=lambda line: line["at"])]
    assert "hook_late" not in kinds and kinds.count("hooks_planned") == 2
    started = kinds.index("event_started")
    assert kinds[:started].count("hooks_ended") == 2, "both were prepared before Azure began"
    assert len(it.starts()) == 1
