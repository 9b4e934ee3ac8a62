"""Real processes for tests: free ports, children that end with the test run, and waiting without guessing."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import requests

from fleet.embedded.parent_death import bound

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable

Answer = TypeVar("Answer")


def free_port() -> int:
    """Return a TCP port on loopback that no process listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(question: Callable[[], Answer | None], *, seconds: float, what: str, every: float = 0.02) -> Answer:
    """The first answer that is true; AssertionError after the time.

    `every` is the pause in seconds. A question that costs others something is asked less often: all share the cores.
    """
    deadline = time.monotonic() + seconds
    while True:
        if answer := question():
            return answer
        assert time.monotonic() < deadline, f"after {seconds:g} seconds still not: {what}"
        time.sleep(every)


def answers(url: str, *, status: int = 200) -> bool:
    """Whether a GET gets this status, without following redirects."""
    try:
        return requests.get(url, timeout=5, allow_redirects=False).status_code == status
    except requests.RequestException:
        return False


class Process:
    """One running child, the leader of a group of its own; what it prints goes into `log`."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self.child = child
        self.log = log

    @property
    def pid(self) -> int:
        return self.child.pid

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill -9 for it and for what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait(10)

    def stop(self, *, seconds: float = 10) -> int:
        """SIGTERM, then its exit status; killed if it does not end in time, which fails the test."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.child.args} did not end within {seconds:g} seconds") from None
        return int(self.child.returncode)


def start(command: Sequence[str], *, environment: Mapping[str, str], log: Path, cwd: Path = ROOT) -> Process:
    """Starts a child with exactly the given variables on top of ours; an empty value takes a variable away."""
    merged = {name: value for name, value in {**os.environ, **environment}.items() if value != ""}
    with log.open("ab") as out:
        child = subprocess.Popen(
            bound(command),
            env=merged,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return Process(child, log)


@contextmanager
def running(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, cwd: Path = ROOT
) -> Iterator[Process]:
    """A child for the length of a block; afterwards it and what it started are gone, whatever happened."""
    process = start(command, environment=environment, log=log, cwd=cwd)
    try:
        yield process
    finally:
        if process.child.poll() is None:
            process.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.child.wait(5)
        process.kill()


def manage(*arguments: str, environment: Mapping[str, str]) -> str:
    """Runs a management command to its end; its output, or AssertionError with it."""
    ended = subprocess.run(
        bound([PYTHON, str(ROOT / "manage.py"), *arguments]),
        env={**os.environ, **environment},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
