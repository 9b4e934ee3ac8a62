"""`python -m bench.load_fleet URL JOIN_TOKEN COUNT`: this many machines with a long poll for orders, in one process.

Each enrols, holds `GET /orders`, repeats it when it is answered, and sends an empty batch every half minute, as a real
agent does while nothing happens. Prints one line once all calls are held.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from drydock_agent import wire

HEARTBEAT_SECONDS = 30.0
ENROL_AT_ONCE = 8


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


async def call(address: tuple[str, int], method: str, path: str, *, token: str = "", body: bytes = b"") -> bytes:
    """One call on a connection of its own; the answer's body. Raises OSError."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n{bearer}Connection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    head_bytes, _, content = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head_bytes.split(b"\r\n", 1)[0]:
        raise OSError(head_bytes.split(b"\r\n", 1)[0].decode(errors="replace"))
    return content


class Machine:
    """One of them."""

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self.address = address
        self.number = number
        self.token = ""
        self.spool = str(uuid4())

    async def enrol(self, join_token: str, gate: asyncio.Semaphore) -> None:
        request = {
            "join_token": join_token,
            "machine_id": str(uuid4()),
            "resource_name": f"load-{self.number}",
            "availability_set": f"standalone:load-{self.number}",
        }
        async with gate:
            said = await call(self.address, "POST", wire.ENROL_PATH, body=json.dumps(request).encode())
        self.token = json.loads(said)["credential"]

    async def hold(self, held: asyncio.Semaphore) -> None:
        first = True
        while True:
            query = urlencode({"wait": wire.MAX_WAIT_SECONDS, "sent_at": now(), "last_poll_at": now()})
            if first:
                held.release()
                first = False
            try:
                await call(self.address, "GET", f"{wire.ORDERS_PATH}?{query}", token=self.token)
            except OSError:
                await asyncio.sleep(random.uniform(0.5, 2))

    async def beat(self) -> None:
        await asyncio.sleep(random.uniform(0, HEARTBEAT_SECONDS))
        while True:
            batch = {"spool": self.spool, "sent_at": now(), "last_poll_at": now(), "reports": []}
            try:
                await call(self.address, "POST", wire.REPORTS_PATH, token=self.token, body=json.dumps(batch).encode())
            except OSError as error:
                print(f"heartbeat: {error}", flush=True)
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def main(url: str, join_token: str, count: int) -> None:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    machines = [Machine(address, number) for number in range(count)]
    gate = asyncio.Semaphore(ENROL_AT_ONCE)
    await asyncio.gather(*(machine.enrol(join_token, gate) for machine in machines))
    held = asyncio.Semaphore(0)
    tasks = [asyncio.ensure_future(work) for machine in machines for work in (machine.hold(held), machine.beat())]
    for _ in machines:
        await held.acquire()
    print(f"{count} machines hold their calls.", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
