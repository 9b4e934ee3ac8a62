"""Cache hooks: the agent runs the owner's programs for lines of a real server and for changes of the connection."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.redis.hooks import CONNECTION_LOST, CONNECTION_RESTORED
from drydock_agent.spool.store import Spool

from tests.agent.agents import HookFolder, alive
from tests.agent.redis.conftest import HOST, CacheServer, Hooked, at_least, cache_at
from tests.processes import ROOT, wait_for

pytestmark = pytest.mark.real_time

PAGE = (ROOT / "docs" / "admin" / "redis.md").read_text(encoding="utf-8")
STARTING = (
    "NotificationType|NodeMaintenanceStarting|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000"
    "|NonSSLPort|13000|StartTimeInUTC|2021-10-20T16:34:56"
)


class HookStage:
    """A cache's server, and an agent that listens to it and runs the hooks of a folder."""

    def __init__(self, spool: Spool, hooks: HookFolder, server: CacheServer) -> None:
        self.spool = spool
        self.hooks = hooks
        self.server = server

    def start(self, **more: float) -> Hooked:
        self.agent = Hooked(self.spool, cache_at(self.server.port), self.hooks.root, **more)
        self.agent.listening.until("subscribed")
        return self.agent

    def add(self, name: str, script: str = "", *, mode: int = 0o755) -> Path:
        """A hook that writes the type into `ran`, then does what its script says."""
        note = f'echo "{name} $DRYDOCK_NOTIFICATION_TYPE" >> "{self.hooks.ran}"'
        return self.hooks.add("redis", name, f"{note}\n{script}", mode=mode)

    def ran(self, count: int) -> list[str]:
        """So many runs, in order."""
        return at_least(count, lambda: [line for line in self.hooks.lines() if not line.startswith("redis ")])

    def reports(self, count: int) -> list[dict[str, Any]]:
        """What the spool holds about hooks, once there are so many."""
        return at_least(count, lambda: self.agent.listening.reports(wire.REDIS_HOOK))


@pytest.fixture
def stage(spool: Spool, hooks: HookFolder, server: CacheServer) -> Iterator[HookStage]:
    stage = HookStage(spool, hooks, server)
    yield stage
    stage.agent.stop()


def test_lines_and_lost_connections_run_the_hooks_in_order(stage: HookStage) -> None:
    stage.add("20-second", f'echo "$DRYDOCK_COVERAGE $DRYDOCK_REASON" > "{stage.hooks.ran}.$DRYDOCK_NOTIFICATION_TYPE"')
    stage.add("10-first")
    stage.start()
    stage.server.say(STARTING, "NotificationType|NodeMaintenanceStart")
    stage.ran(6)
    stage.server.kill_subscribers()
    lines = (CONNECTION_RESTORED, "NodeMaintenanceStarting", "NodeMaintenanceStart")
    kinds = (*lines, CONNECTION_LOST, CONNECTION_RESTORED)
    assert stage.ran(10) == [f"{name} {kind}" for kind in kinds for name in ("10-first", "20-second")]
    assert Path(f"{stage.hooks.ran}.{CONNECTION_LOST}").read_text().startswith("lost ")
    assert Path(f"{stage.hooks.ran}.{CONNECTION_RESTORED}").read_text() == "subscribed \n"


