"""The processes that Drydock consists of, as commands: web, worker and beat. Whoever starts one takes it from here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

# Held calls of agents and streams stay open for a minute and more; the server must take many beside the pages.
# A process may have 20,000 files open on most systems: what is left is for pages and connections to the database.
HELD_CALLS = 18_000
# As many may wait to be taken up as the system allows: a fleet comes back all at once.
BACKLOG = 4096
STOP_SECONDS = 10
LOG_CONFIG = Path(__file__).parents[1] / "granian.json"
CONCURRENCY = 4
# Whoever starts them has checked the settings. Threads, because a task waits for Postgres and for nothing else.
WORKER = ("--skip-checks", "worker", "--pool", "threads", "--without-gossip", "--without-mingle")
BEAT = ("--skip-checks", "beat")


def web(*, host: str, port: int, stop_seconds: int = STOP_SECONDS, more: Sequence[str] = ()) -> list[str]:
    """Granian with our application. Agents are held by one process, which has threads for everything else.

    A kept-alive connection would hold Granian up at its end, so it gets `stop_seconds` and no more.
    """
    return [
        sys.executable, "-m", "granian", "--interface", "asgi", "--host", host, "--port", str(port),
        # Agents and proxies speak HTTP/1.1; a server that could do more keeps 9 KiB more for each held call.
        "--workers", "1", "--no-ws", "--http", "1", "--backlog", str(BACKLOG), "--backpressure", str(HELD_CALLS),
        "--workers-kill-timeout", str(stop_seconds), "--log-config", str(LOG_CONFIG), *more, "fleet.asgi:application",
    ]  # fmt: skip


def worker(*, concurrency: int = CONCURRENCY, more: Sequence[str] = ()) -> list[str]:
    """What Celery is given for a worker."""
    return [*WORKER, "--concurrency", str(concurrency), *more]


def beat(*, more: Sequence[str] = ()) -> list[str]:
    """What Celery is given for the beat."""
    return [*BEAT, *more]
