"""Restoring a backup with real agents: what they missed is reported again, and an open event stream continues."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests import restoring
from tests.gateway.test_streams import events
from tests.processes import manage, wait_for
from tests.ring.ring import NAMES, Ring, ring_of_its_own

pytestmark = [pytest.mark.flow, pytest.mark.real_time, pytest.mark.long]

BACKEND = ("web", "worker", "beat")
FREEZE = {"set": "west", "type": "Freeze", "notice_seconds": 895, "duration_seconds": 5, "started_seconds": 600}
# More than a server has seen that was just made.
TRANSACTIONS = 3000


class Stream:
    """A browser that is cut off and resumes where it was."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.last = ""

    def events(self) -> Iterator[dict[str, str]]:
        headers = {"Last-Event-ID": self.last} if self.last else {}
        with closing(self.ring.call("GET", "stream", headers=headers, stream=True, timeout=30)) as answer:
            assert answer.status_code == 200
            for event in events(answer):
                self.last = event.get("id", self.last)
                yield event

    def until(self, kind: str) -> list[str]:
        """Listen until such an entry comes; the kinds of all that came."""
        kinds: list[str] = []
        for event in self.events():
            kinds += re.findall('"kind":"([^"]+)"', event.get("data", ""))[:1]
            if kinds[-1:] == [kind]:
                return kinds
        raise AssertionError(f"no {kind} among {kinds}")


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Ring]:
    """A whole ring on a server of its own, in use for a while."""
    with ring_of_its_own(tmp_path) as ring:
        with psycopg.connect(ring.urls.database, autocommit=True) as server:
            each = "PERFORM pg_current_xact_id(); COMMIT;"
            server.execute(f"DO $$ BEGIN FOR n IN 1..{TRANSACTIONS} LOOP {each} END LOOP; END $$")
        yield ring


@contextmanager
def restored_from(how: str, folder: Path) -> Iterator[str]:
    with restoring.server() if how == "dump" else restoring.server_of_copy(folder / "copy") as url:
        yield restoring.restore_dump(folder / "drydock.dump", url) if how == "dump" else url


def back_up(how: str, it: Ring, folder: Path) -> None:
    if how == "dump":
        restoring.dump(it.urls.database, folder / "drydock.dump")
    else:
        (folder / "copy").mkdir()
        restoring.copy_files(it.urls.database, folder / "copy")


def count(url: str, kind: str) -> int:
    """Entries of this kind."""
    with psycopg.connect(url, autocommit=True) as connection:
        (found,) = connection.execute("SELECT count(*) FROM fleet_entry WHERE kind = %s", [kind]).fetchone() or (0,)
    return int(found)


@pytest.mark.parametrize("how", ["dump", "files"])
def test_restored_database_recovers_listed_events_and_continues(it: Ring, tmp_path: Path, how: str) -> None:
    stream = Stream(it)
    before = it.simulator.events.create(**{**FREEZE, "resources": [NAMES[0]]})
    it.event_when(before, "SCHEDULED")
    it.seen_by(before, 3)
    next(stream.events())
    back_up(how, it, tmp_path)

    after = it.simulator.events.create(**{**FREEZE, "resources": [NAMES[1]]})
    it.event_when(after, "SCHEDULED")
    # So the backup lacks something of each agent: one that was slow would lose nothing.
    it.seen_by(after, 3)
    approval = it.approve(before)
    it.approval_when(approval["id"], "CONFIRMED")
    stream.until("approval_confirmed")
    (post,) = it.starts()

    it.kill(*BACKEND)
    with restored_from(how, tmp_path) as restored:
        environment = {**it.environment, "DATABASE_URL": restored}
        said = manage("begin_era", "--why", "played", environment=environment)
        assert ("of a dump" in said) == (how == "dump"), said
        it.environment = environment
        it.start(*BACKEND)
        it.all_live(3)

        # What came after the backup, and what became of what was before it.
        it.event_when(after, "SCHEDULED")
        it.event_when(before, "STARTED")
        it.seen_by(after, 3)
        wait_for(lambda: count(restored, "reports_lost") == 3, seconds=60, what="each agent's loss is recorded")
        wait_for(lambda: count(restored, "late_receipt") == 1, seconds=60, what="the lost order's receipt is recorded")
        ready: dict[str, Any] = requests.get(f"{it.url}/readyz", timeout=10).json()
        assert (ready["status"], ready["era"]) == ("ok", "ok")
        it.simulator.events.complete(before)
        it.event_when(before, "ENDED")
        # Everything continues: people decide, machines call Azure, and no machine sends a StartRequest twice.
        it.approval_when(it.approve(after)["id"], "CONFIRMED")
        assert it.starts()[0]["vm"] == post["vm"]
        assert len(it.starts()) == 2
        told = stream.until("approval_confirmed")
        assert told[0] == "era_begun"
        assert "event_seen" in told
        assert stream.last.count(".") == 2
        manage("verify_audit", environment=environment)
        for name in NAMES:
            assert "Something unexpected" not in it.processes[f"agent-{name}"].said()
        it.stop()
        it.processes.clear()
