"""`python -m bench.held_agents PORT FIRST COUNT`: this many agents that only hold their call, each on one connection.

They behave as an agent while nothing happens: they hold `GET /orders`, which reports their state, and repeat it at
once. An agent that is cut off or refused returns with full jitter. Prints one line of JSON a second: calls held,
answers so far, and other statuses by number (0: cut, or not reached).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import cast

import uvloop
from drydock_agent import wire
from drydock_agent.backoff import QUIET_SECONDS

from bench.names import credential, document, spool

ADDRESS = "127.0.0.1"
CONNECT_SECONDS = 30.0
AT_ONCE = 200


class Agent(asyncio.Protocol):
    """One of them; a new one for each connection."""

    __slots__ = ("buffer", "count", "failures", "number", "transport")

    def __init__(self, number: int, count: Count) -> None:
        self.number = number
        self.count = count
        self.failures = 0
        self.transport: asyncio.Transport | None = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # As uvloop has them they are none by their class.
        self.transport = cast(asyncio.Transport, transport)
        self.ask()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        place = head.lower().find(b"content-length:")
        length = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
        if len(body) < length:
            return
        self.buffer = b""
        self.count.held -= 1
        if head.startswith(b"HTTP/1.1 200"):
            self.failures = 0
            self.count.answers += 1
            self.count.wanted += b'"report":true' in body or b'"remind":true' in body
            self.ask()
        else:
            self.count.bad[int(head[9:12])] += 1
            asyncio.get_running_loop().call_later(self.pause(), self.ask)

    def connection_lost(self, error: Exception | None) -> None:
        self.count.held -= self.transport is not None
        self.transport = None
        self.count.bad[0] += 1
        self.come()

    def come(self) -> None:
        asyncio.get_running_loop().call_later(self.pause(), lambda: asyncio.ensure_future(self.connect()))

    async def connect(self) -> None:
        # So many at once: real agents do not share one event loop, and those that wait here are none of the gateway's.
        async with self.count.gate:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await asyncio.get_running_loop().create_connection(lambda: self, ADDRESS, self.count.port)
            except OSError:
                self.count.bad[0] += 1
                self.come()

    def pause(self) -> float:
        self.failures += 1
        return random.uniform(0, min(2.0 ** (self.failures - 1), QUIET_SECONDS))

    def ask(self) -> None:
        if self.transport is None:
            return
        now = datetime.now(UTC).isoformat()[:26] + "Z"
        self.transport.write(
            f"GET {wire.ORDERS_PATH}?wait=50&sent_at={now}&last_poll_at={now}&spool={spool(self.number)}&acknowledged=1"
            f"&document={document(self.number)}&keys= HTTP/1.1\r\nHost: {ADDRESS}:{self.count.port}\r\n"
            f"Authorization: Bearer {credential(self.number)}\r\nUser-Agent: drydock-agent/bench\r\n"
            "Accept: application/json\r\nConnection: keep-alive\r\n\r\n".encode()
        )
        self.count.held += 1


class Count:
    """The common counts of all agents."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.gate = asyncio.Semaphore(AT_ONCE)
        self.held = self.answers = self.wanted = 0
        self.bad: Counter[int] = Counter()


async def main(port: int, first: int, count: int) -> None:
    counted = Count(port)
    for number in range(first, first + count):
        # As after an outage: with their first jitter, all within a second.
        Agent(number, counted).come()
    while True:
        await asyncio.sleep(1)
        said = {"held": counted.held, "answers": counted.answers, "wanted": counted.wanted, "bad": dict(counted.bad)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*(int(argument) for argument in sys.argv[1:4])))
