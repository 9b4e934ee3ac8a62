"""Events and a drill through real processes: each reaches its end, also without Celery and Redis, and is logged."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.embedded import Urls
from tests.agent.agents import HookFolder
from tests.processes import wait_for
from tests.ring.ring import MIGRATION, NAMES, Ring, ring

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


def test_the_documented_live_migration_is_announced_approved_through_celery_started_and_over(it: Ring) -> None:
    event_id = it.simulator.events.create(**MIGRATION)

    event = it.event_when(event_id, "SCHEDULED")
    assert event["resources"] == ["WestNO_0", "WestNO_1"]
    assert (event["event_type"], event["source"], event["duration_seconds"]) == ("Freeze", "Platform", 5)
    it.seen_by(event_id, 3)
    assert len(it.listed()) == 1

    approval = it.approve(event_id)
    it.event_when(event_id, "STARTED")
    it.event_when(event_id, "ENDED")
    approval = it.approval_when(approval["id"], "CONFIRMED")
    (order,) = approval["orders"]
    assert (order["state"], order["azure_status"]) == ("ANSWERED", 200)
    assert not approval["inferred"]

    (post,) = it.starts()
    assert (post["vm"], post["status"]) == ("WestNO_0", 200)
    assert json.loads(post["body"]) == {"StartRequests": [{"EventId": event_id}]}

    event = it.event(event_id)
    assert (event["ended_as"], event["certainty"], event["approved_elsewhere"]) == ("completed", "seen", False)
    kinds = [entry["kind"] for entry in it.get(f"events/{event_id}/timeline/")["results"]]
    for kind in ("event_seen", "approval_granted", "order_delivered", "order_answered", "approval_accepted",
                 "event_started", "approval_confirmed", "event_ended"):  # fmt: skip
        assert kinds.count(kind) == 1, kind
    # Each order records what delivered it.
    vias = [order["delivered_by"]]
    for _ in range(4):
        event_id = it.simulator.events.create(**{**MIGRATION, "started_seconds": 1})
        it.event_when(event_id, "SCHEDULED")
        # An agent that reports at the moment of the click takes the order along; a person decides later than that.
        it.seen_by(event_id, 3)
        approval = it.approval_when(it.approve(event_id)["id"], "CONFIRMED")
        vias += [order["delivered_by"] for order in approval["orders"]]
        # Of one set, one at a time.
        it.event_when(event_id, "ENDED")
    # Any of them may happen to pass by in the very milliseconds before the task runs.
    assert set(vias) <= {"celery", "beat", "look", "report", "ticker"}
    assert 2 * vias.count("celery") > len(vias), vias


def test_with_redis_and_celery_dead_an_approval_still_reaches_azure(own_urls: Urls, tmp_path: Path) -> None:
    with ring(own_urls, tmp_path) as it:
        # This address refuses connections: no wake-up or task is delivered, and no worker or beat runs.
        it.environment["REDIS_URL"] = "redis://127.0.0.1:1/0"
        it.start("web", *(f"agent-{name}" for name in NAMES))
        it.all_live(3)
        event_id = it.simulator.events.create(**MIGRATION)
        it.event_when(event_id, "SCHEDULED")
        approval = it.approve(event_id)
        wait_for(it.starts, seconds=10, what="StartRequests at Azure")
        approval = it.approval_when(approval["id"], "CONFIRMED")
        assert approval["orders"][0]["delivered_by"] in ("look", "report", "ticker")
        # A rule decides within ten seconds as well.
        it.event_when(event_id, "ENDED")
        rule = {"name": "freezes", "reason": "they pass", "action": "approve_now", "enabled": True}
        assert it.call("POST", "rules/", by="admin", json=rule).status_code == 201
        it.event_when(it.simulator.events.create(**MIGRATION), "SCHEDULED")
        seen = time.monotonic()
        wait_for(lambda: len(it.starts()) == 2, seconds=12, what="StartRequests for the second event")
        assert time.monotonic() - seen < 10


def test_when_the_asked_agent_is_dead_the_next_machine_asks(it: Ring) -> None:
    event_id = it.simulator.events.create(**MIGRATION)
    it.seen_by(event_id, 3)
    it.kill("agent-WestNO_0")
    approval = it.approve(event_id)
    approval = it.approval_when(approval["id"], "CONFIRMED")
    assert [order["state"] for order in approval["orders"]] == ["SUPERSEDED", "ANSWERED"]
    assert [post["vm"] for post in it.starts()] == ["WestNO_1"]


REQUEST = "deploy-7:one-decision"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FREEZE = {"set": "west", "type": "Freeze", "resources": [NAMES[0]], "notice_seconds": 895, "started_seconds": 3}


def lines(it: Ring, name: str) -> list[dict[str, Any]]:
    """Every line of a part's log, each of which has to be JSON."""
    found = [json.loads(line) for line in (it.folder / f"{name}.log").read_text().splitlines()]
    for line in found:
        assert list(line)[:4] == ["time", "level", "logger", "event"], line
    return found


