"""State folders across releases: an agent continues with that of the release before, and that release with its own.

The recorded folder is that of an agent that was killed while the backend was unavailable. Its prepare hook and one
order were done, three reports waited, and it listened to a cache.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire

from tests.agent.agents import FLEET, VM_IDS, Agents
from tests.agent.conftest import agents as agents  # noqa: PLC0414 - a fixture
from tests.agent.conftest import fleet as fleet  # noqa: PLC0414 - a fixture
from tests.agent.fleet_double import FleetDouble, eventually
from tests.upgrades.recorded import FOLDER

SPOOL = "344a7823-880c-406a-b784-96b5fdd486b7"
CACHE = "shop.redis.cache.windows.net"
EVENT = "A123BC45-1234-5678-AB90-ABCDEF123456"

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with RunningSimulator(FLEET) as simulator:
        yield simulator


def restored(folder: Path) -> Path:
    """The state folder of then."""
    folder.mkdir()
    shutil.copy(FOLDER / "credential.json", folder)
    with closing(sqlite3.connect(folder / "spool.sqlite3")) as db:
        db.executescript((FOLDER / "spool.sql").read_text("utf-8"))
    return folder


def kept(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What a spool remembers (JSON read, as far as it is), and its tables."""
    with closing(sqlite3.connect(folder / "spool.sqlite3")) as db:
        meta = db.execute("SELECT * FROM meta").fetchall()
        tables = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        read = {key: json.loads(value) if value[:1] == "{" else value for key, value in meta}
        return read, [" ".join(sql.split()) for (sql,) in tables]


def at_work(agents: Agents, fleet: FleetDouble) -> Path:
    folder = restored(agents.folder / "state")
    fleet.credentials["credential-1"] = VM_IDS["web-vm1"]
    fleet.acknowledged[SPOOL] = 8
    agents.run(DRYDOCK_REDIS_CACHES=f"redis://{CACHE}?connect=127.0.0.1:1&tls=false&tier=premium")
    return folder


def test_what_waited_is_sent_and_done_once(agents: Agents, simulator: RunningSimulator, fleet: FleetDouble) -> None:
    before = len(simulator.log())
    at_work(agents, fleet)
    eventually(lambda: any(report["data"]["step"] == "end" for report in fleet.reports(wire.HOOK)))
    fleet.order(VM_IDS["web-vm1"], EVENT)
    [receipt] = eventually(fleet.receipts)
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", 200)
    assert receipt["attempted_at"] == "2026-11-22T07:18:20.186349Z"
    assert [line for line in simulator.log()[before:] if line["method"] == "POST"] == []
    assert fleet.enrolments == [] and list(fleet.committed) == [SPOOL]
    reports = fleet.reports()
    assert [report["seq"] for report in reports] == list(range(9, 9 + len(reports)))
    assert [report["kind"] for report in reports[:3]] == [wire.DOCUMENT, wire.COVERAGE, wire.COVERAGE]
    [hook] = [report["data"] for report in fleet.reports(wire.HOOK)]
    assert (hook["event_id"], hook["phase"], hook["step"], hook["outcome"]) == (EVENT, "recover", "end", "nothing")
    gap = fleet.reports(wire.COVERAGE)[2]
    assert (gap["data"]["state"], gap["at"]) == ("lost", "2026-11-22T07:18:24.174262Z")


def test_what_it_keeps_has_the_form_that_the_release_before_reads(agents: Agents, fleet: FleetDouble) -> None:
    meta, tables = kept(restored(agents.folder / "before"))
    folder = at_work(agents, fleet)
    eventually(fleet.documents)
    agents.started[0].stop()
    now, tables_now = kept(folder)
    # That release ignores the column, and leaves it empty.
    assert [table.replace(", reading TEXT)", ")") for table in tables_now] == tables
    # It reads single keys, so it ignores the time of the last test of the disk.
    assert set(now) - {"checked_at"} == set(meta)
    assert [key for key in meta if isinstance(meta[key], dict) and not set(meta[key]) <= set(now[key])] == []
