"""The way of polling that Microsoft's page shows works against the simulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conformance.conftest import OnAzure, environment
from tests.processes import running, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time, pytest.mark.long]

POLLER = Path(__file__).with_name("documented_poller.py")


def test_it_approves_users_events_and_short_freezes_and_leaves_the_rest(on_azure: OnAzure, tmp_path: Path) -> None:
    wishes = {
        "a user's restart": {"type": "Reboot", "source": "User"},
        "a short freeze": {"type": "Freeze", "duration_seconds": 8},
        "a freeze without interruption": {"type": "Freeze", "duration_seconds": 0},
        "a long freeze": {"type": "Freeze", "duration_seconds": 9},
        "a freeze of unknown length": {"type": "Freeze", "duration_seconds": -1},
        "Azure's own reboot": {"type": "Reboot"},
        "a hardware failure": {"type": "Reboot", "starts_as": "Started"},
    }
    events = {words: on_azure.create(started_seconds=600, **wish) for words, wish in wishes.items()}
    command = on_azure.namespace.command(sys.executable, str(POLLER), "2")
    with running(command, environment=environment(), log=tmp_path / "poller.log") as poller:
        wait_for(lambda: poller.child.poll() is not None, seconds=30, what="two documents were handled")
    first, second = (json.loads(line) for line in poller.said().splitlines())
    assert {words: first["done"][event_id] for words, event_id in events.items()} == {
        "a user's restart": "approved 200",
        "a short freeze": "approved 200",
        "a freeze without interruption": "approved 200",
        "a long freeze": "left",
        "a freeze of unknown length": "left",
        "Azure's own reboot": "left",
        "a hardware failure": "noted",
    }
    assert second["incarnation"] > first["incarnation"]
    assert second["done"][events["a user's restart"]] == "noted", "it has started by then"
    by = {words: on_azure.event(event_id)["started_by"] for words, event_id in events.items()}
    assert [words for words, started_by in by.items() if started_by == "approval"] == [
        "a user's restart",
        "a short freeze",
        "a freeze without interruption",
    ]
