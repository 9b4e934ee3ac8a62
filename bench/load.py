"""A small load generator: keep-alive connections on loopback, one request in flight on each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import uvloop


@dataclass(slots=True)
class Round:
    """One round's outcome: good answers, others by status (0: cut off), seconds it took, each answer's seconds."""

    good: int = 0
    bad: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.good / self.seconds if self.seconds else 0.0

    def percentile(self, part: float) -> float:
        """The time in milliseconds that `part` of the answers stayed within."""
        ordered = sorted(self.times)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1000 if ordered else 0.0


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last is answered, until the requests end or the time is over."""

    def __init__(self, requests: Iterator[bytes], outcome: Round, deadline: float) -> None:
        self.requests = requests
        self.outcome = outcome
        self.deadline = deadline
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self.buffer = b""
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # As uvloop has them they are none by their class.
        self.transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        place = head.find(b"content-length:")
        length = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        status = int(self.buffer[9:12])
        self.buffer = self.buffer[end + 4 + length :]
        now = time.perf_counter()
        self.outcome.times.append(now - self.sent_at)
        if status == 200 or status == 201:
            self.outcome.good += 1
        else:
            self.outcome.bad[status] = self.outcome.bad.get(status, 0) + 1
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.outcome.bad[0] = self.outcome.bad.get(0, 0) + 1
            self.done.set_result(None)

    def _next(self) -> None:
        assert self.transport is not None
        request = next(self.requests, None) if time.perf_counter() < self.deadline else None
        if request is None:
            if not self.done.done():
                self.done.set_result(None)
            self.transport.close()
            return
        self.sent_at = time.perf_counter()
        self.transport.write(request)


async def _run(port: int, streams: list[Iterator[bytes]], seconds: float) -> Round:
    outcome = Round()
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda one=one: Connection(one, outcome, began + seconds), "127.0.0.1", port)  # type: ignore[misc]
        for one in streams
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    outcome.seconds = time.perf_counter() - began
    return outcome


def run(port: int, streams: list[Iterator[bytes]], seconds: float) -> Round:
    """Drive each iterator of ready-made requests over a connection of its own, for at most `seconds`."""
    # The gateway's own event loop: what the load costs is taken from the cores that are measured.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(port, streams, seconds))


def post(path: str, body: bytes, *, token: str = "", port: int = 0) -> bytes:
    """The bytes of one POST of JSON."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{bearer}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
