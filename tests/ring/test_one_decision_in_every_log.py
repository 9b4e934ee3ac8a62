"""Decision ids in logs: one id appears in those of web process, worker and agent, and each line is JSON."""

import json
import re
from typing import Any

import pytest

from tests.processes import wait_for
from tests.ring.ring import NAMES, Ring

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

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
