"""`python -m bench.agent_load PLAN PART OF`: many simulated agents in one process, which use the real wire.

The plan (JSON) names gateway, simulator and machines; the process takes each OFth machine from PART on. It queries the
simulator's changes on behalf of all of them, and each machine then "polls" within a second: a document of its own,
numbered in its spool, sent until acknowledged. Those with a long poll carry out their orders: `StartRequests` at the
simulator, then the receipt. SIGTERM ends it; it writes its observations and counts to PLAN.PART.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from drydock_agent import wire

# Real agents have a connection each; these share some, since a process has few files. With too few of them reports
# would wait here, where urgent ones cannot be preferred.
LINES = 6000
POLL_SECONDS = 1.0
ASK_SECONDS = 0.25
HOLD_SECONDS = 40
PAUSE_SECONDS = 1.0
# Calls that begin together are spread over so long.
SPREAD_SECONDS = 5.0
# Reports that are not acknowledged this long after the end count as lost.
LAST_SECONDS = 30.0


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class Line:
    """A kept-alive connection, one call at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def call(
        self, method: str, path: str, *, token: str = "", body: bytes = b"", more: str = ""
    ) -> tuple[int, float, bytes]:
        """Return the status, `Retry-After` in seconds, and the body. Raises OSError; the next call reconnects."""
        try:
            # The other side may have ended a connection that nothing used for a while.
            if self.reader is None or self.writer is None or self.reader.at_eof() or self.writer.is_closing():
                self.close()
                self.reader, self.writer = await asyncio.open_connection(*self.address)
            bearer = f"Authorization: Bearer {token}\r\n" if token else ""
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {self.address[0]}:{self.address[1]}\r\n{bearer}{more}"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self.writer.write(head.encode() + body)
            answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            content = await self.reader.readexactly(int(_header(answer, b"content-length:") or 0))
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            self.close()
            raise OSError(str(error)) from error
        except asyncio.CancelledError:
            self.close()
            raise
        return int(answer[9:12]), float(_header(answer, b"retry-after:") or 0), content

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def _header(head: bytes, name: bytes) -> bytes:
    place = head.find(b"\r\n" + name)
    return head[place + 2 + len(name) :].split(b"\r\n", 1)[0].strip() if place >= 0 else b""


@dataclass(slots=True, eq=False)
class Machine:
    """One simulated agent; `seq` is the last number of its spool. `waiting` are reports that are not acknowledged."""

    vm: str
    token: str
    spool: str
    seq: int
    holds: bool
    incarnation: int = 1000
    waiting: list[dict[str, Any]] = field(default_factory=list)
    sending: bool = False
    # Its orders until their receipts are acknowledged, as `<order id>:<via>`, with the number of each receipt.
    held: dict[str, int | None] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def report(self, kind: str, data: dict[str, Any]) -> None:
        self.seq += 1
        self.waiting.append({"seq": self.seq, "kind": kind, "at": now(), "data": data})

    def acknowledged(self, up_to: int) -> None:
        self.waiting = [report for report in self.waiting if report["seq"] > up_to]
        self.held = {order: seq for order, seq in self.held.items() if seq is None or seq > up_to}


