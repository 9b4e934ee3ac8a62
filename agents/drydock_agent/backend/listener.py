"""Long poll for orders (`GET /agent/v1/orders`), in a separate thread.

Each call also sends the agent's status, so that an idle machine needs no heartbeats and only one connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from drydock_agent import wire
from drydock_agent.backend.client import AgentStatus, BackendClient, LongPollAnswer, RefusedByBackend
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.orders import Orders
from drydock_agent.backoff import BACKEND_SECONDS, QUIET_SECONDS, Backoff
from drydock_agent.connections import NoAnswer
from drydock_agent.context import Context

# Pause after an answer that came at once without new orders.
PAUSE_SECONDS = 1.0
# How long a good answer to a long poll replaces heartbeats.
HEARTBEAT_REPLACED_SECONDS = 75.0
# After repeated cuts by a proxy the wait is shortened; the full wait is retried later.
MIN_WAIT_SECONDS = 10
CUTS_BEFORE_SHORTER_WAIT = 2
FULL_WAIT_RETRY_SECONDS = 3600.0


class OrderListener:
    """Repeats the long poll. After an order arrived, the next call follows at once, because it confirms the receipt of
    the order.
    """

    name = "listener"

    def __init__(
        self,
        context: Context,
        *,
        client: BackendClient,
        enrolment: Enrolment,
        orders: Orders,
        status_report: Callable[[], AgentStatus | None] = lambda: None,
        poll_reported: Callable[[], None] = lambda: None,
        report: Callable[[], None] = lambda: None,
        remind: Callable[[], None] = lambda: None,
        prepare_now: Callable[[Collection[str] | None], None] = lambda event_ids: None,
        is_urgent: Callable[[], bool] = lambda: True,
        wait: int = wire.MAX_WAIT_SECONDS,
    ) -> None:
        self.wake = threading.Event()
        self._context = context
        self._clock = context.clock
        self._limiter = context.limiter
        self._client = client
        self._enrolment = enrolment
        self._orders = orders
        self._backoff = Backoff(context.random, most=BACKEND_SECONDS)
        self._status_report = status_report
        self._poll_reported = poll_reported
        self._report = report
        self._remind = remind
        self._prepare_now = prepare_now
        self._is_urgent = is_urgent
        self._max_wait = self._wait = wait
        self._cuts = 0
        self._full_wait_at = 0.0
        self._not_before = 0.0
        self._replaced_heartbeat_at = float("-inf")

    @property
    def failing(self) -> bool:
        """True if the last long poll failed."""
        return self._backoff.failing

    @property
    def replaces_heartbeat(self) -> bool:
        """True while the backend accepts long polls instead of heartbeats."""
        return self._clock.monotonic() < self._replaced_heartbeat_at + HEARTBEAT_REPLACED_SECONDS

    def step(self) -> float:
        """Make one long poll. Return the seconds until the next one: 0 if an order arrived or the call lasted long
        enough.
        """
        now = self._clock.monotonic()
        if now < self._not_before:
            return self._not_before - now
        secret = self._enrolment.secret
        if secret is None:
            # Woken by the enrolment.
            return 60.0
        if now >= self._full_wait_at:
            self._wait = self._max_wait
        status_report = self._status_report()
        try:
            answer = self._client.orders(
                secret, wait=self._wait, held=self._orders.unacknowledged(), status_report=status_report
            )
        except NoAnswer as error:
            self._limiter.warn("listener", f"The long poll for orders failed: {error}.")
            self._record_cut(now)
            return self._back_off(None)
        except RefusedByBackend as error:
            if error.status in (502, 504):
                self._record_cut(now)
            self._limiter.warn(f"listener {error.status}", f"No orders: {error}.")
            if error.status == 401:
                self._enrolment.discard_rejected(secret)
                # The uploader enrols.
                self._context.to_upload.set()
            return self._back_off(error.retry_after)
        self._backoff.succeeded()
        self._cuts = 0
        self._limiter.recovered("listener", "The long poll for orders works again.")
        news = self._orders.accept(answer.orders, answer.unreadable)
        self._handle_answer(answer, status_report)
        if answer.renew_in and not news:
            # This gateway process is stopping and spreads the reconnects of its machines.
            self._not_before = self._clock.monotonic() + answer.renew_in
            return answer.renew_in
        lasted = self._clock.monotonic() - now >= PAUSE_SECONDS
        return 0.0 if news or (lasted and not answer.orders) else PAUSE_SECONDS

    def interrupt(self) -> None:
        """Abort the current call."""
        self._client.interrupt()

    def _handle_answer(self, answer: LongPollAnswer, status_report: AgentStatus | None) -> None:
        if answer.report:
            self._report()
        if answer.remind:
            self._remind()
        self._prepare_now(answer.prepare)
        if not answer.takes_polls or status_report is None:
            self._replaced_heartbeat_at = float("-inf")
            return
        self._replaced_heartbeat_at = self._clock.monotonic()
        if status_report.last_poll_at is not None and not answer.remind:
            self._poll_reported()

    def _record_cut(self, began: float) -> None:
        """Record that a long poll was cut off early. After `CUTS_BEFORE_SHORTER_WAIT` of them in a row, make long polls
        shorter.
        """
        lasted = self._clock.monotonic() - began
        self._cuts = self._cuts + 1 if MIN_WAIT_SECONDS < lasted < self._wait else 0
        if self._cuts >= CUTS_BEFORE_SHORTER_WAIT:
            self._cuts, self._wait = 0, max(MIN_WAIT_SECONDS, int(lasted * 0.8))
            self._full_wait_at = self._clock.monotonic() + FULL_WAIT_RETRY_SECONDS

    def _back_off(self, retry_after: float | None) -> float:
        wait = self._backoff.failed(retry_after, most=BACKEND_SECONDS if self._is_urgent() else QUIET_SECONDS)
        self._not_before = self._clock.monotonic() + wait
        return wait
