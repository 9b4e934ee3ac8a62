"""The embedded Postgres and Valkey of one ring, which can be killed and started again on the same data."""

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from fleet import embedded


class Server:
    """`run` starts it. To be used from the main thread, whose end it follows."""

    def __init__(self, run: Callable[[], AbstractContextManager[embedded.Server]], pid_file: Path) -> None:
        self.run = run
        self.pid_file = pid_file
        self.url = ""
        self._running = ExitStack()

    def start(self) -> None:
        """Returns once it answers."""
        self.url = self._running.enter_context(self.run()).url

    def stop(self) -> None:
        self._running.close()

    def kill(self) -> None:
        """Kill -9 for the server and for each process that serves a session."""
        pid = int(self.pid_file.read_text().split("\n", 1)[0])
        # The server first: Postgres answers the death of a session's process with a restart of its own.
        for each in (pid, *children(pid)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._running.close()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
