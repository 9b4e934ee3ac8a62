"""Checks signatures in a process that ends with the answer: the library would stay in memory for good, 7 to 11 MB on
each machine that was ever sent an order, and most get one in weeks.
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
# A process that does not answer in time is given up, and the check is made here: an order waits for it.
SECONDS = 2.0
# So many in a minute; more are checked here. Whoever sends orders by the thousand, on the way say, costs no processor.
MOST, WITHIN_SECONDS = 5, 60.0

Signed = Sequence[tuple[str, str]]


class Verifier:
    """`any_verifies`: whether one of these (public key, signature), both in base64, verifies the text."""

    def __init__(self, *, interpreter: str = sys.executable, steady: Callable[[], float] = time.monotonic) -> None:
        self._interpreter = interpreter
        self._steady = steady
        self._made: deque[float] = deque(maxlen=MOST)

    def any_verifies(self, signed: Signed, text: bytes) -> bool:
        if not signed:
            return False
        said = self._ask(signed, text) if self._may_ask() else ""
        # Whatever kept the process from answering, the order is judged.
        return ed25519.any_verifies(signed, text) if said not in ("good", "bad") else said == "good"

    def _may_ask(self) -> bool:
        now = self._steady()
        # Where the library is here already, a process saves nothing.
        if PROGRAM in sys.modules or not self._interpreter:
            return False
        if len(self._made) == MOST and now < self._made[0] + WITHIN_SECONDS:
            return False
        self._made.append(now)
        return True

    def _ask(self, signed: Signed, text: bytes) -> str:
        question = json.dumps([list(signed), base64.b64encode(text).decode()]).encode()
        # Isolated: neither the folder in which the agent was started nor the environment can put a module in between.
        command = [self._interpreter, "-I", "-m", PROGRAM]
        try:
            done = subprocess.run(command, input=question, capture_output=True, timeout=SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.decode("ascii", "replace").strip()
