"""Execution of one hook as a separate process, with a time limit. The end of its output is captured."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from drydock_agent.connections import Interrupted
from drydock_agent.hooks.progress import FAILED, OUTPUT_CHARACTERS, SUCCEEDED, TIMED_OUT
from drydock_agent.platforms import processes

# Seconds between the signal to end and the kill of a hook; less when the agent itself stops.
GRACE_SECONDS = 5.0
STOP_GRACE_SECONDS = 0.3
# A child of the hook may keep its output open for ever, so waiting for the end is limited.
DRAIN_SECONDS = 0.5
# A character is at most four bytes.
_KEPT_BYTES = 4 * OUTPUT_CHARACTERS


@dataclass(slots=True, frozen=True)
class HookResult:
    """Result of one hook. `exit_status` is negative for a signal, and None if the hook did not run or was killed."""

    outcome: str
    exit_status: int | None
    seconds: float
    output: str


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout: float,
    stopping: threading.Event,
    preempted: threading.Event | None = None,
    record: Path | None = None,
) -> HookResult:
    """Run `command` with `stdin` on standard input. The outcome is `succeeded` (exit status 0), `failed` or
    `timed-out`.

    When `preempted` is set, the hook is ended with the outcome `failed`. When `stopping` is set, the hook and all that
    it started are ended, and `Interrupted` is raised. `record` is the file that helps `end_leftovers` on some systems.
    """
    if stopping.is_set():
        raise Interrupted
    begun = time.monotonic()
    try:
        child = processes.Child(command, environment=environment, record=record)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return HookResult(FAILED, None, time.monotonic() - begun, f"It cannot be run: {reason}.")
    try:
        return _result(child, stdin, begun, timeout, stopping, preempted)
    finally:
        child.release()


def _result(
    child: processes.Child,
    stdin: bytes,
    begun: float,
    timeout: float,
    stopping: threading.Event,
    preempted: threading.Event | None,
) -> HookResult:
    tail = _OutputTail(child.stdout)
    threading.Thread(target=_write_input, args=(child.stdin, stdin), name="hook input", daemon=True).start()
    _wait(child, begun + timeout, stopping, preempted)
    if timed_out := child.poll() is None:
        cut = preempted is not None and preempted.is_set()
        child.end(STOP_GRACE_SECONDS if cut or stopping.is_set() else GRACE_SECONDS)
        if stopping.is_set():
            raise Interrupted
        if cut:
            words = f"{tail.text()}\nIt was ended at once: a real event was announced."
            return HookResult(FAILED, None, time.monotonic() - begun, words[-OUTPUT_CHARACTERS:])
    seconds = time.monotonic() - begun
    output = tail.text()
    if timed_out:
        return HookResult(TIMED_OUT, None, seconds, output)
    return HookResult(FAILED if child.returncode else SUCCEEDED, child.returncode, seconds, output)


def end_leftovers(run: str, record: Path) -> int:
    """End the processes of the hook with this `DRYDOCK_RUN` that an earlier run of the agent left. Return their
    number.
    """
    return processes.end_leftovers(run, record)


class _OutputTail:
    """Thread that reads a stream to the end and keeps the last part of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, args=(stream,), name="hook output", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return the last part of the output as text, after waiting briefly for the end of the stream."""
        self._thread.join(DRAIN_SECONDS)
        with self._lock:
            text = processes.decode(bytes(self._kept))
        # Databases cannot store a NUL character in text.
        return text.replace("\0", "\ufffd")[-OUTPUT_CHARACTERS:]

    def _read(self, stream: IO[bytes] | None) -> None:
        if stream is None:
            return
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                with self._lock:
                    self._kept += chunk
                    del self._kept[:-_KEPT_BYTES]


def _write_input(stream: IO[bytes] | None, stdin: bytes) -> None:
    # In a thread, because a hook may not read its input and the size of a pipe is limited.
    if stream is not None:
        with contextlib.suppress(OSError), stream:
            stream.write(stdin)


def _wait(
    child: processes.Child, deadline: float, stopping: threading.Event, preempted: threading.Event | None
) -> None:
    """Wait until the hook has ended, the deadline has passed, `preempted` is set, or the agent stops."""
    pause = 0.005
    while child.poll() is None and not (preempted is not None and preempted.is_set()):
        left = deadline - time.monotonic()
        if left <= 0 or stopping.wait(min(pause, left)):
            return
        pause = min(pause * 1.5, 0.1)