class AgentLoad:
    """Its machines by set, and what it has seen and done: times in seconds since 1970, by EventId."""

    def __init__(self, plan: dict[str, Any], machines: dict[str, list[Machine]]) -> None:
        self.gateway, self.simulator = plan["gateway"], plan["simulator"]
        self.machines = machines
        self.seen: dict[str, float] = {}
        self.sent = 0
        self.answers: Counter[int] = Counter()
        self.started: list[tuple[str, float, int]] = []
        self.queue: asyncio.Queue[Machine] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        for _ in range(LINES):
            self._task(self._send())
        self.watch = self._task(self._watch())
        for machine in self._everybody():
            if machine.holds:
                self._task(self._hold(machine))

    async def end(self) -> None:
        """Poll no more, and end once everything is acknowledged, or when that takes too long."""
        self.watch.cancel()
        await asyncio.sleep(POLL_SECONDS)
        for _ in range(int(LAST_SECONDS / POLL_SECONDS)):
            if not self.said()["waiting"]:
                break
            await asyncio.sleep(POLL_SECONDS)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def said(self) -> dict[str, Any]:
        waiting = sum(len(machine.waiting) for machine in self._everybody())
        return {
            "seen": self.seen,
            "sent": self.sent,
            "waiting": waiting,
            "answers": {str(status): count for status, count in self.answers.items()},
            "started": self.started,
        }

    def _everybody(self) -> list[Machine]:
        return [machine for of_set in self.machines.values() for machine in of_set]

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _watch(self) -> None:
        """Each change at Azure reaches each machine of its set within a second, as polls would find it."""
        line, since = Line(self.simulator), 0
        loop = asyncio.get_running_loop()
        while True:
            with suppress(OSError):
                _, _, content = await line.call("GET", f"/control/changes?since={since}")
                told = json.loads(content)
                since = told["next"]
                for one in told["sets"]:
                    events = json.dumps(one["Events"], separators=(",", ":"))
                    ids = [event["EventId"] for event in one["Events"]]
                    for machine in self.machines.get(one["set"], ()):
                        loop.call_later(random.uniform(0, POLL_SECONDS), self._polled, machine, events, ids)
            await asyncio.sleep(ASK_SECONDS)

    def _polled(self, machine: Machine, events: str, ids: list[str]) -> None:
        at = time.time()
        for event_id in ids:
            self.seen.setdefault(event_id, at)
        machine.incarnation += 1
        body = f'{{"DocumentIncarnation":{machine.incarnation},"Events":{events}}}'
        hashed = hashlib.sha256(body.encode()).hexdigest()
        data = {"body": body, "hash": hashed, "incarnation": machine.incarnation, "api_version": "2020-07-01"}
        machine.report(wire.DOCUMENT, data)
        self._soon(machine)

    def _soon(self, machine: Machine) -> None:
        if machine.waiting and not machine.sending:
            machine.sending = True
            self.queue.put_nowait(machine)

    async def _send(self) -> None:
        line = Line(self.gateway)
        while True:
            machine = await self.queue.get()
            reports = machine.waiting[: wire.MAX_REPORTS]
            batch = {
                "spool": machine.spool,
                "sent_at": now(),
                "last_poll_at": now(),
                "held": list(machine.held),
                "reports": reports,
            }
            status, later, content = 0, 0.0, b""
            with suppress(OSError):
                status, later, content = await line.call(
                    "POST", wire.REPORTS_PATH, token=machine.token, body=json.dumps(batch).encode()
                )
            self.answers[status] += 1
            machine.sending = False
            if status != 200:
                # Full jitter, as agents do.
                asyncio.get_running_loop().call_later(random.uniform(0, max(1.0, later)), self._soon, machine)
                continue
            said = json.loads(content)
            self.sent += len(reports)
            machine.acknowledged(said["acknowledged"])
            self._soon(machine)
            for order in said["orders"]:
                self._task(self._carry_out(machine, order))

    async def _hold(self, machine: Machine) -> None:
        line = Line(self.gateway)
        await asyncio.sleep(random.uniform(0, SPREAD_SECONDS))
        while True:
            held, began = ",".join(machine.held), time.monotonic()
            query = urlencode({"wait": HOLD_SECONDS, "sent_at": now(), "last_poll_at": now(), "held": held})
            try:
                status, later, content = await line.call("GET", f"{wire.ORDERS_PATH}?{query}", token=machine.token)
            except OSError:
                status, later, content = 0, 1.0, b""
            if status != 200:
                await asyncio.sleep(random.uniform(0, max(1.0, later)))
                continue
            orders = json.loads(content)["orders"]
            news = [order for order in orders if order["id"] not in machine.done]
            for order in news:
                await self._carry_out(machine, order)
            # An agent that receives nothing new, or is refused at once, pauses before the next call.
            if not news and (orders or time.monotonic() - began < PAUSE_SECONDS):
                await asyncio.sleep(PAUSE_SECONDS)

    async def _carry_out(self, machine: Machine, order: dict[str, Any]) -> None:
        """Send an order to Azure once, and report the answer."""
        if order["id"] in machine.done:
            return
        machine.done.add(order["id"])
        held = f"{order['id']}:{order['via']}"
        machine.held[held] = None
        body = json.dumps({"StartRequests": [{"EventId": order["event_id"]}]}).encode()
        path = f"/vm/{machine.vm}/metadata/scheduledevents?api-version=2020-07-01"
        line, at = Line(self.simulator), now()
        outcome: dict[str, Any] = {"outcome": wire.FAILED, "reason": "no answer"}
        with suppress(OSError):
            status, _, _ = await line.call("POST", path, body=body, more="Metadata: true\r\n")
            self.started.append((order["event_id"], time.time(), status))
            outcome = {"outcome": wire.ANSWERED, "azure_status": status, "reason": ""}
        line.close()
        of_order = {"order_id": order["id"], "event_id": order["event_id"], "via": order["via"], "posts": 1}
        machine.report(wire.RECEIPT, {**of_order, "attempted_at": at, **outcome})
        machine.held[held] = machine.seq
        self._soon(machine)


async def main(load: AgentLoad) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    load.begin()
    await asyncio.sleep(SPREAD_SECONDS)
    print("The agents are there.", flush=True)
    await over.wait()
    await load.end()


def run(plan_file: Path, part: int, of: int) -> None:
    plan = json.loads(plan_file.read_text())
    machines: dict[str, list[Machine]] = {}
    for name, *row in plan["machines"][part::of]:
        machines.setdefault(name, []).append(Machine(*row))
    load = AgentLoad(plan, machines)
    asyncio.run(main(load))
    plan_file.with_name(f"{plan_file.name}.{part}").write_text(json.dumps(load.said()))


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
