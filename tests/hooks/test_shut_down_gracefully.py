"""Shutting down gracefully, with a stand-in for systemctl that keeps real processes."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.conftest import Example, ExampleFactory

# A service is a process that takes its time to end and then writes its last word; `stubborn` refuses to be stopped.
SERVICE = r"""#!/bin/sh
trap 'sleep 0.2; echo "ended $1" >>log; rm "$1.pid"; exit 0' TERM
echo $$ >"$1.pid"
while :; do sleep 0.05; done
"""
SYSTEMCTL = r"""#!/bin/sh
cd "$UNITS" || exit 9
for unit; do :; done
case $1 in
is-active) [ -e "$unit.pid" ] ;;
start)
    ./service "$unit" >/dev/null 2>&1 &
    until [ -s "$unit.pid" ]; do sleep 0.02; done
    echo "started $unit" >>log ;;
stop)
    [ "$unit" = stubborn ] && exit 1
    kill "$(cat "$unit.pid")"
    while [ -e "$unit.pid" ]; do sleep 0.02; done ;;
esac
"""


@pytest.fixture
def units(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "units"
    folder.mkdir()
    (folder / "service").write_text(SERVICE)
    (folder / "service").chmod(0o755)
    yield folder
    for pid in folder.glob("*.pid"):
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def made(example: ExampleFactory, tmp_path: Path, units: Path) -> Example:
    made = example("shut-down-gracefully")
    made.replace_program(tmp_path / "bin", "systemctl", SYSTEMCTL)
    made.set(UNITS=units, SERVICES="web worker database", SERVICES_FILE=tmp_path / "stopped")
    return made


def start(*services: str) -> None:
    for service in services:
        subprocess.run(["systemctl", "start", service], check=True, stdin=subprocess.DEVNULL)


def log(units: Path) -> list[str]:
    """What happened since the last look."""
    lines = (units / "log").read_text().splitlines()
    (units / "log").write_text("")
    return lines


def test_services_end_in_order_and_start_in_the_opposite_one(made: Example, units: Path) -> None:
    start("database", "worker", "web")
    log(units)
    event_id, said = made.prepare()
    assert said == "Stopped web.\nStopped worker.\nStopped database.\n"
    assert log(units) == ["ended web", "ended worker", "ended database"]
    assert list(units.glob("*.pid")) == []
    said = made.recover(event_id)
    assert said == "Started database.\nStarted worker.\nStarted web.\n"
    assert log(units) == ["started database", "started worker", "started web"]


def test_what_a_person_had_stopped_stays_stopped_and_nothing_starts_while_another_event_is_coming(
    made: Example, units: Path
) -> None:
    start("database", "web")
    first, _ = made.prepare()
    second, _ = made.prepare()
    log(units)
    assert made.recover(first) == f"Nothing is started, because of {second}.\n"
    assert log(units) == []
    made.cancel(second)
    assert log(units) == ["started database", "started web"]


def test_drills_and_freezes_stop_nothing(made: Example, units: Path) -> None:
    start("web")
    log(units)
    said = made.rehearse("prepare.d/40-stop-services")
    assert said == "A drill: web worker database would be stopped now.\n"
    event_id, _ = made.prepare("Freeze")
    made.recover(event_id)
    assert log(units) == []


def test_a_service_that_does_not_stop_is_a_failure_and_the_others_stop(made: Example) -> None:
    made.set(SERVICES="stubborn web")
    start("web", "stubborn")
    _, said = made.prepare(ends="failed")
    assert said == "Could not stop stubborn.\nStopped web.\n"
