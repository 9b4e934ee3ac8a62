"""Cache hooks: the agent runs the owner's programs for lines of a real server and for changes of the connection."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.redis.hooks import CONNECTION_LOST, CONNECTION_RESTORED
from drydock_agent.spool.store import Spool

from tests.agent.machine_hooks import HookFolder, alive
from tests.agent.redis.conftest import HOST, Hooked, cache_at
from tests.agent.redis.servers import CacheServer
from tests.processes import ROOT, wait_for

pytestmark = pytest.mark.real_time

PAGE = (ROOT / "docs" / "admin" / "redis.md").read_text(encoding="utf-8")
STARTING = (
    "NotificationType|NodeMaintenanceStarting|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000"
    "|NonSSLPort|13000|StartTimeInUTC|2021-10-20T16:34:56"
)

Start = Callable[..., Hooked]


@pytest.fixture
def hooked(spool: Spool, hooks: HookFolder, server: CacheServer) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(**more: float) -> Hooked:
            made = Hooked(spool, cache_at(server.port), hooks.root, **more)
            stack.callback(made.stop)
            made.listening.until("subscribed")
            return made

        yield start


def add(hooks: HookFolder, name: str, script: str = "", *, mode: int = 0o755) -> Path:
    """A hook that writes the type into `ran`, then does what its script says."""
    note = f'echo "{name} $DRYDOCK_NOTIFICATION_TYPE" >> "{hooks.ran}"'
    return hooks.add("redis", name, f"{note}\n{script}", mode=mode)


def ran(hooks: HookFolder, count: int) -> list[str]:
    """So many runs, in order."""

    def enough() -> list[str] | None:
        lines = [line for line in hooks.lines() if not line.startswith("redis ")]
        return lines if len(lines) >= count else None

    return wait_for(enough, seconds=10, what=f"{count} hooks")


def reports(made: Hooked, count: int) -> list[dict[str, Any]]:
    """What the spool holds about hooks, once there are so many."""

    def enough() -> list[dict[str, Any]] | None:
        found = made.listening.reports(wire.REDIS_HOOK)
        return found if len(found) >= count else None

    return wait_for(enough, seconds=10, what=f"{count} reports")


def test_each_line_runs_the_hooks_in_order(hooks: HookFolder, hooked: Start, server: CacheServer) -> None:
    add(hooks, "20-second")
    add(hooks, "10-first")
    hooked()
    server.say(STARTING)
    server.say("NotificationType|NodeMaintenanceStart")
    assert ran(hooks, 6) == [
        "10-first ConnectionRestored",
        "20-second ConnectionRestored",
        "10-first NodeMaintenanceStarting",
        "20-second NodeMaintenanceStarting",
        "10-first NodeMaintenanceStart",
        "20-second NodeMaintenanceStart",
    ]


def test_a_lost_connection_runs_them_without_any_notice(hooks: HookFolder, hooked: Start, server: CacheServer) -> None:
    add(hooks, "10-a", 'echo "$DRYDOCK_COVERAGE $DRYDOCK_REASON" > "' + str(hooks.ran) + '.$DRYDOCK_NOTIFICATION_TYPE"')
    hooked()
    ran(hooks, 1)
    server.kill_subscribers()
    assert ran(hooks, 3) == ["10-a ConnectionRestored", "10-a ConnectionLost", "10-a ConnectionRestored"]
    assert Path(f"{hooks.ran}.{CONNECTION_LOST}").read_text().startswith("lost ")
    assert Path(f"{hooks.ran}.{CONNECTION_RESTORED}").read_text() == "subscribed \n"


def test_a_hook_gets_the_line_as_variables_and_as_json(
    hooks: HookFolder, hooked: Start, server: CacheServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRYDOCK_JOIN_TOKEN", "secret")
    out = hooks.root.parent / "given"
    add(
        hooks,
        "10-a",
        f'test "$DRYDOCK_RAW" || exit 0; env | grep ^DRYDOCK_ | sort > {out}; cat > {out}.json; touch {out}.done',
    )
    hooked()
    server.say(STARTING)
    wait_for(Path(f"{out}.done").exists, seconds=10, what="the hook")
    variables = dict(line.split("=", 1) for line in out.read_text().splitlines())
    run, age, heard = (variables.pop(f"DRYDOCK_{name}") for name in ("RUN", "AGE_SECONDS", "HEARD_AT"))
    assert run and float(age) < 5
    assert variables == {
        "DRYDOCK_PHASE": "redis",
        "DRYDOCK_CACHE": HOST,
        "DRYDOCK_CACHE_TIER": "premium",
        "DRYDOCK_NOTIFICATION_TYPE": "NodeMaintenanceStarting",
        "DRYDOCK_START_TIME": "2021-10-20T16:34:56",
        "DRYDOCK_IS_REPLICA": "0",
        "DRYDOCK_IP_ADDRESS": "52.158.249.185",
        "DRYDOCK_SSL_PORT": "15000",
        "DRYDOCK_NON_SSL_PORT": "13000",
        "DRYDOCK_RAW": STARTING,
        "DRYDOCK_COVERAGE": "",
        "DRYDOCK_REASON": "",
        "DRYDOCK_RESOURCE_NAME": "web-vm1",
        "DRYDOCK_MACHINE_ID": "00000000-0000-4000-8000-000000000001",
        "DRYDOCK_HOOK_TIMEOUT_SECONDS": "10",
    }
    described = re.findall(r"^\| `(DRYDOCK_\w+)` \| (?!when \|)", PAGE, re.MULTILINE)
    assert sorted(described) == sorted([*variables, "DRYDOCK_RUN", "DRYDOCK_AGE_SECONDS", "DRYDOCK_HEARD_AT"])
    said = json.loads(Path(f"{out}.json").read_text())
    assert said == {
        "Cache": HOST,
        "NotificationType": "NodeMaintenanceStarting",
        "StartTimeInUTC": "2021-10-20T16:34:56",
        "IsReplica": False,
        "IPAddress": "52.158.249.185",
        "SSLPort": 15000,
        "NonSSLPort": 13000,
        "HeardAt": heard,
        "Raw": STARTING,
        "Coverage": None,
        "Reason": None,
    }
    assert all(f"`{name}`" in PAGE for name in said)


def test_one_that_fails_or_takes_too_long_keeps_no_other_from_running(
    hooks: HookFolder, hooked: Start, caplog: pytest.LogCaptureFixture
) -> None:
    add(hooks, "10-fails", "echo no luck; exit 3")
    add(hooks, "20-hangs", "sleep 60")
    add(hooks, "30-good")
    made = hooked(timeout=0.5)
    assert ran(hooks, 3)[2] == "30-good ConnectionRestored"
    wait_for(lambda: made.hooks.outcomes.total() == 3, seconds=5, what="all have ended")
    assert made.hooks.outcomes == {"failed": 1, "timed-out": 1, "succeeded": 1}
    assert any("10-fails failed" in line and "no luck" in line for line in caplog.messages)


def test_a_hook_that_hangs_keeps_no_line_waiting(hooks: HookFolder, hooked: Start, server: CacheServer) -> None:
    add(hooks, "10-hangs", "sleep 60")
    made = hooked()
    for _ in range(5):
        server.say(STARTING)
    assert made.listening.heard(5, seconds=3) == [STARTING] * 5


def test_a_hook_that_others_may_write_is_refused(hooks: HookFolder, hooked: Start) -> None:
    add(hooks, "10-open", mode=0o777)
    made = hooked()
    wait_for(lambda: made.hooks.outcomes.total() == 1, seconds=5, what="the refusal")
    assert hooks.lines() == [] and made.hooks.outcomes == {"failed": 1}


def test_the_stop_ends_a_hook_and_the_next_agent_what_was_left_over(hooks: HookFolder, hooked: Start) -> None:
    pid = hooks.root.parent / "pid"
    add(hooks, "10-a", f"test -e {pid} || {{ echo $$ > {pid}; exec sleep 60; }}")
    made = hooked()
    wait_for(lambda: pid.exists() and pid.read_text().strip() != "", seconds=5, what="the hook runs")
    made.listening.stop()
    made.hooks.interrupt()
    wait_for(lambda: not alive(pid), seconds=5, what="its end")
    (report,) = reports(made, 1)
    assert (report["hook"], report["outcome"]) == ("10-a", "failed")
    assert report["output"] == "The agent stopped while 10-a ran; it is not run again."


def test_how_each_hook_ended_is_reported_with_what_it_printed(
    hooks: HookFolder, hooked: Start, server: CacheServer
) -> None:
    add(hooks, "10-talks", "head -c 5000 /dev/zero | tr '\\0' x; echo end")
    add(hooks, "20-fails", "echo no luck; exit 3")
    add(hooks, "30-hangs", "sleep 60")
    made = hooked(timeout=0.5)
    server.say(STARTING)
    found = reports(made, 6)
    assert [(each["hook"], each["notification_type"], each["outcome"], each["exit_status"]) for each in found] == [
        (hook, kind, outcome, status)
        for kind in (CONNECTION_RESTORED, "NodeMaintenanceStarting")
        for hook, outcome, status in (
            ("10-talks", "succeeded", 0),
            ("20-fails", "failed", 3),
            ("30-hangs", "timed-out", None),
        )
    ]
    talks, fails, hangs = found[:3]
    assert talks["cache"] == HOST and talks["output"] == "x" * 3996 + "end\n"
    assert fails["output"] == "no luck\n" and 0 <= fails["seconds"] < 0.5 <= hangs["seconds"]


def test_a_refused_file_is_reported_once_until_it_changes(
    hooks: HookFolder, hooked: Start, server: CacheServer
) -> None:
    path = add(hooks, "10-open", mode=0o777)
    add(hooks, "20-good")
    made = hooked()
    server.say(STARTING)
    found = reports(made, 3)
    assert [(each["hook"], each["outcome"], each["seconds"] is None) for each in found] == [
        ("10-open", "failed", True),
        ("20-good", "succeeded", False),
        ("20-good", "succeeded", False),
    ]
    assert found[0]["output"] == "10-open is not run: it can be written by everybody."
    path.chmod(0o755)
    server.say("NotificationType|NodeMaintenanceStart")
    assert [each["outcome"] for each in reports(made, 5)[3:]] == ["succeeded", "succeeded"]
    path.chmod(0o777)
    server.say("NotificationType|NodeMaintenanceEnded")
    assert [(each["hook"], each["outcome"]) for each in reports(made, 7)[5:]] == [
        ("10-open", "failed"),
        ("20-good", "succeeded"),
    ]


def test_a_refused_folder_is_reported_once(hooks: HookFolder, hooked: Start, server: CacheServer) -> None:
    folder = add(hooks, "10-a").parent
    folder.chmod(0o777)
    made = hooked()
    server.say(STARTING)
    wait_for(lambda: made.hooks.outcomes.total() == 2, seconds=5, what="both refusals")
    folder.chmod(0o755)
    server.say("NotificationType|NodeMaintenanceStart")
    refused, ran_then = reports(made, 2)
    assert (refused["hook"], refused["outcome"]) == ("", "failed")
    assert refused["output"] == f"Nothing in {folder} is run: {folder} can be written by everybody."
    assert (ran_then["hook"], ran_then["outcome"]) == ("10-a", "succeeded")


def test_without_a_folder_nothing_runs(hooked: Start, server: CacheServer) -> None:
    made = hooked()
    server.say(STARTING)
    made.listening.heard(1)
    assert made.hooks.outcomes.total() == 0
