"""Addresses of whoever calls, as far as proxies that are trusted say them."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


def address_of(peer: str, forwarded: str, proxies: Sequence[Network]) -> str:
    """The client's address. `X-Forwarded-For` counts as far as trusted proxies wrote it: from the right, up to the
    first address that is none of them.
    """
    found = peer
    for part in reversed(forwarded.split(",")):
        if not lies_in_networks(found, proxies):
            return found
        before = without_port(part.strip())
        if before is None:
            return found
        found = before
    return found


def without_port(text: str) -> str | None:
    """`1.2.3.4:5678`, `[::1]:5678` and bare addresses as bare addresses; None for what is no address."""
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ip_address(bare))
    except ValueError:
        return None


def lies_in_networks(text: str, networks: Sequence[Network]) -> bool:
    """Whether an address lies in one of them; what is no address lies nowhere."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in networks)
