"""Linux and other POSIX systems: clocks, folders, permissions, and systemd as the service manager."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from drydock_agent.platforms.config_map import is_in_config_map

# How often the main thread checks all parts. A signal interrupts the wait.
WATCH_SECONDS = 10.0
# A unit of systemd runs the agent.
HAS_SERVICE = False
# What the discovery of the metadata service needs, and why it may fail.
DISCOVERY_NEEDS = "CAP_NET_BIND_SERVICE"
DISCOVERY_REFUSED = (
    "which needs root or the capability CAP_NET_BIND_SERVICE (in a unit: AmbientCapabilities=CAP_NET_BIND_SERVICE)"
)


def boot_id() -> str:
    """Return an id that changes with each boot, or an empty string on systems other than Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def since_boot() -> float:
    """Return the seconds since boot. On Linux they include the time in which the machine slept."""
    kind = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if kind is None else time.clock_gettime(kind)


def settings_file(environ: Mapping[str, str]) -> str:
    """Return the settings file to use without `DRYDOCK_CONFIG`: none."""
    return ""


def state_dir(environ: Mapping[str, str]) -> str:
    """Return the default state folder."""
    if sys.platform == "darwin":
        return "/Library/Application Support/Drydock Agent"
    return "/var/lib/drydock-agent"


def hooks_dir(environ: Mapping[str, str]) -> str:
    """Return the default hooks folder."""
    return "/etc/drydock-agent/hooks"


def make_private_folder(path: Path) -> None:
    """Create a folder that only the agent's user can read, if it does not exist."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def is_program(path: Path) -> bool:
    """Return whether this file can be run as a hook."""
    return bool(path.stat().st_mode & 0o111)


def hook_command(path: Path) -> list[str]:
    """Return the command line that runs this hook."""
    return [str(path)]


def unsafe_reason(path: Path) -> str:
    """Return the reason why users other than root and the agent's own could change this file, or an empty string."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}, not to root or to the agent's user"
    if found.st_mode & 0o002 and not is_in_config_map(path):
        return "can be written by everybody"
    return ""


def notify(state: str) -> None:
    """Send one state to systemd (`sd_notify`). Does nothing if no service manager waits for it; an error is ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        # `@` stands for the NUL of an abstract address.
        sock.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def network_interface() -> str:
    """Return the network interface of the default route, else the first one except loopback, else an empty string."""
    with contextlib.suppress(OSError, IndexError):
        for line in Path("/proc/net/route").read_text("ascii").splitlines()[1:]:
            name, destination = line.split()[:2]
            if destination == "00000000":
                return name
    with contextlib.suppress(OSError):
        return next((name for _, name in socket.if_nameindex() if name != "lo"), "")
    return ""


def mac_address(interface: str) -> bytes:
    """Return the hardware address of a network interface, or of any if this one has none."""
    with contextlib.suppress(OSError, ValueError):
        mac = bytes.fromhex(Path(f"/sys/class/net/{interface}/address").read_text("ascii").strip().replace(":", ""))
        if len(mac) == 6:
            return mac
    return uuid.getnode().to_bytes(6, "big")