def of_the_decision(it: Ring, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(it, name) if line.get("request_id") == REQUEST]


def test_one_id_leads_from_the_click_to_azure_and_back(it: Ring) -> None:
    event_id = it.simulator.events.create(**FREEZE)
    it.event_when(event_id, "SCHEDULED")
    headers = {"X-Request-ID": REQUEST, "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    answer = it.call("POST", f"events/{event_id}/approvals/", json={"comment": "agreed"}, headers=headers)
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (201, REQUEST)
    approval = it.approval_when(answer.json()["id"], "CONFIRMED")
    assert (approval["request_id"], approval["trace_id"]) == (REQUEST, TRACE)
    assert {(order["request_id"], order["trace_id"]) for order in approval["orders"]} == {(REQUEST, TRACE)}
    answered = {order["id"] for order in approval["orders"] if order["state"] == "ANSWERED"}

    def concluded() -> list[dict[str, Any]]:
        """The steps of the backend, by whichever process took them, once the last is there."""
        steps = [line for name in ("web", "worker") for line in of_the_decision(it, name) if "kind" in line]
        return steps if any(line["kind"] == "approval_confirmed" for line in steps) else []

    steps = wait_for(concluded, seconds=20, what="the last line is in the log")
    assert {"order_delivered", "order_answered", "approval_accepted"} <= {line["kind"] for line in steps}
    web = of_the_decision(it, "web")
    assert [line["event"] for line in web if line["event"] == "request"] == ["request"]
    # Logs name no person: the number leads to the name as long as it may be known.
    (by,) = [line["by"] for line in web if line["event"] == "decision"]
    assert re.fullmatch(r"person \d+", by)
    assert all(it.people["operator"]["username"] not in line.values() for line in [*web, *steps])
    assert {"approval_granted", "order_offered"} <= {line.get("kind") for line in web}
    assert {line["order"] for line in web if line["event"] == "order.handed_out"} >= answered
    tasks = [line for line in of_the_decision(it, "worker") if line["event"] == "task"]
    assert {(line["task"], line["outcome"]) for line in tasks} == {("fleet.relay.tasks.relay_approval", "success")}
    agents = [line for name in NAMES for line in of_the_decision(it, f"agent-{name}")]
    assert {line["order_id"] for line in agents} >= answered
    assert all(line["trace_id"] == TRACE for line in [*web, *steps, *tasks, *agents])


def test_every_line_of_every_process_is_json_up_to_its_end(it: Ring) -> None:
    for name in ("worker", "beat", f"agent-{NAMES[0]}"):
        assert it.processes.pop(name).stop() == 0, name
    assert any("shutdown" in line["event"].lower() for line in lines(it, "worker"))
    assert lines(it, f"agent-{NAMES[0]}")[-1]["event"] == "Stopped."
    for name in ("web", "worker", "beat", *(f"agent-{name}" for name in NAMES)):
        lines(it, name)


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
