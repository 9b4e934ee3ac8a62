"""Discovery of the metadata service by DHCP, for machines outside a virtual network.

Classic VMs and cloud services cannot reach 169.254.169.254. Azure's DHCP server states the address of the host's
endpoint in option 245, as four bytes. Sources: "Scheduled Events for Linux VMs in Azure" (Microsoft, 2023-01-25),
section on endpoint discovery; RFC 2131 for the packets.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import time

from drydock_agent.platforms import system

SERVER_PORT, CLIENT_PORT = 67, 68
# Seconds to wait before each request.
REQUEST_DELAYS_SECONDS = (0.0, 10.0, 30.0, 60.0, 60.0)
# Seconds to listen after each request.
LISTEN_SECONDS = 5.0

ENDPOINT_OPTION = 245
_PAD, _MESSAGE_TYPE, _PARAMETER_LIST, _END = 0, 53, 55, 255
_DISCOVER, _NAK = 1, 6
_REQUEST, _REPLY = 1, 2
_COOKIE = bytes((99, 130, 83, 99))
# op, htype, hlen, hops, xid, secs, flags, ciaddr, yiaddr, siaddr, giaddr, chaddr, sname, file
_HEADER = struct.Struct("!BBBB4sHH4s4s4s4s16s64s128s")
# Request a broadcast response, because this socket receives no packets addressed to this machine.
_BROADCAST = 0x8000
# Some servers drop packets shorter than BOOTP's.
_MIN_BYTES = 300


class NotAllowed(Exception):
    """This process may not use the DHCP port. The message names the missing capability."""


def query_dhcp(listen_seconds: float) -> str | None:
    """Send one DHCP request and wait `listen_seconds` for responses. Return the address of the endpoint, or None.
    Raises `NotAllowed`.
    """
    interface = system.network_interface()
    xid, mac = os.urandom(4), system.mac_address(interface)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        _bind(sock, interface)
        try:
            sock.sendto(request(xid, mac), ("255.255.255.255", SERVER_PORT))
        except OSError:
            # No network yet.
            return None
        ends = time.monotonic() + listen_seconds
        while (left := ends - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                packet = sock.recv(4096)
            except OSError:
                return None
            found = endpoint_in(packet, xid, mac)
            if found is not None:
                return found
    return None


def request(xid: bytes, mac: bytes) -> bytes:
    """Return a DHCPDISCOVER packet that requests option 245. It does not take a lease."""
    head = _HEADER.pack(
        _REQUEST, 1, len(mac), 0, xid, 0, _BROADCAST, bytes(4), bytes(4), bytes(4), bytes(4), mac, b"", b""
    )
    options = bytes((_MESSAGE_TYPE, 1, _DISCOVER, _PARAMETER_LIST, 1, ENDPOINT_OPTION, _END))
    return (head + _COOKIE + options).ljust(_MIN_BYTES, b"\0")


def endpoint_in(packet: bytes, xid: bytes, mac: bytes) -> str | None:
    """Return the endpoint address in a DHCP packet, or None if it does not answer the request with this `xid` and `mac`
    or contains no address.
    """
    start = _HEADER.size + len(_COOKIE)
    if len(packet) < start or packet[_HEADER.size : start] != _COOKIE:
        return None
    op, _, length, _, its_xid, _, _, _, _, _, _, its_mac, _, _ = _HEADER.unpack_from(packet)
    if op != _REPLY or its_xid != xid or its_mac[:length] != mac:
        return None
    options = _options(packet[start:])
    value = options.get(ENDPOINT_OPTION, b"")
    if len(value) != 4 or options.get(_MESSAGE_TYPE) == bytes((_NAK,)):
        return None
    address = ipaddress.IPv4Address(value)
    unusable = address.is_unspecified or address.is_loopback or address.is_multicast or value == b"\xff" * 4
    return None if unusable else str(address)


def _options(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data) and data[at] != _END:
        if data[at] == _PAD:
            at += 1
            continue
        if at + 1 >= len(data):
            break
        end = at + 2 + data[at + 1]
        if end <= len(data):
            found.setdefault(data[at], data[at + 2 : end])
        at = end
    return found


def _bind(sock: socket.socket, interface: str) -> None:
    # The DHCP client of the system may use the same port; broadcasts reach both.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    to_device = getattr(socket, "SO_BINDTODEVICE", None)
    if interface and to_device is not None:
        # Bind to the interface, so that the request is sent even without any route.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, to_device, interface.encode())
    try:
        sock.bind(("", CLIENT_PORT))
    except PermissionError:
        raise NotAllowed(
            f"endpoint discovery sends from UDP port 68, {system.DISCOVERY_REFUSED}; or set DRYDOCK_IMDS_URL"
        ) from None
    except OSError as error:
        raise NotAllowed(f"endpoint discovery cannot have UDP port 68: {error.strerror}") from None
