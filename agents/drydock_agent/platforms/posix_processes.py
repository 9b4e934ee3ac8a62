"""Hooks as process groups of a POSIX system."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Child(subprocess.Popen[bytes]):
    """A running hook in a process group of its own, which can be ended as a whole. Ctrl-C reaches only the agent."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], record: Path | None) -> None:
        super().__init__(
            command,
            env=dict(environment),
            cwd=Path(command[-1]).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(self, grace: float) -> None:
        """End the process group of the hook: send a signal, wait `grace` seconds, then kill it."""
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(grace)
        # Child processes may still run after the hook has ended.
        self._signal_group(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(grace)

    def release(self) -> None:
        """Free what the hook no longer needs. Programs that it started may continue to run."""

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def end_leftovers(run: str, record: Path) -> int:
    """End the processes of a hook that an earlier agent left: those with this run's id in their environment.

    Return the number of ended processes; always 0 on systems other than Linux.
    """
    ended, mark = 0, f"DRYDOCK_RUN={run}".encode()
    for entry in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
    return ended


def decode(output: bytes) -> str:
    """Return the output of a hook as text."""
    return output.decode("utf-8", "replace")
