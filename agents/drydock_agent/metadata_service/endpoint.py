"""Which address the metadata service is asked at: the configured one, or one that DHCP named.

Discovery begins only when it is asked for, or when the usual address cannot be routed to. What it found is kept in the
state folder, and used again as long as something answers there.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from drydock_agent.log_limiter import LogLimiter
from drydock_agent.metadata_service import discovery
from drydock_agent.settings.load import DEFAULT_IMDS_URL, Settings
from drydock_agent.state_folder import StateError, StateFolder

# How often an agent that found no endpoint, or whose found one went silent, looks again.
AGAIN_SECONDS = 3600.0
CONNECT_SECONDS = 2.0

log = logging.getLogger("drydock_agent")


@dataclass(slots=True, frozen=True)
class Endpoint:
    """`url` has no slash at its end. `sought` says that it is, or should be, a discovered one."""

    url: str
    sought: bool = False


def wanted(settings: Settings) -> bool:
    """Whether the configured address is not the one to ask."""
    if settings.discover_endpoint == "auto":
        return settings.imds_url == DEFAULT_IMDS_URL and not routable(settings.imds_url)
    return settings.discover_endpoint == "always"


def routable(url: str) -> bool:
    """Whether this machine has a route to the host of `url`; nothing is sent."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((parts.hostname or "", parts.port or 80))
        except OSError:
            return False
    return True


def find(
    settings: Settings,
    state: StateFolder,
    limiter: LogLimiter,
    pause: Callable[[float], object],
    *,
    waits: tuple[float, ...] = discovery.WAITS,
    listen_seconds: float = discovery.LISTEN_SECONDS,
) -> Endpoint:
    """The configured address unless discovery is wanted: then the kept one, else one that DHCP names.

    Asks up to five times, over about three minutes; where nothing is found the configured address is all there is.
    """
    if not wanted(settings):
        return Endpoint(settings.imds_url)
    kept = state.endpoint()
    if kept and _answers(kept):
        return Endpoint(f"http://{kept}", sought=True)
    log.info("The metadata service is looked for by DHCP.")
    for wait in waits:
        if wait:
            pause(wait)
            # At the start of a machine the network may merely have been late.
            if not wanted(settings):
                return Endpoint(settings.imds_url)
        try:
            found = discovery.ask(listen_seconds)
        except discovery.NotAllowed as error:
            limiter.warn("endpoint", f"The metadata service was not looked for: {error}.")
            return Endpoint(settings.imds_url, sought=True)
        if found:
            log.info("DHCP says that the metadata service is at %s.", found)
            _keep(state, found, limiter)
            return Endpoint(f"http://{found}", sought=True)
    limiter.warn("endpoint", "No DHCP answer named the metadata service; the usual address is asked meanwhile.")
    return Endpoint(settings.imds_url, sought=True)


def _keep(state: StateFolder, address: str, limiter: LogLimiter) -> None:
    try:
        state.keep_endpoint(address)
    except StateError as error:
        limiter.warn("endpoint kept", f"The discovered address is not kept: {error}")


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, 80), timeout=CONNECT_SECONDS):
        return True
    return False
