"""Client addresses behind trusted proxies, and the networks to which a token is limited."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from fleet.domain.reasons import Reason

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
    """Return `1.2.3.4:5678`, `[::1]:5678` and bare addresses as bare addresses; None for other texts."""
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ip_address(bare))
    except ValueError:
        return None


def lies_in_networks(text: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks; a text that is no address is in none."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in networks)


# Networks from which a token's calls are accepted: read, compared, and tested for an address.

# The most networks of one token, and the longest text that is read for one.
MOST = 50
LONGEST = 64


class NetworkFault(ValueError):
    """An error: a text that is no network, or too many of them; `reason` has the details."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


def read_networks(texts: Iterable[str]) -> list[str]:
    """Return the networks in full notation, each once, in their order: `10.0.0.7` becomes `10.0.0.7/32`. Raises
    NetworkFault. `10.0.0.7/8` is refused, because it is ambiguous whether the host or the network is meant.
    """
    found = {str(_read(text.strip())): None for text in texts if text.strip()}
    if len(found) > MOST:
        raise NetworkFault(Reason("network-too-many", most=MOST))
    return list(found)


def beyond(inner: Sequence[str], outer: Sequence[str]) -> str:
    """The first of these networks that does not lie within the outer ones; empty where all do. No outer ones at all
    are everything.
    """
    if not outer:
        return ""
    around = [ip_network(text) for text in outer]
    return next((text for text in inner if not any(_within(ip_network(text), one) for one in around)), "")


def allows(networks: Sequence[str], address: str) -> bool:
    """Whether calls from this address are allowed; without networks all are. A text that is no address is in no
    network; an IPv4 address inside an IPv6 address is judged as itself.
    """
    return not networks or lies_in_networks(_plain(address), [ip_network(text) for text in networks])


def _plain(address: str) -> str:
    bare = address.partition("%")[0]
    try:
        return str(IPv6Address(bare).ipv4_mapped or bare)
    except ValueError:
        return bare


def _read(text: str) -> Network:
    try:
        if len(text) > LONGEST:
            raise ValueError
        loose = ip_network(text, strict=False)
    except ValueError as error:
        raise NetworkFault(Reason("network-unreadable", text=text[:LONGEST])) from error
    try:
        strict = ip_network(text)
    except ValueError as error:
        host = ip_address(text.partition("/")[0])
        whole = f"{host}/{host.max_prefixlen}"
        raise NetworkFault(Reason("network-host-bits", text=text, network=str(loose), host=whole)) from error
    mapped = strict.network_address.ipv4_mapped if isinstance(strict, IPv6Network) else None
    if mapped is not None and strict.prefixlen >= 96:
        return ip_network(f"{mapped}/{strict.prefixlen - 96}")
    return strict


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
