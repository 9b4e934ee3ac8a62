"""The held-open call for orders (`GET /agent/v1/orders`), in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, RefusedByBackend
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.orders import Orders
from drydock_agent.backoff import BACKEND_SECONDS, Backoff
from drydock_agent.connections import NoAnswer
from drydock_agent.context import Context

# A backend that answers at once and brings nothing new is not asked again at once.
PAUSE_SECONDS = 1.0


class OrderListener:
    """Asks again as soon as an order came: the next call says that this machine has it."""

    name = "listener"

    def __init__(
        self,
        context: Context,
        *,
        client: BackendClient,
        enrolment: Enrolment,
        orders: Orders,
        last_poll_at: Callable[[], datetime | None],
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
        self._last_poll_at = last_poll_at
        self._wait = wait
        self._not_before = 0.0

    @property
    def failing(self) -> bool:
        """True while no call for orders ends well."""
        return self._backoff.failing

    def step(self) -> float:
        """One held call. 0 when it brought an order or lasted, else the seconds until the next."""
        now = self._clock.monotonic()
        if now < self._not_before:
            return self._not_before - now
        secret = self._enrolment.secret
        if secret is None:
            # Woken by the enrolment.
            return 60.0
        try:
            answer = self._client.orders(
                secret, wait=self._wait, last_poll_at=self._last_poll_at(), held=self._orders.held()
            )
        except NoAnswer as error:
            self._limiter.warn("listener", f"The call for orders was cut: {error}.")
            return self._retreat(None)
        except RefusedByBackend as error:
            self._limiter.warn(f"listener {error.status}", f"No orders: {error}.")
            if error.status == 401:
                self._enrolment.refused(secret)
                # The uploader enrols.
                self._context.to_upload.set()
            return self._retreat(error.retry_after)
        self._backoff.succeeded()
        self._limiter.recovered("listener", "The call for orders is held again.")
        news = self._orders.take(answer.orders, answer.unreadable)
        lasted = self._clock.monotonic() - now >= PAUSE_SECONDS
        return 0.0 if news or (lasted and not answer.orders) else PAUSE_SECONDS

    def interrupt(self) -> None:
        """End the call in progress."""
        self._client.interrupt()

    def _retreat(self, retry_after: float | None) -> float:
        wait = self._backoff.failed(retry_after)
        self._not_before = self._clock.monotonic() + wait
        return wait
