"""`run`, `check` and `once` as processes: stopping, exit statuses and plain words."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.version import agent_version

from tests.agent.agents import VM_IDS, Agents
from tests.agent.fleet_double import FleetDouble, eventually
from tests.certificates import Authority
from tests.processes import free_port

pytestmark = pytest.mark.flow


def stopped_after(process: subprocess.Popen[bytes], number: int) -> float:
    begun = time.monotonic()
    process.send_signal(number)
    assert process.wait(10) == 0
    return time.monotonic() - begun


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("number", "fault"),
    [(signal.SIGTERM, ""), (signal.SIGINT, ""), (signal.SIGTERM, "hang"), (signal.SIGTERM, "instance-hang")],
    ids=["while a call is held", "by Ctrl-C", "while a poll hangs", "while it asks who it is"],
)
def test_it_stops_in_under_a_second(agents: Agents, number: signal.Signals, fault: str) -> None:
    path = "/metadata/instance" if fault == "instance-hang" else "/metadata/scheduledevents"

    def is_open(request: dict[str, Any]) -> bool:
        return request["status"] is None and path in request["path"]

    if fault == "instance-hang":
        agents.simulator.fault("web-vm1", fault, count=10, delay_seconds=20)
        process = agents.run()
    else:
        process = agents.at_work()
    if fault == "hang":
        agents.simulator.fault("web-vm1", fault, count=10, delay_seconds=20)
    if fault:
        eventually(lambda: [one for one in agents.simulator.log(vm="web-vm1", limit=1) if is_open(one)])
    assert stopped_after(process.child, number) < 1.0
    files = {path.name for path in (agents.folder / "state").iterdir()}
    assert files == {"ask", "credential.json", "spool.sqlite3", "vm-id"} or fault == "instance-hang"
    assert "Traceback" not in process.said() and (fault or "WARNING" not in process.said())


@pytest.mark.real_time
def test_a_held_call_does_not_stop_the_polls_nor_a_hanging_poll_the_calls(agents: Agents) -> None:
    agents.at_work()
    looks = len(agents.fleet.looks)
    event_id = agents.announce()
    agents.reported(event_id, seconds=3)
    assert len(agents.fleet.looks) == looks, "the call for orders was held all the while"
    agents.simulator.fault("web-vm1", "hang", count=1, delay_seconds=8, method="GET")
    eventually(lambda: agents.simulator.log(vm="web-vm1", limit=1)[-1]["status"] is None)
    agents.fleet.order(VM_IDS["web-vm1"], event_id)
    [receipt] = eventually(agents.fleet.receipts, seconds=3)
    assert receipt["azure_status"] == 200
    assert agents.simulator.log(vm="web-vm1", method="GET", limit=1)[-1]["status"] is None, "the poll still hangs"


@pytest.mark.real_time
def test_second_agent_on_the_same_state_folder_ends_with_an_error(agents: Agents) -> None:
    agents.at_work()
    ended = agents.command("once")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"Another agent uses the state folder {agents.folder / 'state'}."


def test_once_polls_delivers_looks_and_ends(agents: Agents) -> None:
    event_id = agents.announce()
    agents.fleet.order(VM_IDS["web-vm1"], event_id)
    ended = agents.command("once")
    assert ended.returncode == 0, ended.stderr
    assert [event["EventId"] for event in agents.fleet.documents()[0]["Events"]] == [event_id]
    assert [receipt["azure_status"] for receipt in agents.fleet.receipts()] == [200]


def test_once_says_what_went_wrong_and_does_not_guess_who_it_is(agents: Agents) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    ended = agents.command("once", DRYDOCK_IMDS_URL=nowhere)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "This machine cannot be identified: the metadata service gave no answer and DRYDOCK_MACHINE_ID is not set."
    )
    agents.simulator.fault("web-vm1", "empty", count=2, method="GET")
    ended = agents.command("once", DRYDOCK_FLEET_URL=nowhere, DRYDOCK_MACHINE_ID="m")
    assert ended.returncode == 1
    assert "The metadata service gave no document." in ended.stderr


def test_check_says_what_it_can_reach(agents: Agents) -> None:
    before = agents.command("check")
    assert before.returncode == 0, before.stdout + before.stderr
    assert "does not know this machine yet; `run` will enrol, and it would be admitted now." in before.stdout
    agents.command("once")
    after = agents.command("check")
    assert after.returncode == 0
    assert f"This is machine {VM_IDS['web-vm1']} (web-vm1)." in after.stdout
    assert "takes this machine's credential" in after.stdout and "This machine's clock is 0.0 s" in after.stdout
    assert len(agents.fleet.enrolments) == 1, "check enrols no machine"


def test_check_says_whether_the_backend_would_admit_the_machine(agents: Agents) -> None:
    refused = agents.command("check", DRYDOCK_JOIN_TOKEN="join_another")
    assert refused.returncode == 1 and "would not be admitted now: the backend answered 403" in refused.stdout
    agents.fleet.admission_pending = True
    waits = agents.command("check")
    assert waits.returncode == 1 and "until an administrator admits it" in waits.stdout
    agents.fleet.admission_pending = False
    assert agents.command("check").returncode == 0
    # Of a release that does not know the question.
    agents.fleet.statuses.append((wire.ENROL_CHECK_PATH, 404))
    assert agents.command("check").returncode == 0
    assert not agents.fleet.enrolments
    assert not list((agents.folder / "state").iterdir()), "check keeps nothing"


def test_check_says_what_it_cannot_reach(agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    nowhere = f"http://127.0.0.1:{free_port()}"
    state = {"DRYDOCK_STATE_DIR": str(tmp_path / "file" / "state")}
    ended = agents.command("check", DRYDOCK_FLEET_URL=nowhere, DRYDOCK_IMDS_URL=nowhere, **state)
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert [line.startswith("BAD ") for line in lines] == [True] * 4
    assert any(f"The backend {nowhere} cannot be reached: Connection refused." in line for line in lines)


def test_wrong_usage_ends_with_2() -> None:
    for arguments in ([], ["walk"], ["run", "fast"]):
        ended = subprocess.run([sys.executable, "-m", "drydock_agent", *arguments], capture_output=True, check=False)
        assert ended.returncode == 2 and ended.stderr.startswith(b"usage:")


def test_its_version_needs_no_setting_and_wrong_ones_end_with_2_and_one_sentence(agents: Agents) -> None:
    ended = agents.command("--version", DRYDOCK_FLEET_URL="")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{agent_version()}\n", "")
    ended = agents.command("run", DRYDOCK_POLL_SECONDS="often")
    sentence = "DRYDOCK_POLL_SECONDS must be a number of seconds, not 'often'.\n"
    assert (ended.returncode, ended.stderr) == (2, sentence)


@pytest.mark.real_time
def test_the_backends_certificate_is_checked(agents: Agents, tmp_path: Path) -> None:
    authority, no_certificate = Authority(tmp_path), tmp_path / "nothing.pem"
    no_certificate.touch()
    with FleetDouble(tls=authority.server("localhost")) as fleet:
        url = f"https://localhost:{fleet.port}"
        unknown = agents.command("once", DRYDOCK_FLEET_URL=url)
        assert unknown.returncode == 1 and "certificate verify failed" in unknown.stderr
        assert fleet.enrolments == []
        trusted = agents.command("once", DRYDOCK_FLEET_URL=url, DRYDOCK_CA_FILE=str(authority.path))
        assert trusted.returncode == 0, trusted.stderr
        agents.fleet = fleet
        process = agents.at_work(DRYDOCK_FLEET_URL=url, DRYDOCK_CA_FILE=str(authority.path))
        assert stopped_after(process.child, signal.SIGTERM) < 1.0
    ended = agents.command("once", DRYDOCK_CA_FILE=str(no_certificate))
    assert ended.returncode == 2
    assert ended.stderr == f"DRYDOCK_CA_FILE names {no_certificate}, which holds no certificates.\n"
