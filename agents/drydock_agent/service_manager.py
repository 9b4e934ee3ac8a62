"""Messages to the service manager (systemd's `sd_notify`): ready, alive, stopping."""

from __future__ import annotations

import contextlib
import os
import socket

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
# Variables of the service manager, which are meant for the agent only.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def notify(state: str) -> None:
    """Send one state. Does nothing if no service manager waits for it; an error is ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    family = getattr(socket, "AF_UNIX", None)
    if not address or family is None:
        return
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        # `@` stands for the NUL of an abstract address.
        sock.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
