"""Carries orders out: each once, written down before Azure is asked, and answered by a receipt in the spool."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from drydock_agent import wire
from drydock_agent.backend.client import order_to_text, read_orders
from drydock_agent.clock import from_text, to_text
from drydock_agent.connections import NoAnswer
from drydock_agent.context import Context
from drydock_agent.drills import Rehearsal, is_drill, is_drill_id
from drydock_agent.metadata_service.client import Imds, StartAnswer
from drydock_agent.metadata_service.scheduled_events import ScheduledEvents
from drydock_agent.spool.store import SpoolError

# After a start the newest document may be an old one: how long an order waits for the first poll of this run.
FIRST_POLL_SECONDS = 10.0
# This machine's metadata service may be behind, and know the event in a moment. Where Azure is busy (429, 5xx), the
# backend decides when it is asked again, and by whom.
BEHIND = (404, 410)
RETRY_SECONDS = (0.2, 1.0)
BODY_CHARACTERS = 2000
# Receipts, to a backend that lost them: orders are few, and those of long ago concern nobody.
MOST_TOLD_AGAIN = 100

log = logging.getLogger("drydock_agent")


@dataclass(slots=True)
class _Known:
    order: wire.Order
    # The receipt's number in the spool, None until it is written there.
    receipt_seq: int | None = None
    receipt: dict[str, Any] | None = None
    # When an earlier run wrote the attempt down and stopped before the receipt.
    interrupted_at: datetime | None = None
    queued: bool = False


class Orders:
    """`take` is called by whoever received orders, from any thread; `step` carries them out in a thread of its own."""

    name = "orders"

    def __init__(
        self,
        context: Context,
        *,
        imds: Imds,
        scheduled_events: ScheduledEvents,
        rehearsal: Rehearsal,
        trust: Callable[[wire.Order], str] = lambda order: "",
    ) -> None:
        self.wake = threading.Event()
        self._context = context
        self._clock = context.clock
        self._spool = context.spool
        self._imds = imds
        self._scheduled_events = scheduled_events
        self._rehearsal = rehearsal
        self._trust = trust
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._queue: deque[_Known] = deque()
        self._first_poll_until = context.clock.monotonic() + FIRST_POLL_SECONDS
        self.reload()
        for known in self._known.values():
            if known.interrupted_at is not None and known.receipt is None:
                known.queued = True
                self._queue.append(known)

    def reload(self) -> None:
        """Read the orders from the spool: at the start, and when the spool was numbered anew."""
        with self._lock:
            for stored in self._spool.orders():
                orders, _ = read_orders([json.loads(stored.body)])
                receipt = json.loads(stored.receipt) if stored.receipt else None
                known = self._known.setdefault(stored.id, _Known(orders[0]))
                known.receipt, known.receipt_seq = receipt, stored.receipt_seq
                if receipt is None and not known.queued:
                    known.interrupted_at = from_text(stored.attempted_at)

    def take(self, orders: list[wire.Order], unreadable: int = 0) -> bool:
        """Note the orders of an answer. True when one of them was new, or is answered anew."""
        if unreadable:
            self._context.limiter.warn("order", "The backend sent an order without an id.")
        news = False
        with self._lock:
            for order in orders:
                known = self._known.get(order.id)
                if known is None:
                    known = self._known[order.id] = _Known(order)
                elif known.queued or known.receipt_seq is None or known.receipt_seq > self._spool.acknowledged:
                    # On its way already: being carried out, or its receipt is.
                    continue
                known.queued = news = True
                self._queue.append(known)
        if news:
            self.wake.set()
        return news

    def tell_again(self, left: int) -> None:
        """Write once more what became of orders, as far as the backend has only the reports up to number `left`."""
        acknowledged = self._spool.acknowledged
        with self._lock:
            lost = [
                known
                for known in self._known.values()
                if known.receipt is not None and not known.queued and left < (known.receipt_seq or 0) <= acknowledged
            ]
            for known in lost[-MOST_TOLD_AGAIN:]:
                known.queued = True
                self._queue.append(known)
        self.wake.set()

    def held(self) -> list[str]:
        """The orders that this machine has and whose receipt the backend has not, as `<order id>:<via>`."""
        acknowledged = self._spool.acknowledged
        with self._lock:
            return [
                f"{known.order.id}:{known.order.via}"
                for known in self._known.values()
                if known.queued or known.receipt_seq is None or known.receipt_seq > acknowledged
            ]

    def step(self) -> float:
        """One order. 0 when it found one, else the seconds until it looks again."""
        if not self._queue:
            return 3600.0
        if not self._scheduled_events.seen.is_set() and self._clock.monotonic() < self._first_poll_until:
            return 0.02
        known = self._queue[0]
        try:
            self._handle(known)
        except SpoolError as error:
            # Unwritten is undone: without its attempt on disk an order does not reach Azure.
            self._context.limiter.warn("spool", f"The spool cannot be written, so orders wait: {error}.")
            return 1.0
        with self._lock:
            self._queue.popleft()
            known.queued = False
            self._shrink()
        self._context.to_upload.set()
        return 0.0

    def interrupt(self) -> None:
        """End the call in progress."""
        self._stopping.set()
        self._imds.interrupt()

    def cut_if_overdue(self) -> None:
        """End a call that would never end by itself."""
        self._imds.cut_if_overdue()

    def _handle(self, known: _Known) -> None:
        if known.receipt is None:
            # Cut off by our own stop, it raises: the attempt stays without a receipt, and the next run repeats it.
            known.receipt = self._carry_out(known)
            log.info("Order %s: %s.", known.order.id, _in_words(known.receipt), extra=_found_by(known.order))
        known.receipt_seq = self._spool.receipt(
            known.order.id, order_to_text(known.order), wire.RECEIPT, self._clock.now(), known.receipt
        )

    def _carry_out(self, known: _Known) -> dict[str, Any]:
        order = known.order
        if is_drill(order):
            # It has no way from here to the metadata service.
            return _rehearsed(order, self._trust(order) or self._rehearsal.carry_out(order))
        reason, event_id = self._judge(order)
        if not reason and known.interrupted_at is None and self._scheduled_events.started(order.event_id):
            # Azure would answer 200 to that as well, and it would look as if this order had started the event. One
            # that this machine has asked for before its stop is asked for again: most likely it has started it.
            reason = "already-started"
        if reason and known.interrupted_at is not None:
            # Azure may have been asked before the stop: "refused" would claim that it was not.
            words = f"the agent stopped while it asked; now the order is {reason}"
            return _receipt(order, wire.FAILED, reason=words, attempted_at=known.interrupted_at)
        if reason:
            return _receipt(order, wire.REFUSED, reason=reason)
        attempted_at = self._clock.now()
        self._spool.attempt(order.id, order_to_text(order), attempted_at)
        posts = 0
        started: StartAnswer | None = None
        failure = ""
        for pause in (*RETRY_SECONDS, None):
            posts += 1
            try:
                started, failure = self._imds.start(event_id), ""
            except NoAnswer as error:
                started, failure = None, str(error)
                again = not error.timed_out
            else:
                again = started.status in BEHIND
            # Azure starts an event once, however often it is asked.
            if not again or pause is None or self._over(pause, order):
                break
        return _receipt(
            order,
            wire.ANSWERED if started else wire.FAILED,
            reason=failure,
            started=started,
            attempted_at=attempted_at,
            posts=posts,
        )

    def _judge(self, order: wire.Order) -> tuple[str, str]:
        """Why this order is not for Azure, or no reason and the event's id as the newest document spells it."""
        if not order.event_id or not order.machine_id:
            return "unreadable", ""
        if order.machine_id.lower() != self._context.machine_id.lower():
            return "wrong-machine", ""
        distrust = self._trust(order)
        if distrust:
            return distrust, ""
        if order.expires_at is not None and self._context.server_clock.now() >= order.expires_at:
            return "expired", ""
        event_id = self._scheduled_events.listed(order.event_id)
        return ("", event_id) if event_id is not None else ("not-listed", "")

    def _over(self, pause: float, order: wire.Order) -> bool:
        # After a stop the next call raises; that is for the caller's caller.
        self._stopping.wait(pause)
        return bool(self._judge(order)[0])

    def _shrink(self) -> None:
        answered = [key for key, known in self._known.items() if known.receipt_seq is not None and not known.queued]
        for key in answered[:-1000]:
            del self._known[key]


