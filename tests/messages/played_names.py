"""The sender's process with a resolver that is played: a program of the tests, which takes its place.

Its argument is a table in JSON: for each name the addresses of the first lookup, of the second, and so on; the last one
stays. Everything else is as in the real one.
"""

import json
import socket
import sys
from typing import Any

from fleet.notifications.sender.process import main

TABLE: dict[str, list[list[str]]] = json.loads(sys.argv[1])
real = socket.getaddrinfo


def played(host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
    name = str(host).rstrip(".")
    if name not in TABLE:
        return real(host, port, *arguments, **options)
    answers = TABLE[name]
    addresses = answers.pop(0) if len(answers) > 1 else answers[0]
    return [found for address in addresses for found in real(address, port, *arguments, **options)]


socket.getaddrinfo = played
main(*sys.argv[2:])
