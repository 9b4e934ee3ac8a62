"""One event through real processes: it reaches its end with Celery, and without Celery and Redis."""

import json
import time
from pathlib import Path

import pytest

from fleet.embedded import Urls
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


def test_documents_of_a_backend_outage_are_not_lost(it: Ring) -> None:
    it.kill("web")
    event_id = it.simulator.events.create(**{**MIGRATION, "notice_seconds": 1, "started_seconds": 2})
    wait_for(
        lambda: it.simulator.events.get(event_id)["ended_at"], seconds=20, what="the event came and went meanwhile"
    )
    time.sleep(1.5)
    it.start("web")
    event = it.event_when(event_id, "ENDED", seconds=60)
    assert (event["ended_as"], event["started_at"] is not None) == ("completed", True)
