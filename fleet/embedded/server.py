"""A server of ours while it runs: whether it has died, and how it is started again in its place."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from fleet.embedded.folder import ServerProblem

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.2


class Server:
    """One server, started by `start`, which returns once it answers; to be used from the main thread.

    `start` raises ServerProblem. `url` is where the server answers, also after it was started again.
    """

    def __init__(self, name: str, url: str, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.name = name
        self.url = url
        self._start = start
        self.child = start()

    def watch(self) -> str:
        """Restart the server if it has ended, and return a sentence about it, else "". Raises ServerProblem."""
        if self.child.poll() is None:
            return ""
        how = described(self.child.returncode)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.child = self._start()
                return f"{self.name} ended by itself ({how}); it was started again on its data."
            except ServerProblem as problem:
                # Its own children may need a moment to end, and lock the data until then.
                if time.monotonic() > deadline:
                    raise ServerProblem(
                        f"{self.name} ended by itself ({how}) and does not come back. {problem}"
                    ) from None
                time.sleep(PAUSE_SECONDS)

    def stop(self, signals: Sequence[signal.Signals], seconds: float) -> None:
        """Ends it by the first of the signals, and by the next where it takes longer than that."""
        stop(self.child, signals, seconds)


def stop(child: subprocess.Popen[bytes], signals: Sequence[signal.Signals], seconds: float) -> None:
    for how in signals:
        if child.poll() is not None:
            return
        child.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)


def described(status: int) -> str:
    """`status 1`, or the name of the signal that ended it."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name
