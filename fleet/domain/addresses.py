"""Addresses of clients behind trusted proxies, and the networks from which a token may be used."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from fleet.domain.reasons import Reason, Refused

Network = IPv4Network | IPv6Network


def address_of(peer: str, forwarded: str, proxies: Sequence[Network]) -> str:
    """Return the client's IP address from the TCP peer address and the header `X-Forwarded-For` (`forwarded`).

    The header is read from the right while each address is a trusted proxy. The first address that is not a trusted
    proxy is the client.
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
    """Return the IP address in a text such as `1.2.3.4`, `1.2.3.4:5678` or `[::1]:5678`; None if there is no
    address.
    """
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ip_address(bare))
    except ValueError:
        return None


def lies_in_networks(text: str, networks: Sequence[Network]) -> bool:
    """Return whether the IP address `text` is in one of the networks; False if the text is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in networks)


# Networks from which a token's calls are accepted: read, compared, and tested for an address.

# The most networks of one token, and the longest text that is read for one.
MOST = 50
LONGEST = 64


class NetworkFault(Refused):
    """Error: a text is not a network, or there are too many networks."""


def read_networks(texts: Iterable[str]) -> list[str]:
    """Return the networks in CIDR notation, in their order and without duplicates: `10.0.0.7` becomes `10.0.0.7/32`.

    Raises NetworkFault, also for `10.0.0.7/8`, because it is ambiguous whether the host or the network is meant.
    """
    found = {str(_read(text.strip())): None for text in texts if text.strip()}
    if len(found) > MOST:
        raise NetworkFault("validation", Reason("network-too-many", most=MOST))
    return list(found)


def beyond(inner: Sequence[str], outer: Sequence[str]) -> str:
    """Return the first network of `inner` that is not within a network of `outer`, or an empty string if all are.

    If `outer` is empty, every network counts as within.
    """
    if not outer:
        return ""
    around = [ip_network(text) for text in outer]
    return next((text for text in inner if not any(_within(ip_network(text), one) for one in around)), "")


def allows(networks: Sequence[str], address: str) -> bool:
    """Return whether calls from this IP address are allowed: the address is in one of the networks, or there are none.

    An IPv4 address that is mapped into IPv6 counts as the IPv4 address. A text that is not an address is in no network.
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
        raise NetworkFault("validation", Reason("network-unreadable", text=text[:LONGEST])) from error
    try:
        strict = ip_network(text)
    except ValueError as error:
        host = ip_address(text.partition("/")[0])
        whole = f"{host}/{host.max_prefixlen}"
        reason = Reason("network-host-bits", text=text, network=str(loose), host=whole)
        raise NetworkFault("validation", reason) from error
    mapped = strict.network_address.ipv4_mapped if isinstance(strict, IPv6Network) else None
    if mapped is not None and strict.prefixlen >= 96:
        return ip_network(f"{mapped}/{strict.prefixlen - 96}")
    return strict


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
