"""A DNS server that changes its answer, and web servers at both addresses, as one process of its own.

It answers the first question for IPv4 with the first address, every later one with the second, and says whom it served.
"""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

FIRST, SECOND = sys.argv[1:]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        say(f"served {self.server.server_address[0]!s}")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nothing: it was said."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def answer(question: bytes, address: str | None) -> bytes:
    # One question and no more: its name ends with an empty label, then come type and class.
    end = question.index(b"\0", 12) + 5
    head = question[:2] + b"\x81\x80\0\1" + (b"\0\1" if address else b"\0\0") + b"\0\0\0\0"
    # A pointer to the name, A, IN, to be forgotten at once, four bytes.
    found = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(address) if address else b""
    return head + question[12:end] + found


for each in (FIRST, SECOND):
    threading.Thread(target=HTTPServer((each, 80), Handler).serve_forever, daemon=True).start()
asked = 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
    listener.bind(("127.0.0.1", 53))
    say("ready")
    while True:
        question, client = listener.recvfrom(512)
        address = None
        if question[question.index(b"\0", 12) + 1 :][:2] == b"\0\1":
            address, asked = FIRST if not asked else SECOND, asked + 1
            say(f"told {address}")
        listener.sendto(answer(question, address), client)