def test_a_hook_gets_the_line_as_variables_and_as_json(stage: HookStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_JOIN_TOKEN", "secret")
    out = stage.hooks.root.parent / "given"
    stage.add(
        "10-a",
        f'test "$DRYDOCK_RAW" || exit 0; env | grep ^DRYDOCK_ | sort > {out}; cat > {out}.json; touch {out}.done',
    )
    stage.start()
    stage.server.say(STARTING)
    wait_for(Path(f"{out}.done").exists, seconds=10, what="the hook")
    variables = dict(line.split("=", 1) for line in out.read_text().splitlines())
    run, age, heard = (variables.pop(f"DRYDOCK_{name}") for name in ("RUN", "AGE_SECONDS", "HEARD_AT"))
    assert run and float(age) < 5
    event = {"NOTIFICATION_TYPE": "NodeMaintenanceStarting", "START_TIME": "2021-10-20T16:34:56", "IS_REPLICA": "0"}
    event |= {"IP_ADDRESS": "52.158.249.185", "SSL_PORT": "15000", "NON_SSL_PORT": "13000", "RAW": STARTING}
    expected = {"PHASE": "redis", "CACHE": HOST, "CACHE_TIER": "premium", **event, "COVERAGE": "", "REASON": ""}
    expected |= {"RESOURCE_NAME": "web-vm1", "HOOK_TIMEOUT_SECONDS": "10"}
    expected["MACHINE_ID"] = "00000000-0000-4000-8000-000000000001"
    assert variables == {f"DRYDOCK_{name}": value for name, value in expected.items()}
    described = re.findall(r"^\| `(DRYDOCK_\w+)` \| (?!when \|)", PAGE, re.MULTILINE)
    assert sorted(described) == sorted([*variables, "DRYDOCK_RUN", "DRYDOCK_AGE_SECONDS", "DRYDOCK_HEARD_AT"])
    content = json.loads(Path(f"{out}.json").read_text())
    named: dict[str, Any] = {"Cache": HOST, "NotificationType": "NodeMaintenanceStarting"}
    named |= {"StartTimeInUTC": "2021-10-20T16:34:56"}
    named |= {"IsReplica": False, "IPAddress": "52.158.249.185", "SSLPort": 15000, "NonSSLPort": 13000}
    assert content == named | {"HeardAt": heard, "Raw": STARTING, "Coverage": None, "Reason": None}
    assert all(f"`{name}`" in PAGE for name in content)


def test_a_hook_that_hangs_keeps_no_line_waiting_and_ends_with_the_agent(stage: HookStage) -> None:
    pid = stage.hooks.root.parent / "pid"
    stage.add("10-a", f"test -e {pid} || {{ echo $$ > {pid}; exec sleep 60; }}")
    agent = stage.start()
    wait_for(lambda: pid.exists() and pid.read_text().strip() != "", seconds=5, what="the hook runs")
    for _ in range(5):
        stage.server.say(STARTING)
    assert agent.listening.heard(5, seconds=3) == [STARTING] * 5
    agent.listening.stop()
    agent.hooks.interrupt()
    wait_for(lambda: not alive(pid), seconds=5, what="its end")
    report = stage.reports(1)[0]
    assert (report["hook"], report["outcome"]) == ("10-a", "failed")
    assert report["output"] == "The agent stopped while 10-a ran; it is not run again."


def test_each_result_is_reported_and_stops_no_other_hook(stage: HookStage, caplog: pytest.LogCaptureFixture) -> None:
    stage.add("10-talks", "head -c 5000 /dev/zero | tr '\\0' x; echo end")
    stage.add("20-fails", "echo no luck; exit 3")
    stage.add("30-hangs", "sleep 60")
    stage.add("40-good")
    agent = stage.start(timeout=0.5)
    stage.server.say(STARTING)
    ended = stage.reports(8)
    names = ("hook", "notification_type", "outcome", "exit_status")
    assert [tuple(report[name] for name in names) for report in ended] == [
        (hook, kind, outcome, status)
        for kind in (CONNECTION_RESTORED, "NodeMaintenanceStarting")
        for hook, outcome, status in (
            ("10-talks", "succeeded", 0),
            ("20-fails", "failed", 3),
            ("30-hangs", "timed-out", None),
            ("40-good", "succeeded", 0),
        )
    ]
    talks, fails, hangs, _ = ended[:4]
    assert talks["cache"] == HOST and talks["output"] == "x" * 3996 + "end\n"
    assert fails["output"] == "no luck\n" and 0 <= fails["seconds"] < 0.5 <= hangs["seconds"]
    assert agent.hooks.outcomes == {"failed": 2, "timed-out": 2, "succeeded": 4}
    assert any("20-fails failed" in line and "no luck" in line for line in caplog.messages)


def test_a_refused_file_or_folder_is_reported_once_until_it_changes(stage: HookStage) -> None:
    agent = stage.start()
    stage.server.say(STARTING)
    agent.listening.heard(1)
    wait_for(lambda: not agent.hooks._triggers, seconds=5, what="the hooks of both")
    assert agent.hooks.outcomes.total() == 0, "without a folder nothing runs"
    path = stage.add("10-open", mode=0o777)
    stage.add("20-good")
    stage.server.say(STARTING)
    refused, good = stage.reports(2)
    assert (refused["hook"], refused["outcome"], refused["seconds"]) == ("10-open", "failed", None)
    assert refused["output"] == "10-open is not run: it can be written by everybody."
    assert (good["hook"], good["outcome"]) == ("20-good", "succeeded")
    stage.server.say(STARTING)
    assert [report["hook"] for report in stage.reports(3)[2:]] == ["20-good"]
    path.chmod(0o755)
    stage.server.say("NotificationType|NodeMaintenanceStart")
    assert [report["outcome"] for report in stage.reports(5)[3:]] == ["succeeded", "succeeded"]
    path.chmod(0o777)
    stage.server.say("NotificationType|NodeMaintenanceEnded")
    assert [report["outcome"] for report in stage.reports(7)[5:]] == ["failed", "succeeded"]
    path.parent.chmod(0o777)
    stage.server.say(STARTING, STARTING)
    wait_for(lambda: agent.hooks.outcomes["failed"] == 5, seconds=5, what="both refusals")
    path.parent.chmod(0o755)
    stage.server.say("NotificationType|NodeMaintenanceStart")
    folder, *_ = stage.reports(9)[7:]
    assert (folder["hook"], folder["outcome"]) == ("", "failed")
    assert folder["output"] == f"Nothing in {path.parent} is run: {path.parent} can be written by everybody."
