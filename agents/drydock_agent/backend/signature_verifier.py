"""Signature check in a short-lived process. In the agent's own process, the library would permanently use 7 to 11 MB of
memory, although orders are rare.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from drydock_agent.lazy_import import LazyImport

if TYPE_CHECKING:
    import subprocess

    from drydock_agent.backend import ed25519
else:
    subprocess = LazyImport("subprocess")
    ed25519 = LazyImport("drydock_agent.backend.ed25519")

PROGRAM = "drydock_agent.backend.ed25519"
# After this time the check is made in the agent's process instead.
TIMEOUT_SECONDS = 2.0
# Processes per period; further checks are made in the agent's process, so that a flood of orders starts few processes.
MAX_PROCESSES, PERIOD_SECONDS = 5, 60.0

Signed = Sequence[tuple[str, str]]


class Verifier:
    """Runs the signature check. `any_verifies` returns whether at least one of these (public key, signature) pairs, in
    base64, verifies the text.
    """

    def __init__(self, *, interpreter: str = sys.executable, steady: Callable[[], float] = time.monotonic) -> None:
        self._interpreter = interpreter
        self._steady = steady
        self._spawned_at: deque[float] = deque(maxlen=MAX_PROCESSES)

    def any_verifies(self, signed: Signed, text: bytes) -> bool:
        if not signed:
            return False
        verdict = self._verify_in_subprocess(signed, text) if self._may_spawn() else ""
        # If the process gave no answer, check here.
        return ed25519.any_verifies(signed, text) if verdict not in ("good", "bad") else verdict == "good"

    def _may_spawn(self) -> bool:
        now = self._steady()
        # If the library is loaded already, a process saves nothing.
        if PROGRAM in sys.modules or not self._interpreter:
            return False
        if len(self._spawned_at) == MAX_PROCESSES and now < self._spawned_at[0] + PERIOD_SECONDS:
            return False
        self._spawned_at.append(now)
        return True

    def _verify_in_subprocess(self, signed: Signed, text: bytes) -> str:
        request = json.dumps([list(signed), base64.b64encode(text).decode()]).encode()
        # Isolated: neither the folder in which the agent was started nor the environment can put a module in between.
        command = [self._interpreter, "-I", "-m", PROGRAM]
        try:
            done = subprocess.run(command, input=request, capture_output=True, timeout=TIMEOUT_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.decode("ascii", "replace").strip()
