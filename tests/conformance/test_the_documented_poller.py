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
    # What each event is, what the poller does about it, and what starts it.
    wishes = {
        "a user's restart": ({"type": "Reboot", "source": "User"}, "approved 200"),
        "a short freeze": ({"type": "Freeze", "duration_seconds": 8}, "approved 200"),
        "a freeze without interruption": ({"type": "Freeze", "duration_seconds": 0}, "approved 200"),
        "a long freeze": ({"type": "Freeze", "duration_seconds": 9}, "left"),
        "a freeze of unknown length": ({"type": "Freeze", "duration_seconds": -1}, "left"),
        "Azure's own reboot": ({"type": "Reboot"}, "left"),
        "a hardware failure": ({"type": "Reboot", "starts_as": "Started"}, "noted"),
    }
    events = {words: on_azure.create(started_seconds=600, **wish) for words, (wish, _) in wishes.items()}
    command = on_azure.namespace.command(sys.executable, str(POLLER), "2")
    with running(command, environment=environment(), log=tmp_path / "poller.log") as poller:
        wait_for(lambda: poller.child.poll() is not None, seconds=30, what="two documents were handled")
    first, second = (json.loads(line) for line in poller.said().splitlines())
    for words, (_, done) in wishes.items():
        assert first["done"][events[words]] == done, words
        assert (on_azure.event(events[words])["started_by"] == "approval") == (done == "approved 200"), words
    assert second["incarnation"] > first["incarnation"]
    assert second["done"][events["a user's restart"]] == "noted", "it has started by then"
