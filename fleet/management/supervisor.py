"""Commands of Drydock's processes, and a supervisor that restarts them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleet.embedded.parent_death import bound
from fleet.embedded.server import described

# Long-polls of agents and streams stay open for a minute and more; the server must accept many in addition to the
# pages. A process may have 20,000 files open on most systems: the rest is for pages and database connections.
HELD_CALLS = 18_000
# As many may wait to be taken up as the system allows: a fleet comes back all at once.
BACKLOG = 4096
STOP_SECONDS = 10
LOG_CONFIG = Path(__file__).parents[1] / "granian.json"
CONCURRENCY = 4
# The caller has checked the settings. Threads, because a task waits for Postgres and for nothing else.
WORKER = ("--skip-checks", "worker", "--pool", "threads", "--without-gossip", "--without-mingle")
BEAT = ("--skip-checks", "beat")


def web(*, host: str, port: int, stop_seconds: int = STOP_SECONDS, more: Sequence[str] = ()) -> list[str]:
    """Return the command that runs our application in Granian. There is one process, because it holds all agents'
    connections; other work runs in its threads.

    Open keep-alive connections would delay Granian's stop, so it waits at most `stop_seconds`.
    """
    return [
        sys.executable, "-m", "granian", "--interface", "asgi", "--host", host, "--port", str(port),
        # Agents and proxies use HTTP/1.1. Support for HTTP/2 would need 9 KiB more memory for each long poll.
        "--workers", "1", "--no-ws", "--http", "1", "--backlog", str(BACKLOG), "--backpressure", str(HELD_CALLS),
        "--workers-kill-timeout", str(stop_seconds), "--log-config", str(LOG_CONFIG), *more, "fleet.asgi:application",
    ]  # fmt: skip


def worker(*, concurrency: int = CONCURRENCY, more: Sequence[str] = ()) -> list[str]:
    """Return the command-line arguments for a Celery worker."""
    return [*WORKER, "--concurrency", str(concurrency), *more]


# The supervisor: it starts processes, restarts those that end, and ends all of them quickly and together.

WATCH_SECONDS = 0.1
LONGEST_PAUSE = 30.0
# A process that ran for this long before it ended is restarted at once.
STEADY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Definition of one process: its name for messages and its log, its command, and additional environment
    variables.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    # Signal to the process when its parent is killed. A process with child processes needs one that it can handle.
    death_signal: signal.Signals = signal.SIGKILL


class Worker:
    """One supervised process. Use it only in the main thread, because the parent-death signal depends on that
    thread.
    """

    def __init__(self, recipe: Recipe, *, folder: Path, logs: Path) -> None:
        self.recipe = recipe
        self.folder = folder
        self.log_path = logs / f"{recipe.name}.log"
        self.child: subprocess.Popen[bytes] | None = None
        self.log_start = 0
        self.started_at = 0.0
        self.start_again_at = 0.0
        self.pause = 0.0
        self.wanted = True

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.log_start = log.tell()
            self.child = subprocess.Popen(
                bound(self.recipe.command, death_signal=self.recipe.death_signal),
                cwd=self.folder,
                env={**os.environ, **self.recipe.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A separate process group: Ctrl-C reaches only the supervisor, which stops the others in order.
                start_new_session=True,
            )
        self.started_at = time.monotonic()

    def said(self) -> str:
        """Return the output of the process since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    def is_running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def watch(self, say: Callable[[str], None]) -> None:
        """Restart the process if it has ended: at once after a long run, else with growing pauses. `say` gets the
        messages.
        """
        if self.child is None or not self.wanted or self.is_running():
            return
        now = time.monotonic()
        if self.start_again_at == 0.0:
            self.pause = 0.0 if now - self.started_at > STEADY_SECONDS else min(max(2 * self.pause, 1.0), LONGEST_PAUSE)
            self.start_again_at = now + self.pause
            say(
                f"{self.recipe.name} ended by itself ({described(self.child.returncode)}); starting it again. "
                f"What it said: {self.log_path}"
            )
            # Its own children may have outlived it and still hold its port.
            self.signal(signal.SIGKILL)
        if now >= self.start_again_at:
            self.start_again_at = 0.0
            self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its child processes."""
        if self.child is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, number)


def stop_all(workers: Iterable[Worker], seconds: float) -> None:
    """Send SIGTERM to each process, and after `seconds` SIGKILL to its process group. Return when all have ended."""
    running = [worker for worker in workers if worker.child is not None]
    for worker in running:
        worker.wanted = False
        if worker.child is not None and worker.is_running():
            worker.child.terminate()
    deadline = time.monotonic() + seconds
    for worker in running:
        if worker.child is not None:
            with suppress(subprocess.TimeoutExpired):
                worker.child.wait(max(deadline - time.monotonic(), 0.01))
            worker.signal(signal.SIGKILL)
            worker.child.wait()
