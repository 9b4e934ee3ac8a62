"""Limits of the sender's process: of time for each job, and of what the whole process may ever do."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Late(BaseException):
    """The job's time is over. No Exception, so that no library takes it for a failed connection and tries the next."""


def ring(number: int, frame: FrameType | None) -> None:
    raise Late


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises Late in the main thread when the time is over. Looking up a name is not interrupted by it."""
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def bind_process() -> None:
    """No file is written, no memory is dumped, and few files are open, whatever runs here."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
