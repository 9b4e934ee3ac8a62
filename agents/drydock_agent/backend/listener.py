"""The held-open call for orders (`GET /agent/v1/orders`), in a thread of its own. It also says all that the backend has
to hear of a machine where nothing happens, so that one connection is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, RefusedByBackend, Standing, Waited
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.orders import Orders
from drydock_agent.backoff import BACKEND_SECONDS, QUIET_SECONDS, Backoff
from drydock_agent.connections import NoAnswer
from drydock_agent.context import Context

# A backend that answers at once and brings nothing new is not asked again at once.
PAUSE_SECONDS = 1.0
# So long after a good answer to a held call no other heartbeat is needed.
CARRIED_SECONDS = 75.0
# A proxy that cuts what is silent for long is asked for shorter waits, and now and then for long ones again.
SHORTEST_WAIT = 10
CUTS = 2
LONG_AGAIN_SECONDS = 3600.0


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
        standing: Callable[[], Standing | None] = lambda: None,
        carried: Callable[[], None] = lambda: None,
        report: Callable[[], None] = lambda: None,
        remind: Callable[[], None] = lambda: None,
        in_a_hurry: Callable[[], bool] = lambda: True,
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
        self._standing = standing
        self._carried = carried
        self._report = report
        self._remind = remind
        self._in_a_hurry = in_a_hurry
        self._longest = self._wait = wait
        self._cuts = 0
        self._long_again = 0.0
        self._not_before = 0.0
        self._carried_at = float("-inf")

    @property
    def failing(self) -> bool:
        """True while no call for orders ends well."""
        return self._backoff.failing

    @property
    def carries(self) -> bool:
        """True while held calls tell the backend what a heartbeat would."""
        return self._clock.monotonic() < self._carried_at + CARRIED_SECONDS

    def step(self) -> float:
        """One held call. 0 when it brought an order or lasted, else the seconds until the next."""
        now = self._clock.monotonic()
        if now < self._not_before:
            return self._not_before - now
        secret = self._enrolment.secret
        if secret is None:
            # Woken by the enrolment.
            return 60.0
        if now >= self._long_again:
            self._wait = self._longest
        standing = self._standing()
        try:
            answer = self._client.orders(secret, wait=self._wait, held=self._orders.held(), standing=standing)
        except NoAnswer as error:
            self._limiter.warn("listener", f"The call for orders was cut: {error}.")
            self._was_cut(now)
            return self._retreat(None)
        except RefusedByBackend as error:
            if error.status in (502, 504):
                self._was_cut(now)
            self._limiter.warn(f"listener {error.status}", f"No orders: {error}.")
            if error.status == 401:
                self._enrolment.refused(secret)
                # The uploader enrols.
                self._context.to_upload.set()
            return self._retreat(error.retry_after)
        self._backoff.succeeded()
        self._cuts = 0
        self._limiter.recovered("listener", "The call for orders is held again.")
        news = self._orders.take(answer.orders, answer.unreadable)
        self._heard(answer, standing)
        if answer.renew_in and not news:
            # This process of the backend ends, and sends its machines away one after the other.
            self._not_before = self._clock.monotonic() + answer.renew_in
            return answer.renew_in
        lasted = self._clock.monotonic() - now >= PAUSE_SECONDS
        return 0.0 if news or (lasted and not answer.orders) else PAUSE_SECONDS

    def interrupt(self) -> None:
        """End the call in progress."""
        self._client.interrupt()

    def _heard(self, answer: Waited, standing: Standing | None) -> None:
        if answer.report:
            self._report()
        if answer.remind:
            self._remind()
        if not answer.takes_polls or standing is None:
            self._carried_at = float("-inf")
            return
        self._carried_at = self._clock.monotonic()
        if standing.last_poll_at is not None and not answer.remind:
            self._carried()

    def _was_cut(self, began: float) -> None:
        """Ended from outside, before its time: the second time at once, something on the way does not wait so long."""
        lasted = self._clock.monotonic() - began
        self._cuts = self._cuts + 1 if SHORTEST_WAIT < lasted < self._wait else 0
        if self._cuts >= CUTS:
            self._cuts, self._wait = 0, max(SHORTEST_WAIT, int(lasted * 0.8))
            self._long_again = self._clock.monotonic() + LONG_AGAIN_SECONDS

    def _retreat(self, retry_after: float | None) -> float:
        wait = self._backoff.failed(retry_after, most=BACKEND_SECONDS if self._in_a_hurry() else QUIET_SECONDS)
        self._not_before = self._clock.monotonic() + wait
        return wait
