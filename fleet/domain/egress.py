"""Egress rules: decide whether Drydock may connect to an address to send notifications.

Only IP addresses are checked, immediately before the connection is opened. So host names, redirects and changing DNS
answers cannot bypass the rules.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressRefusal(StrEnum):
    """Reasons why a connection to an address is refused."""

    NOT_LITERAL = "not_literal"
    AZURE = "azure"
    UNSPECIFIED = "unspecified"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link_local"
    PRIVATE = "private"
    SHARED = "shared"
    UNIQUE_LOCAL = "unique_local"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    DOCUMENTATION = "documentation"
    RESERVED = "reserved"
    TUNNEL = "tunnel"
    PORT = "port"


# The metadata service and the wire server of every Azure VM: a network admits them only if it names exactly one of
# them.
AZURE = (IPv4Address("169.254.169.254"), IPv4Address("168.63.129.16"))

# The first network that holds an address names the reason.
FORBIDDEN: tuple[tuple[Network, AddressRefusal], ...] = tuple(
    (ip_network(network), reason)
    for reason, networks in (
        (AddressRefusal.UNSPECIFIED, "0.0.0.0/8 ::/128"),
        (AddressRefusal.LOOPBACK, "127.0.0.0/8 ::1/128"),
        (AddressRefusal.LINK_LOCAL, "169.254.0.0/16 fe80::/10"),
        (AddressRefusal.PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fec0::/10"),
        # Carrier-grade NAT, which clouds use inside, too.
        (AddressRefusal.SHARED, "100.64.0.0/10"),
        (AddressRefusal.UNIQUE_LOCAL, "fc00::/7"),
        (AddressRefusal.BROADCAST, "255.255.255.255/32"),
        (AddressRefusal.MULTICAST, "224.0.0.0/4 ff00::/8"),
        (AddressRefusal.DOCUMENTATION, "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
        # Where these end depends on whatever relay is near. 64:ff9b:1::/48 is a network's own NAT64.
        (AddressRefusal.TUNNEL, "192.88.99.0/24 2001::/32 2002::/16 64:ff9b:1::/48"),
        (AddressRefusal.RESERVED, "192.0.0.0/24 198.18.0.0/15 240.0.0.0/4 2001::/23"),
    )
    for network in networks.split()
)
# The public internet of IPv6 is this and nothing else.
PUBLIC = ip_network("2000::/3")

# Two ways to write an IPv4 address, and two obsolete ones.
SAME = (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))
OLD = (ip_network("::ffff:0:0:0/96"), ip_network("::/96"))
NAT64_LOCAL = ip_network("64:ff9b:1::/48")
ISATAP = (0x00005EFE, 0x02005EFE)

# Below 1024 these and no others: web, mail.
USUAL_PORTS = frozenset({25, 80, 443, 465, 587})
# Above it everything but what belongs inside: databases, queues, caches, and what steers machines.
INTERNAL_PORTS = frozenset(
    [
        *(1433, 1434, 1521, 1830, 3306, 5432, 5433, 5984, 6432, 7000, 7001, 7687, 8086, 8529, 9042, 9160),
        *(6379, 6380, 6381, 10000, 11211, 11214, 16379, 26379, 27017, 27018, 27019),
        *(1883, 4222, 4369, 5671, 5672, 8883, 9092, 9094, 15672, 25672, 61613, 61616),
        *(2049, 2181, 2375, 2376, 2377, 2379, 2380, 4001, 4194, 6443, 6666, 8500, 8501, 8600, 9200, 9300),
        *(3389, 5900, 5901, 5985, 5986, 10250, 10255, 10256, 10257, 10259),
        # Azure's wire server has a second door.
        32526,
    ]
)


def refusal(host: str, port: int, *, allow: Sequence[Network] = ()) -> AddressRefusal | None:
    """Return why a connection to this IP address and port is refused; None if it is allowed.

    `host` must be an IP address, not a name. `allow` are permitted networks in addition to the public internet. They
    permit neither the ports of internal services, nor Azure's own addresses unless a network is exactly that address.
    """
    address = literal(host)
    if address is None:
        return AddressRefusal.NOT_LITERAL
    return address_refusal(address, allow) or port_refusal(port)


def literal(host: str) -> Address | None:
    """Return the IP address if `host` is one in full notation. None for names, short forms, and addresses with a scope
    (`%eth0`).
    """
    # Python counts four bytes, and whole numbers, as addresses, too.
    if type(host) is not str or "%" in host:
        return None
    try:
        return ip_address(host)
    except ValueError:
        return None


def address_refusal(address: Address, allow: Sequence[Network] = ()) -> AddressRefusal | None:
    """Return why an IP address is refused; None if it is allowed. `allow`: see `refusal`.

    IPv4 addresses that are embedded in an IPv6 address are checked first, for each way in which they can be embedded.
    """
    same = any(address in network for network in SAME)
    meant = list(embedded(address))
    for each in [*meant, address]:
        if each in AZURE and not any(network.num_addresses == 1 and each in network for network in allow):
            return AddressRefusal.AZURE
    # An address in which another can be read in several ways is not allowed because of one of them.
    if any(each in network for each in ([address, *meant] if same else [address]) for network in allow):
        return None
    reasons = [] if address in NAT64_LOCAL else [own_refusal(each) for each in meant]
    if not same:
        # Another notation of an IPv4 address is judged as that address.
        reasons.append(own_refusal(address))
    return next((reason for reason in reasons if reason), None)


def own_refusal(address: Address) -> AddressRefusal | None:
    """Return why this IP address is refused, without checking embedded addresses; None if it is public."""
    for network, reason in FORBIDDEN:
        if address in network:
            return reason
    if isinstance(address, IPv6Address) and address not in PUBLIC:
        return AddressRefusal.RESERVED
    return None


def embedded(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that may be embedded in an IPv6 address, for each known format (NAT64, 6to4, Teredo,
    ISATAP).
    """
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    # `::` and `::1` are addresses of their own.
    if any(address in network for network in (*SAME, *OLD)) and number > 1:
        yield IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour:
        yield address.sixtofour
    yield from address.teredo or ()
    if address in NAT64_LOCAL:
        # RFC 6052 for prefixes of 48, 56, 64 and 96 bits; bits 64 to 71 are always left out.
        plain = (number >> 64 & 0xFFFF) << 16
        yield IPv4Address(plain | number >> 40 & 0xFFFF)
        yield IPv4Address((number >> 64 & 0xFF) << 24 | number >> 32 & 0xFFFFFF)
        yield IPv4Address(number >> 24 & 0xFFFFFFFF)
        yield IPv4Address(number & 0xFFFFFFFF)
    if number >> 32 & 0xFFFFFFFF in ISATAP:
        yield IPv4Address(number & 0xFFFFFFFF)


def port_refusal(port: int) -> AddressRefusal | None:
    """Return `PORT` if the port is refused. Allowed are web and mail ports, and ports from 1024 that no internal
    service is known to use.
    """
    if port in INTERNAL_PORTS or not (port in USUAL_PORTS or 1024 <= port <= 65535):
        return AddressRefusal.PORT
    return None
