"""The held-open call for orders, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from random import Random

from . import wire
from .backoff import BACKEND_SECONDS, Backoff
from .clock import Clock
from .connections import NoAnswer
from .enrolment import Enrolment
from .fleet import Fleet, Refused
from .orders import Orders
from .quiet import Quiet

# A backend that answers at once and brings nothing new is not asked again at once.
PAUSE_SECONDS = 1.0


class Listener:
    """Asks again as soon as an order came: the next call says that this machine has it."""

    name = "listener"

    def __init__(
        self,
        *,
        fleet: Fleet,
        enrolment: Enrolment,
        orders: Orders,
        clock: Clock,
        quiet: Quiet,
        random: Random,
        last_poll_at: Callable[[], datetime | None],
        refused: Callable[[], None],
        wait: int = wire.MAX_WAIT_SECONDS,
    ) -> None:
        self.wake = threading.Event()
        self._fleet = fleet
        self._enrolment = enrolment
        self._orders = orders
        self._clock = clock
        self._quiet = quiet
        self._backoff = Backoff(random, most=BACKEND_SECONDS)
        self._last_poll_at = last_poll_at
        self._refused = refused
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
            answer = self._fleet.orders(
                secret, wait=self._wait, last_poll_at=self._last_poll_at(), held=self._orders.held()
            )
        except NoAnswer as error:
            self._quiet.warn("listener", f"The call for orders was cut: {error}.")
            return self._retreat(None)
        except Refused as error:
            self._quiet.warn(f"listener {error.status}", f"No orders: {error}.")
            if error.status == 401:
                self._enrolment.refused(secret)
                self._refused()
            return self._retreat(error.retry_after)
        self._backoff.succeeded()
        self._quiet.recovered("listener", "The call for orders is held again.")
        news = self._orders.take(answer.orders, answer.unreadable)
        lasted = self._clock.monotonic() - now >= PAUSE_SECONDS
        return 0.0 if news or (lasted and not answer.orders) else PAUSE_SECONDS

    def interrupt(self) -> None:
        """End the call in progress."""
        self._fleet.interrupt()

    def _retreat(self, retry_after: float | None) -> float:
        wait = self._backoff.failed(retry_after)
        self._not_before = self._clock.monotonic() + wait
        return wait
