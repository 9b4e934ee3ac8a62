"""Upload of the spool to the backend (`POST /agent/v1/reports`): in order, one batch at a time.

If the backend does not accept long polls as heartbeats (0.1.0), an idle uploader sends heartbeats.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from drydock_agent import wire
from drydock_agent.backend.client import Acknowledgement, AgentStatus, BackendClient, RefusedByBackend
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.loss_recovery import LossRecovery
from drydock_agent.backend.machine_key import Secret
from drydock_agent.backend.orders import Orders
from drydock_agent.backend.signatures import Keyring
from drydock_agent.backoff import BACKEND_SECONDS, QUIET_SECONDS, Backoff
from drydock_agent.connections import NoAnswer
from drydock_agent.context import Context
from drydock_agent.spool.store import SpoolError, StoredReport
from drydock_agent.state_folder import StateError
from drydock_agent.version import agent_version

HEARTBEAT_SECONDS = 15.0
FRESH_SECONDS = 300.0
ENROL_RETRY_SECONDS = 30.0
RENEW_SECONDS = 3600.0
# Room for the envelope; a single report always fits, because a document is at most a quarter of a request.
BATCH_BYTES = wire.MAX_REQUEST_BYTES - 64 * 1024

log = logging.getLogger("drydock_agent")


class Uploader:
    """Enrols this machine, sends reports, deletes acknowledged reports, and queues the orders of each response."""

    name = "uploader"

    def __init__(
        self,
        context: Context,
        *,
        client: BackendClient,
        enrolment: Enrolment,
        keyring: Keyring,
        orders: Orders,
        loss_recovery: LossRecovery,
        delivered_poll: Callable[[], tuple[datetime | None, str]],
        metadata_state: Callable[[], str],
        renewed: Callable[[], None],
        heartbeat_replaced: Callable[[], bool] = lambda: False,
        is_urgent: Callable[[], bool] = lambda: True,
    ) -> None:
        self.wake = context.to_upload
        self._clock = context.clock
        self._limiter = context.limiter
        self._spool = context.spool
        self._client = client
        self._enrolment = enrolment
        self._keyring = keyring
        self._orders = orders
        self._loss_recovery = loss_recovery
        self._backoff = Backoff(context.random, most=BACKEND_SECONDS)
        self._delivered_poll = delivered_poll
        self._metadata_state = metadata_state
        self._renewed = renewed
        self._heartbeat_replaced = heartbeat_replaced
        self._is_urgent = is_urgent
        self._report_requested = threading.Event()
        self._not_before = 0.0
        self._next_heartbeat = 0.0
        self._batch_size = wire.MAX_REPORTS
        self._enrolled_at = float("-inf")
        self._renew_after = float("-inf")
        self._trouble: set[str] = set()
        # The first call sends no reports: its answer shows whether the state folder was restored from an older copy.
        self._contacted = False

    @property
    def failing(self) -> bool:
        """True if the last call to the backend failed."""
        return self._backoff.failing

    def step(self) -> float:
        """Send one batch. Return 0 if there may be more reports, else the seconds until the next heartbeat or retry."""
        now = self._clock.monotonic()
        if now < self._not_before:
            return self._not_before - now
        try:
            return self._deliver()
        except NoAnswer as error:
            return self._back_off("uploader", f"The backend cannot be reached: {error}.", None)
        except RefusedByBackend as error:
            return self._back_off(
                f"uploader {error.status}", f"Nothing was delivered: {error}.", self._retry_after(error)
            )
        except (SpoolError, StateError) as error:
            return self._back_off("uploader spool", f"The state folder cannot be used: {error}", None)

    def report(self) -> None:
        """Send a report soon, even an empty one, because the backend requested it. May be called from any thread."""
        self._report_requested.set()
        self.wake.set()

    def status_report(self) -> AgentStatus | None:
        """Return the status to send with the long poll, or None before the first contact. May be called from any
        thread.
        """
        if not self._contacted:
            return None
        # Read before the spool, so that the findings of that poll and of earlier ones are in the spool.
        poll_at, document = self._delivered_poll()
        spool, acknowledged = self._spool.id, self._spool.acknowledged
        try:
            delivered = self._spool.pending() == 0
        except SpoolError:
            delivered = False
        keys = self._keyring.trusted
        state = self._metadata_state()
        if not delivered:
            return AgentStatus(spool, acknowledged, keys=keys, metadata=state)
        return AgentStatus(spool, acknowledged, poll_at, document, keys, state)

    def interrupt(self) -> None:
        """Abort the current call."""
        self._client.interrupt()

    def _back_off(self, key: str, message: str, retry_after: float | None) -> float:
        self._trouble.add(key)
        self._limiter.warn(key, message)
        wait = self._backoff.failed(retry_after, most=BACKEND_SECONDS if self._is_urgent() else QUIET_SECONDS)
        self._not_before = self._clock.monotonic() + wait
        return wait

    def _retry_after(self, error: RefusedByBackend) -> float | None:
        # Two machines with the same id revoke each other's credentials. If a new one is rejected, do not hurry.
        fresh = self._clock.monotonic() < self._enrolled_at + FRESH_SECONDS
        return ENROL_RETRY_SECONDS if error.status == 401 and fresh else error.retry_after

    def _deliver(self) -> float:
        secret = self._enrolment.secret
        if secret is None:
            self._enrolment.enrol(self._client)
            self._enrolled_at = self._clock.monotonic()
            log.info("This machine is enrolled.")
            return 0.0
        # Read before the batch, so that the findings of that poll and of earlier ones are in the spool.
        poll_at, _ = self._delivered_poll()
        batch = self._spool.batch(self._batch_size, BATCH_BYTES) if self._contacted else []
        if len(batch) < self._spool.pending():
            # Reports remain after this batch, so this call does not deliver all findings of the last poll.
            poll_at = None
        if self._contacted and not batch and (pause := self._pause()):
            return pause
        self._report_requested.clear()
        try:
            answer = self._send(secret, batch, poll_at)
        except RefusedByBackend as error:
            if error.status == 401:
                self._enrolment.discard_rejected(secret)
            if error.status in (413, 422) and batch:
                return self._send_smaller(secret, batch, error)
            raise
        if answer.renew:
            self._renew()
        contacted, self._contacted = self._contacted, True
        if batch and answer.acknowledged < batch[0].seq and not answer.refused:
            raise NoAnswer("it answered without acknowledging anything")
        self._batch_size = min(self._batch_size * 2, wire.MAX_REPORTS)
        self._backoff.succeeded()
        while self._trouble:
            self._limiter.recovered(self._trouble.pop(), "The backend takes reports again.")
        return 0.0 if batch or not contacted else self._next_heartbeat - self._clock.monotonic()

    def _renew(self) -> None:
        """Enrol again, at most once in `RENEW_SECONDS`. The current secret stays in use until this succeeds."""
        if self._clock.monotonic() < self._renew_after:
            return
        self._renew_after = self._clock.monotonic() + RENEW_SECONDS
        try:
            self._enrolment.enrol(self._client)
        except (NoAnswer, RefusedByBackend) as error:
            self._limiter.warn("renewal", f"This machine keeps its credential: {error}.")

    def _pause(self) -> float:
        """Return the seconds until the next heartbeat, 0 if it is due."""
        remaining = self._next_heartbeat - self._clock.monotonic()
        if remaining > 0:
            return remaining
        if self._report_requested.is_set() or not self._heartbeat_replaced():
            return 0.0
        # An idle agent needs only the connection of the long poll. A report opens another.
        self._client.close()
        return HEARTBEAT_SECONDS

    def _send(self, secret: Secret, batch: list[StoredReport], poll_at: datetime | None) -> Acknowledgement:
        known = self._spool.acknowledged
        request = wire.ReportsRequest(
            spool=self._spool.id,
            sent_at=self._clock.now(),
            last_poll_at=poll_at,
            agent_version=agent_version(),
            held=self._orders.unacknowledged(),
            signing_keys=self._keyring.trusted,
            acknowledged=known,
            metadata=self._metadata_state(),
        )
        answer = self._client.report(secret, request, batch)
        self._keyring.apply_notices(answer.key_words)
        # Orders first: they are urgent, and do not depend on the spool.
        self._orders.accept(answer.orders, answer.unreadable)
        if answer.acknowledged > self._spool.sent and not self._loss_recovery.may_renumber():
            raise NoAnswer("it requests a new spool too often")
        if not self._spool.acknowledge(answer.acknowledged, answer.refused):
            log.warning(
                "The backend has reports that this state folder lacks: the folder was restored. A new spool begins."
            )
            self._renewed()
        else:
            self._loss_recovery.check_answer(known, answer)
        for seq, reason in answer.refused.items():
            self._limiter.warn(
                "refused", f"The backend refused report {seq}: {reason}. It is quarantined in the spool."
            )
        self._next_heartbeat = self._clock.monotonic() + HEARTBEAT_SECONDS
        return answer

    def _send_smaller(self, secret: Secret, batch: list[StoredReport], error: RefusedByBackend) -> float:
        if len(batch) > 1:
            self._batch_size = len(batch) // 2
            return 0.0
        # Quarantine the report only if the backend accepts an empty batch; otherwise it refuses everything.
        self._send(secret, [], None)
        self._spool.quarantine(batch[0].seq, str(error))
        self._limiter.warn("refused", f"Report {batch[0].seq} cannot be delivered: {error}. It is quarantined.")
        return 0.0
