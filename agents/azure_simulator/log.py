"""Log of requests to the metadata service: the newest ones, in memory."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure_simulator.clock import rfc3339
from azure_simulator.http import Request, parse_headers

KEPT = 50_000


@dataclass(slots=True)
class Entry:
    """One logged request. `status` is None until it is answered, and 0 if the connection was closed without a
    response.
    """

    index: int
    vm: str
    at: datetime
    method: str
    target: str
    # Stored as received and parsed on request: a quarter of the memory.
    head: bytes
    body: bytes
    status: int | None = None

    def shown(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "vm": self.vm,
            "method": self.method,
            "path": self.target,
            "headers": parse_headers(self.head),
            "body": self.body.decode("utf-8", "backslashreplace"),
            "status": self.status,
            "time": rfc3339(self.at),
        }


class Log:
    """The newest GET requests and, separately, the newest other requests, so that polls do not displace approvals."""

    def __init__(self, kept: int = KEPT) -> None:
        self._gets: deque[Entry] = deque(maxlen=kept)
        self._others: deque[Entry] = deque(maxlen=kept)
        self._index = 0

    def add(self, vm: str, at: datetime, request: Request) -> Entry:
        self._index += 1
        entry = Entry(self._index, vm, at, request.method, request.target, request.head, request.body)
        (self._gets if request.method == "GET" else self._others).append(entry)
        return entry

    def entries(self, *, since: int = 0, method: str = "", vm: str = "", limit: int = 0) -> list[dict[str, Any]]:
        """Return entries with an index above `since`, newest last. With `limit`, only the newest ones."""
        merged = heapq.merge(self._gets, self._others, key=lambda entry: entry.index)
        wanted = [
            entry for entry in merged if entry.index > since and method in ("", entry.method) and vm in ("", entry.vm)
        ]
        return [entry.shown() for entry in (wanted[-limit:] if limit else wanted)]
