"""A running embedded server: start, detection of its end, and restart."""

import importlib.util
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fleet.embedded.folder import ServerProblem

START_SECONDS = 60.0
STOP_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class Server:
    """An embedded server that runs inside the block. Use it only in the main thread.

    It runs in the folder `data` and writes to `log_path`. `probe` raises one of `failures` until the server answers at
    `url`. The `signals` stop it, each if the one before takes too long. Raises ServerProblem.
    """

    name: str
    url: str
    command: Sequence[str]
    data: Path
    log_path: Path
    probe: Callable[[], None]
    failures: type[Exception]
    signals: Sequence[signal.Signals]
    environment: Mapping[str, str] | None = None
    child: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> Self:
        self.child = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(self.child)

    def watch(self) -> str:
        """Restart the server if it has ended, and return a message about it, else an empty text. Raises
        ServerProblem.
        """
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

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            child = subprocess.Popen(
                self.command,
                cwd=self.data,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches the whole group of the terminal; this server has to outlive its users.
                start_new_session=True,
            )
        try:
            self._wait_for_answer(child, log_start)
        except BaseException:
            self._stop(child)
            raise
        return child

    def _wait_for_answer(self, child: subprocess.Popen[bytes], log_start: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.probe()
                return
            except self.failures as error:
                if child.poll() is not None:
                    reason = last_line(self.log_path.read_bytes()[log_start:].decode(errors="replace"))
                    problem = f"{self.name} ended at its start: {reason} (all of it: {self.log_path})"
                    raise ServerProblem(problem) from error
                if time.monotonic() > deadline:
                    problem = f"{self.name} did not answer within {START_SECONDS:g} seconds: {error}"
                    raise ServerProblem(problem) from error
                time.sleep(0.02)

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        for number in self.signals:
            if child.poll() is not None:
                return
            child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(STOP_SECONDS)


def package_of(name: str, *, server: str, variable: str) -> Path:
    """Return the folder of the installed package `name`, which contains the server. Raises ServerProblem if it is
    missing. `server` and `variable` (the setting to use instead) are named in the error.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ServerProblem(
            f"{variable} is not set, and {server} does not come along: set it, or install the extra `demo`."
        )
    return Path(found.origin).parent


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing."


def described(status: int) -> str:
    """Return the text of an exit status: `status 1`, or the name of the signal that ended the process."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name