def _receipt(
    order: wire.Order,
    outcome: str,
    *,
    reason: str = "",
    attempted_at: datetime | None = None,
    started: StartAnswer | None = None,
    posts: int = 0,
) -> dict[str, Any]:
    receipt = wire.ReceiptData(
        order_id=order.id,
        event_id=order.event_id,
        outcome=outcome,
        azure_status=started.status if started else None,
        azure_body=started.body[:BODY_CHARACTERS] if started else "",
        reason=reason,
        posts=posts,
        retry_after=started.retry_after if started else None,
        via=order.via,
    )
    return {**asdict(receipt), "attempted_at": to_text(attempted_at) if attempted_at else None}


def _found_by(order: wire.Order) -> dict[str, str]:
    """What a line says of the order, by which the decision is found in every log."""
    return {"order_id": order.id, "request_id": order.request_id, "trace_id": order.trace_id}


def _rehearsed(order: wire.Order, refused: str) -> dict[str, Any]:
    if refused:
        return _receipt(order, wire.REFUSED, reason=refused)
    asked = (order.drill or {}).get("step") == "approve"
    body = "A drill: the rehearsal on this machine answered, Azure was not asked."
    return _receipt(order, wire.ANSWERED, started=StartAnswer(200, body) if asked else None)


def _in_words(receipt: dict[str, Any]) -> str:
    if receipt["outcome"] == wire.ANSWERED:
        if is_drill_id(receipt["event_id"]):
            return "a drill's, done"
        return f"the metadata service answered {receipt['azure_status']}"
    return f"{receipt['outcome']}, {receipt['reason']}"
