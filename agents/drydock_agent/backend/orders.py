"""Handling of orders. Each order is recorded before the request to Azure, carried out once, and answered with a receipt
in the spool.
"""

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

# How long an order waits for the first poll of this run, because the stored document may be old.
FIRST_POLL_SECONDS = 10.0
# This machine's metadata service may list the event a moment later. If Azure is busy (429, 5xx), the backend decides
# which machine repeats the request, and when.
LAGGING_STATUSES = (404, 410)
RETRY_SECONDS = (0.2, 1.0)
# Azure's answers that deny a start.
DENIED_STATUSES = (400, 404, 410)
BODY_CHARACTERS = 2000
# Receipts sent again to a backend that lost them; older ones are no longer relevant.
MAX_RESENT_RECEIPTS = 100

log = logging.getLogger("drydock_agent")


@dataclass(slots=True)
class _TrackedOrder:
    order: wire.Order
    # The receipt's number in the spool, None until it is written there.
    receipt_seq: int | None = None
    receipt: dict[str, Any] | None = None
    # Time of an attempt that an earlier run recorded before it stopped without a receipt.
    interrupted_at: datetime | None = None
    queued: bool = False


class Orders:
    """Queue of received orders. `accept` may be called from any thread; `step` carries out orders in its own thread."""

    name = "orders"

    def __init__(
        self,
        context: Context,
        *,
        imds: Imds,
        scheduled_events: ScheduledEvents,
        rehearsal: Rehearsal,
        signature_fault: Callable[[wire.Order], str] = lambda order: "",
    ) -> None:
        self.wake = threading.Event()
        self._context = context
        self._clock = context.clock
        self._spool = context.spool
        self._imds = imds
        self._scheduled_events = scheduled_events
        self._rehearsal = rehearsal
        self._signature_fault = signature_fault
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._tracked: dict[str, _TrackedOrder] = {}
        self._queue: deque[_TrackedOrder] = deque()
        self._first_poll_until = context.clock.monotonic() + FIRST_POLL_SECONDS
        self.reload()
        for tracked in self._tracked.values():
            if tracked.interrupted_at is not None and tracked.receipt is None:
                tracked.queued = True
                self._queue.append(tracked)

    def reload(self) -> None:
        """Load the orders from the spool, at start and after the spool was renumbered."""
        with self._lock:
            for stored in self._spool.orders():
                orders, _ = read_orders([json.loads(stored.body)])
                receipt = json.loads(stored.receipt) if stored.receipt else None
                tracked = self._tracked.setdefault(stored.id, _TrackedOrder(orders[0]))
                tracked.receipt, tracked.receipt_seq = receipt, stored.receipt_seq
                if receipt is None and not tracked.queued:
                    tracked.interrupted_at = from_text(stored.attempted_at)

    def accept(self, orders: list[wire.Order], unreadable: int = 0) -> bool:
        """Queue the orders of a response. `unreadable` counts orders without an id. Return True if an order is new or
        its receipt must be sent again.
        """
        if unreadable:
            self._context.limiter.warn("order", "The backend sent an order without an id.")
        news = False
        with self._lock:
            for order in orders:
                tracked = self._tracked.get(order.id)
                if tracked is None:
                    tracked = self._tracked[order.id] = _TrackedOrder(order)
                elif tracked.queued or tracked.receipt_seq is None or tracked.receipt_seq > self._spool.acknowledged:
                    # Already queued, or its receipt is not yet acknowledged.
                    continue
                tracked.queued = news = True
                self._queue.append(tracked)
        if news:
            self.wake.set()
        return news

    def resend(self, left: int) -> None:
        """Write the receipts again that the backend has lost: those with a report number above `left`."""
        acknowledged = self._spool.acknowledged
        with self._lock:
            lost = [
                tracked
                for tracked in self._tracked.values()
                if tracked.receipt is not None
                and not tracked.queued
                and left < (tracked.receipt_seq or 0) <= acknowledged
            ]
            for tracked in lost[-MAX_RESENT_RECEIPTS:]:
                tracked.queued = True
                self._queue.append(tracked)
        self.wake.set()

    def unacknowledged(self) -> list[str]:
        """Return the orders whose receipts the backend has not acknowledged, as `<order id>:<via>`."""
        acknowledged = self._spool.acknowledged
        with self._lock:
            return [
                f"{tracked.order.id}:{tracked.order.via}"
                for tracked in self._tracked.values()
                if tracked.queued or tracked.receipt_seq is None or tracked.receipt_seq > acknowledged
            ]

    def step(self) -> float:
        """Carry out the next order. Return 0 if there was one, else the seconds until the next check."""
        if not self._queue:
            return 3600.0
        if not self._scheduled_events.seen.is_set() and self._clock.monotonic() < self._first_poll_until:
            return 0.02
        tracked = self._queue[0]
        try:
            self._handle(tracked)
        except SpoolError as error:
            # An order is sent to Azure only after its attempt is on disk.
            self._context.limiter.warn("spool", f"The spool cannot be written, so orders wait: {error}.")
            return 1.0
        with self._lock:
            self._queue.popleft()
            tracked.queued = False
            self._forget_oldest()
        self._context.to_upload.set()
        return 0.0

    def interrupt(self) -> None:
        """Abort the current call to the metadata service."""
        self._stopping.set()
        self._imds.interrupt()

    def cut_if_overdue(self) -> None:
        """Abort the current call to the metadata service if it has taken too long."""
        self._imds.cut_if_overdue()

    def _handle(self, tracked: _TrackedOrder) -> None:
        if tracked.receipt is None:
            # If the agent stops, this raises: the attempt has no receipt, and the next run repeats it.
            tracked.receipt = self._carry_out(tracked)
            log.info("Order %s: %s.", tracked.order.id, _describe(tracked.receipt), extra=_log_fields(tracked.order))
        tracked.receipt_seq = self._spool.receipt(
            tracked.order.id, order_to_text(tracked.order), wire.RECEIPT, self._clock.now(), tracked.receipt
        )

    def _carry_out(self, tracked: _TrackedOrder) -> dict[str, Any]:
        order = tracked.order
        if is_drill(order):
            # A drill never reaches the metadata service.
            return _drill_receipt(order, self._signature_fault(order) or self._rehearsal.carry_out(order))
        reason, event_id = self._refusal(order)
        if not reason and tracked.interrupted_at is None and self._scheduled_events.started(order.event_id):
            # Azure answers 200 for a started event too, which would look as if this order had started it. A request
            # that the agent's stop interrupted is repeated: most likely it has started the event.
            reason = "already-started"
        if reason and tracked.interrupted_at is not None:
            # An earlier run may have sent the request to Azure. The outcome "refused" would deny that.
            words = f"the agent stopped while it asked; now the order is {reason}"
            return _receipt(order, wire.FAILED, reason=words, attempted_at=tracked.interrupted_at)
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
                again = started.status in LAGGING_STATUSES
            # Azure starts an event only once, also after several requests.
            if not again or pause is None or self._is_settled_after(pause, order):
                break
        if tracked.interrupted_at is not None and started is not None and started.status in DENIED_STATUSES:
            # The event may be over by now, because the interrupted request has started it.
            words = f"the agent stopped while it asked; the repeated request was answered with {started.status}"
            return _receipt(order, wire.FAILED, reason=words, attempted_at=tracked.interrupted_at, posts=posts)
        return _receipt(
            order,
            wire.ANSWERED if started else wire.FAILED,
            reason=failure,
            started=started,
            attempted_at=attempted_at,
            posts=posts,
        )

    def _refusal(self, order: wire.Order) -> tuple[str, str]:
        """Return the reason why this order must be refused. If there is none, return an empty reason and the event id
        as the newest document spells it.
        """
        if not order.event_id or not order.machine_id:
            return "unreadable", ""
        if order.machine_id.lower() != self._context.machine_id.lower():
            return "wrong-machine", ""
        distrust = self._signature_fault(order)
        if distrust:
            return distrust, ""
        if order.expires_at is not None and self._context.server_clock.now() >= order.expires_at:
            return "expired", ""
        event_id = self._scheduled_events.listed(order.event_id)
        return ("", event_id) if event_id is not None else ("not-listed", "")

    def _is_settled_after(self, pause: float, order: wire.Order) -> bool:
        # After a stop the next call raises `Interrupted`.
        self._stopping.wait(pause)
        return bool(self._refusal(order)[0])

    def _forget_oldest(self) -> None:
        answered = [
            key for key, tracked in self._tracked.items() if tracked.receipt_seq is not None and not tracked.queued
        ]
        for key in answered[:-1000]:
            del self._tracked[key]


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


def _log_fields(order: wire.Order) -> dict[str, str]:
    """Return the log fields by which log lines of several processes about this order can be found."""
    return {"order_id": order.id, "request_id": order.request_id, "trace_id": order.trace_id}


def _drill_receipt(order: wire.Order, refused: str) -> dict[str, Any]:
    if refused:
        return _receipt(order, wire.REFUSED, reason=refused)
    asked = (order.drill or {}).get("step") == "approve"
    body = "A drill: the rehearsal on this machine answered, Azure was not asked."
    return _receipt(order, wire.ANSWERED, started=StartAnswer(200, body) if asked else None)


def _describe(receipt: dict[str, Any]) -> str:
    if receipt["outcome"] == wire.ANSWERED:
        if is_drill_id(receipt["event_id"]):
            return "a drill's, done"
        return f"the metadata service answered {receipt['azure_status']}"
    return f"{receipt['outcome']}, {receipt['reason']}"
