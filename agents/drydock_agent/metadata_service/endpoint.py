"""Address of the metadata service: the configured one, or one discovered by DHCP.

Discovery runs only if it is configured or there is no route to the default address. The discovered address is stored in
the state folder and used as long as a server responds there.
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

# Interval of discovery while no endpoint is found or the found one does not answer.
RETRY_SECONDS = 3600.0
CONNECT_SECONDS = 2.0

log = logging.getLogger("drydock_agent")


@dataclass(slots=True, frozen=True)
class Endpoint:
    """Address of the metadata service, without a trailing slash in `url`. `is_discovered` means that the address was
    discovered by DHCP, or should have been.
    """

    url: str
    is_discovered: bool = False


def needs_discovery(settings: Settings) -> bool:
    """Return whether the address must be discovered by DHCP."""
    if settings.discover_endpoint == "auto":
        return settings.imds_url == DEFAULT_IMDS_URL and not is_routable(settings.imds_url)
    return settings.discover_endpoint == "always"


def is_routable(url: str) -> bool:
    """Return whether this machine has a route to the host of `url`. Sends nothing."""
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
    waits: tuple[float, ...] = discovery.REQUEST_DELAYS_SECONDS,
    listen_seconds: float = discovery.LISTEN_SECONDS,
) -> Endpoint:
    """Return the configured address, or if discovery is needed, the stored address or else one discovered by DHCP.

    Discovery sends up to five requests within about three minutes. If it finds nothing, the configured address is
    returned.
    """
    if not needs_discovery(settings):
        return Endpoint(settings.imds_url)
    kept = state.endpoint()
    if kept and _answers(kept):
        return Endpoint(f"http://{kept}", is_discovered=True)
    log.info("Searching for the metadata service by DHCP.")
    for wait in waits:
        if wait:
            pause(wait)
            # The network may not have been ready yet when the machine started.
            if not needs_discovery(settings):
                return Endpoint(settings.imds_url)
        try:
            found = discovery.query_dhcp(listen_seconds)
        except discovery.NotAllowed as error:
            limiter.warn("endpoint", f"Discovery of the metadata service is not possible: {error}.")
            return Endpoint(settings.imds_url, is_discovered=True)
        if found:
            log.info("DHCP named %s as the address of the metadata service.", found)
            _keep(state, found, limiter)
            return Endpoint(f"http://{found}", is_discovered=True)
    limiter.warn("endpoint", "No DHCP answer named the metadata service; the default address is used meanwhile.")
    return Endpoint(settings.imds_url, is_discovered=True)


def _keep(state: StateFolder, address: str, limiter: LogLimiter) -> None:
    try:
        state.keep_endpoint(address)
    except StateError as error:
        limiter.warn("endpoint kept", f"The discovered address is not kept: {error}")


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, 80), timeout=CONNECT_SECONDS):
        return True
    return False
