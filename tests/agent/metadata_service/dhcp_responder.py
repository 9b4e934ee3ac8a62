"""Azure's DHCP server as far as discovery needs it: `dhcp_responder.py INTERFACE ADDRESS IGNORED`.

Answers DHCPDISCOVERs that ask for option 245 with ADDRESS in it, after having ignored so many; writes a line for each.
"""

import ipaddress
import socket
import struct
import sys

COOKIE = b"\x63\x82\x53\x63"


def main() -> None:
    interface, address, ignored = sys.argv[1], ipaddress.IPv4Address(sys.argv[2]), int(sys.argv[3])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        sock.bind(("", 67))
        say("ready")
        while True:
            asked, (_, port) = sock.recvfrom(4096)
            if not well_formed(asked) or port != 68:
                say("malformed")
                continue
            ignored -= 1
            if ignored >= 0:
                say("ignored")
                continue
            # First an answer to another client's request, as happens on a shared network.
            for xid in (b"\0\0\0\0", asked[4:8]):
                sock.sendto(offer(asked, xid, address), ("255.255.255.255", 68))
            say("answered")


def well_formed(asked: bytes) -> bool:
    flags = struct.unpack_from("!H", asked, 10)[0]
    is_request = asked[:3] == b"\x01\x01\x06" and flags == 0x8000 and asked[236:240] == COOKIE
    return is_request and len(asked) >= 300 and asked[240:246] == b"\x35\x01\x01\x37\x01\xf5"


def offer(asked: bytes, xid: bytes, address: ipaddress.IPv4Address) -> bytes:
    head = b"\x02\x01\x06\0" + xid + asked[8:12] + b"\0" * 4 + b"\x0a\0\0\x04" + b"\x0a\0\0\x01" + b"\0" * 4
    lease = b"\x33\x04\xff\xff\xff\xff" + b"\x36\x04\xa8\x3f\x81\x10" + b"\x01\x04\xff\xff\xff\0"
    options = b"\x35\x01\x02" + lease + b"\0\0" + b"\xf5\x04" + address.packed + b"\xff"
    return head + asked[28:44] + b"\0" * 192 + COOKIE + options


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
