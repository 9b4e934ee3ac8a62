"""Messages to the service manager: ready, alive, stopping. It is systemd, Windows, or the liveness probe of Kubernetes,
for which the modification time of the file `ALIVE_FILE` is the time of the last *alive*.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from drydock_agent.platforms import system

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
ALIVE_FILE = "DRYDOCK_ALIVE_FILE"
# Variables of systemd, which are meant for the agent only.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def notify(state: str) -> None:
    """Send one state. An error is ignored."""
    if state == ALIVE and (file := os.environ.get(ALIVE_FILE)):
        with contextlib.suppress(OSError):
            Path(file).touch()
    system.notify(state)
