"""Messages to the service manager, which is systemd or Windows: ready, alive, stopping."""

from __future__ import annotations

from drydock_agent.platforms import system

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
# Variables of systemd, which are meant for the agent only.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

notify = system.notify
