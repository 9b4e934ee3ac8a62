"""Carries the spool to the backend (`POST /agent/v1/reports`): in order, one batch in flight. Where held calls do not
tell that this machine is there, as those to 0.1.0, a heartbeat goes out when there is nothing to carry.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from drydock_agent import wire
from drydock_agent.backend.client import Acknowledgement, BackendClient, RefusedByBackend, Standing
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.loss import Loss
from drydock_agent.backend.orders import Orders
from drydock_agent.backend.own_key import Secret
from drydock_agent.backend.signatures import Keyring
from drydock_agent.backoff import BACKEND_SECONDS, QUIET_SECONDS, Backoff
from drydock_agent.connections import NoAnswer
from drydock_agent.context import Context
from drydock_agent.spool.store import SpoolError, StoredReport
from drydock_agent.state_folder import StateError
from drydock_agent.version import agent_version

HEARTBEAT_SECONDS = 15.0
FRESH_SECONDS = 300.0
ENROL_AGAIN_SECONDS = 30.0
RENEW_SECONDS = 3600.0
# Room for the envelope; a single report always fits, because a document is at most a quarter of a request.
BATCH_BYTES = wire.MAX_REQUEST_BYTES - 64 * 1024

log = logging.getLogger("drydock_agent")


class Uploader:
    """Enrols, sends, deletes what was acknowledged, and hands on the orders that an answer brings."""

    name = "uploader"

    def __init__(
        self,
        context: Context,
        *,
        client: BackendClient,
        enrolment: Enrolment,
        keyring: Keyring,
        orders: Orders,
        loss: Loss,
        told: Callable[[], tuple[datetime | None, str]],
        renewed: Callable[[], None],
        carried: Callable[[], bool] = lambda: False,
        in_a_hurry: Callable[[], bool] = lambda: True,
    ) -> None:
        self.wake = context.to_upload
        self._clock = context.clock
        self._limiter = context.limiter
        self._spool = context.spool
        self._client = client
        self._enrolment = enrolment
        self._keyring = keyring
        self._orders = orders
        self._loss = loss
        self._backoff = Backoff(context.random, most=BACKEND_SECONDS)
        self._told = told
        self._renewed = renewed
        self._carried = carried
        self._in_a_hurry = in_a_hurry
        self._wanted = threading.Event()
        self._not_before = 0.0
        self._next_heartbeat = 0.0
        self._most = wire.MAX_REPORTS
        self._enrolled_at = float("-inf")
        self._renew_after = float("-inf")
        self._trouble: set[str] = set()
        # The first contact carries nothing: its answer tells whether the state folder was put back to an older state.
        self._greeted = False

    @property
    def failing(self) -> bool:
        """True while the backend takes nothing."""
        return self._backoff.failing

    def step(self) -> float:
        """One batch. 0 when there may be more, else the seconds until the next heartbeat or the next try."""
        now = self._clock.monotonic()
        if now < self._not_before:
            return self._not_before - now
        try:
            return self._deliver()
        except NoAnswer as error:
            return self._retreat("uploader", f"The backend cannot be reached: {error}.", None)
        except RefusedByBackend as error:
            return self._retreat(
                f"uploader {error.status}", f"Nothing was delivered: {error}.", self._retry_after(error)
            )
        except (SpoolError, StateError) as error:
            return self._retreat("uploader spool", f"The state folder cannot be used: {error}", None)

    def report(self) -> None:
        """Have a report sent soon, though it be empty: the backend wants one. From any thread."""
        self._wanted.set()
        self.wake.set()

    def standing(self) -> Standing | None:
        """How this agent stands, for the held call; None before the first contact. From any thread."""
        if not self._greeted:
            return None
        # Read before the spool: whatever that poll and the ones before it found is in there by now.
        poll_at, document = self._told()
        spool, acknowledged = self._spool.id, self._spool.acknowledged
        try:
            delivered = self._spool.pending() == 0
        except SpoolError:
            delivered = False
        keys = self._keyring.trusted
        if not delivered:
            return Standing(spool, acknowledged, keys=keys)
        return Standing(spool, acknowledged, poll_at, document, keys)

    def interrupt(self) -> None:
        """End the call in progress."""
        self._client.interrupt()

    def _retreat(self, key: str, message: str, retry_after: float | None) -> float:
        self._trouble.add(key)
        self._limiter.warn(key, message)
        wait = self._backoff.failed(retry_after, most=BACKEND_SECONDS if self._in_a_hurry() else QUIET_SECONDS)
        self._not_before = self._clock.monotonic() + wait
        return wait

    def _retry_after(self, error: RefusedByBackend) -> float | None:
        # Two machines that were given one id revoke each other: a fresh credential refused is no reason to hurry.
        fresh = self._clock.monotonic() < self._enrolled_at + FRESH_SECONDS
        return ENROL_AGAIN_SECONDS if error.status == 401 and fresh else error.retry_after

    def _deliver(self) -> float:
        secret = self._enrolment.secret
        if secret is None:
            self._enrolment.enrol(self._client)
            self._enrolled_at = self._clock.monotonic()
            log.info("This machine is enrolled.")
            return 0.0
        # Read before the batch: whatever that poll and the ones before it found is in the spool by now.
        poll_at, _ = self._told()
        batch = self._spool.batch(self._most, BATCH_BYTES) if self._greeted else []
        if len(batch) < self._spool.pending():
            # More waits than this call carries: the backend must not believe that it knows what the last poll found.
            poll_at = None
        if self._greeted and not batch and (pause := self._pause()):
            return pause
        self._wanted.clear()
        try:
            answer = self._send(secret, batch, poll_at)
        except RefusedByBackend as error:
            if error.status == 401:
                self._enrolment.refused(secret)
            if error.status in (413, 422) and batch:
                return self._make_smaller(secret, batch, error)
            raise
        if answer.renew:
            self._renew()
        greeted, self._greeted = self._greeted, True
        if batch and answer.acknowledged < batch[0].seq and not answer.refused:
            raise NoAnswer("it answered without acknowledging anything")
        self._most = min(self._most * 2, wire.MAX_REPORTS)
        self._backoff.succeeded()
        while self._trouble:
            self._limiter.recovered(self._trouble.pop(), "The backend takes reports again.")
        return 0.0 if batch or not greeted else self._next_heartbeat - self._clock.monotonic()

    def _renew(self) -> None:
        """Enrol again by what there is, now and then: meanwhile that goes on."""
        if self._clock.monotonic() < self._renew_after:
            return
        self._renew_after = self._clock.monotonic() + RENEW_SECONDS
        try:
            self._enrolment.enrol(self._client)
        except (NoAnswer, RefusedByBackend) as error:
            self._limiter.warn("renewal", f"This machine keeps its credential: {error}.")

    def _pause(self) -> float:
        """Seconds until a report without news is due; 0 when it is."""
        remaining = self._next_heartbeat - self._clock.monotonic()
        if remaining > 0:
            return remaining
        if self._wanted.is_set() or not self._carried():
            return 0.0
        # One connection is enough for an agent that waits. For news another is made.
        self._client.close()
        return HEARTBEAT_SECONDS

    def _send(self, secret: Secret, batch: list[StoredReport], poll_at: datetime | None) -> Acknowledgement:
        known = self._spool.acknowledged
        request = wire.ReportsRequest(
            spool=self._spool.id,
            sent_at=self._clock.now(),
            last_poll_at=poll_at,
            agent_version=agent_version(),
            held=self._orders.held(),
            signing_keys=self._keyring.trusted,
            acknowledged=known,
        )
        answer = self._client.report(secret, request, batch)
        self._keyring.hear(answer.key_words)
        # Orders first: they are in a hurry, and nothing about them depends on the spool's tidying up.
        self._orders.take(answer.orders, answer.unreadable)
        if answer.acknowledged > self._spool.sent and not self._loss.may_begin_anew():
            raise NoAnswer("it asks for a new spool again and again")
        if not self._spool.acknowledge(answer.acknowledged, answer.refused):
            log.warning("The backend knows reports that this state folder lost: it was put back. A new spool begins.")
            self._renewed()
        else:
            self._loss.heard(known, answer)
        for seq, reason in answer.refused.items():
            self._limiter.warn("refused", f"The backend refused report {seq}: {reason}. It is kept apart in the spool.")
        self._next_heartbeat = self._clock.monotonic() + HEARTBEAT_SECONDS
        return answer

    def _make_smaller(self, secret: Secret, batch: list[StoredReport], error: RefusedByBackend) -> float:
        if len(batch) > 1:
            self._most = len(batch) // 2
            return 0.0
        # Is it this report, or would anything be refused? Only a backend that takes an empty batch condemns a report.
        self._send(secret, [], None)
        self._spool.keep_apart(batch[0].seq, str(error))
        self._limiter.warn("refused", f"Report {batch[0].seq} cannot be delivered: {error}. It is kept apart.")
        return 0.0
