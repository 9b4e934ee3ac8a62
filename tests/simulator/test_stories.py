"""The stories that the demo plays."""

from __future__ import annotations

import time
from pathlib import Path

import azure_simulator
import pytest
from azure_simulator.child_process import RunningSimulator
from azure_simulator.stories import STORIES

from tests.simulator.asking import Simulated

DEMO_FLEET = Path(azure_simulator.__file__).with_name("demo_fleet.json")


@pytest.mark.parametrize("story", sorted(STORIES))
def test_every_story_announces_an_event_to_one_update_domain(azure: Simulated, story: str) -> None:
    event_id = azure.control("POST", "stories", {"story": story}).json["EventId"]
    event = azure.event(event_id)
    assert event["status"] == STORIES[story].says.get("starts_as", "Scheduled")
    assert event["type"] == STORIES[story].says["type"]


def test_story_takes_a_set_and_a_time(azure: Simulated) -> None:
    body = {"story": "terminate", "set": "legacy", "notice_seconds": 5}
    event = azure.event(azure.control("POST", "stories", body).json["EventId"])
    assert (event["set"], event["not_before"]) == ("legacy", "Mon, 11 Apr 2022 22:12:03 GMT")


def test_a_cancellation_ends_without_having_started(azure: Simulated) -> None:
    event_id = azure.control("POST", "stories", {"story": "cancellation", "speed": 1000}).json["EventId"]
    deadline = time.monotonic() + 5
    while azure.event(event_id)["status"] != "Ended" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert azure.event(event_id)["ended_as"] == "cancelled"


def test_an_unknown_story_is_refused_with_the_names_of_the_others(azure: Simulated) -> None:
    answer = azure.control("POST", "stories", {"story": "fairy-tale"})
    assert answer.status == 400
    assert all(name in answer.json["error"] for name in STORIES)


def test_the_first_event_comes_within_five_seconds() -> None:
    with RunningSimulator(DEMO_FLEET, story=1) as simulator:
        deadline = time.monotonic() + 5
        while not simulator.events.all() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [event["type"] for event in simulator.events.all()] == ["Freeze"]


def test_playing_can_be_stopped_and_the_events_remain(azure: Simulated) -> None:
    azure.control("POST", "stories", {"story": "all"})
    azure.control("POST", "stories", {"story": "cancellation"})
    assert azure.control("POST", "stories", {"story": "all"}).status == 409
    assert azure.control("GET", "stories").json["playing"] == ["all", "cancellation"]
    azure.control("DELETE", "stories")
    assert azure.control("GET", "stories").json["playing"] == []
    assert len(azure.control("GET", "events").json) == 1


def test_the_demo_plays_all_stories_and_keeps_one_to_four_events_open() -> None:
    counts: list[int] = []
    wanted = {
        ("Freeze", "Platform", "not_before", "completed"),
        ("Reboot", "User", "not_before", "completed"),
        ("Reboot", "Platform", "azure", "completed"),
        ("Reboot", "Platform", "", "cancelled"),
        ("Preempt", "Platform", "not_before", "completed"),
        ("Terminate", "Platform", "not_before", "completed"),
        ("Redeploy", "Platform", "", "cancelled"),
    }
    told: set[tuple[str, ...]] = set()
    with RunningSimulator(DEMO_FLEET, story=200) as simulator:
        deadline = time.monotonic() + 40
        while not told >= wanted and time.monotonic() < deadline:
            time.sleep(0.05)
            events = simulator.events.all()
            counts += [sum(event["status"] != "Ended" for event in events)] if events else []
            told = {tuple(event[name] for name in ("type", "source", "started_by", "ended_as")) for event in events}
    assert told >= wanted
    assert max(counts) <= 4
    # A board may be bare for the moment that lies between two looks, never for long.
    assert counts.count(0) <= len(counts) // 5
