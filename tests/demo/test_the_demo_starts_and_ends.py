"""`make demo`, as a visitor starts it; `make` itself is left out only where it would install.

The demo is a process of its own, on free ports, with one folder. It takes long to start, so tests share it until one of
them ends it.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from fleet.embedded.folder import is_running
from tests.processes import PYTHON, ROOT, Process, answers, free_port, running, start, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

FLEET = json.loads((ROOT / "agents" / "azure_simulator" / "demo_fleet.json").read_text())
MACHINES = sum(len(each["machines"]) for each in FLEET["sets"])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    # As for a visitor: the demo brings its own servers and its own key.
    own = dict.fromkeys(("DATABASE_URL", "REDIS_URL", "SECRET_KEY"), "")
    ports = {name: str(free_port()) for name in ("PORT", "SIMULATOR_PORT")}
    return {**own, **ports, "DEMO_DIR": str(tmp_path_factory.mktemp("demo")), "DEMO_STORY": "off"}


@pytest.fixture(scope="module")
def demos(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Process]]:
    """The demo that runs, or a new one on the same folder where it has ended."""
    processes: list[Process] = []

    def running() -> Process:
        if not processes or processes[-1].child.poll() is not None:
            log = tmp_path_factory.mktemp("log") / "demo.log"
            processes.append(start([PYTHON, "manage.py", "demo"], environment=environment, log=log))
            process = processes[-1]
            wait_for(lambda: says_how_to_sign_in(process), seconds=180, what="a demo that answers", every=0.2)
        return processes[-1]

    yield running
    for process in processes:
        process.kill()


@pytest.fixture
def demo(demos: Callable[[], Process]) -> Process:
    return demos()


def says_how_to_sign_in(process: Process) -> bool:
    assert process.child.poll() is None, process.said()
    return "Ctrl-C ends it" in process.said()


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child} | descendants(child)
    return found


def test_sigterm_ends_everything_within_seconds_and_quietly(demo: Process, environment: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{environment['PORT']}"
    path = Path(environment["DEMO_DIR"], "credentials.json")
    credentials = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(credentials) == {"url", "simulator_url", "inbox", "approver", "operator", "viewer", "admin"}
    assert credentials["url"] == url
    for group in ("approver", "operator", "viewer", "admin"):
        assert set(credentials[group]) == {"username", "password", "token"}
    token = {"Authorization": f"Bearer {credentials['operator']['token']}"}
    found = requests.get(f"{url}/api/v1/machines/", headers=token, timeout=30).json()["results"]
    assert sorted(machine["presence"] for machine in found) == ["live"] * MACHINES
    sets = requests.get(f"{url}/api/v1/sets/", headers=token, timeout=30).json()["results"]
    assert {(each["kind"], each["name"]) for each in sets} == {
        ("availability_set", "web"),
        ("scale_set", "workers"),
        ("cloud_service", "legacy"),
        ("standalone", "jumpbox"),
    }

    others = descendants(demo.pid)
    assert len(others) > MACHINES + 5
    # One to three seconds where nothing else runs.
    assert demo.stop(seconds=15) == 0
    assert demo.said().rstrip().endswith("Ended.")
    # It is there while everything answers.
    assert not path.exists()
    assert not [pid for pid in others if is_running(pid)]


def test_processes_and_servers_that_die_restart_and_the_demo_continues(
    demo: Process, environment: dict[str, str]
) -> None:
    for pid in descendants(demo.pid):
        # A command that was just run may have ended meanwhile.
        with suppress(FileNotFoundError):
            if b"granian" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "web ended by itself (SIGKILL)" in demo.said(), seconds=30, what="a word about it")
    folder = Path(environment["DEMO_DIR"])
    credentials = json.loads((folder / "credentials.json").read_text())
    wait_for(lambda: answers(f"{credentials['url']}/healthz"), seconds=90, what="a web server again")
    servers = folder / "servers"
    pid_files = [servers / "postgres" / "postmaster.pid", *servers.rglob("valkey.pid")]
    assert len(pid_files) > 2
    for path in pid_files:
        os.kill(int(path.read_text().split()[0]), signal.SIGKILL)
    restarts = "it was started again on its data."
    wait_for(
        lambda: demo.said().count(restarts) == len(pid_files), seconds=60, what="a word about each server", every=0.2
    )
    wait_for(lambda: answers(f"{credentials['url']}/readyz"), seconds=60, what="a web server", every=0.2)
    announced = {"set": "web", "type": "Reboot", "resources": ["web-vm1"], "notice_seconds": 600}
    answer = requests.post(f"{credentials['simulator_url']}/control/events", json=announced, timeout=30)
    event = f"{credentials['url']}/api/v1/events/{answer.json()['EventId']}/"
    headers = {"Authorization": f"Bearer {credentials['operator']['token']}"}

    def seen() -> bool:
        with suppress(requests.RequestException):
            return requests.get(event, headers=headers, timeout=30).status_code == 200
        return False

    wait_for(seen, seconds=60, what="the event that was announced since", every=0.5)


def test_it_starts_again_on_its_data_and_kill_9_leaves_nothing(demo: Process, environment: dict[str, str]) -> None:
    credentials = json.loads(Path(environment["DEMO_DIR"], "credentials.json").read_text())
    assert credentials["operator"]["password"] in demo.said()
    others = descendants(demo.pid)
    os.kill(demo.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, others)), seconds=20, what="the end of every process")


def test_nothing_is_written_for_others_before_everything_answers(environment: dict[str, str], tmp_path: Path) -> None:
    path = Path(environment["DEMO_DIR"], "credentials.json")
    path.write_text(Path(environment["DEMO_DIR"], "people.json").read_text())
    demo = start([PYTHON, "manage.py", "demo"], environment=environment, log=tmp_path / "log")
    try:
        # What an earlier start has left is gone at once, and comes back with what to sign in with.
        wait_for(lambda: "Starting Drydock" in demo.said(), seconds=60, what="a demo that starts")
        wait_for(lambda: not path.exists(), seconds=20, what="the end of the old file")
        wait_for(path.exists, seconds=120, what="a new file", every=0.01)
        url = f"http://127.0.0.1:{environment['PORT']}"
        assert answers(f"{url}/readyz")
        token = {"Authorization": f"Bearer {json.loads(path.read_text())['viewer']['token']}"}
        found = requests.get(f"{url}/api/v1/machines/", headers=token, timeout=30).json()["results"]
        assert [machine["presence"] for machine in found] == ["live"] * MACHINES
    finally:
        demo.stop(seconds=20)


def test_a_taken_port_is_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    port = str(free_port())
    listener = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"
    with running([PYTHON, "-c", listener, port], environment={}, log=tmp_path / "listener.log"):
        time.sleep(0.3)
        demo = start([PYTHON, "manage.py", "demo"], environment={**environment, "PORT": port}, log=tmp_path / "log")
        assert demo.child.wait(30) == 1
        sentence = f"CommandError: Port {port} is not to be had (Address already in use); choose another with PORT=."
        assert demo.said().strip() == sentence
