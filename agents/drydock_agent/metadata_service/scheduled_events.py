"""Poller of scheduled events: it polls once a second and writes a report to the spool for each change."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import from_text, to_text
from drydock_agent.context import Context
from drydock_agent.metadata_service.client import Imds, MetadataUnavailable
from drydock_agent.metadata_service.document import Document, read, to_data
from drydock_agent.metadata_service.early_poller import EarlyDocument
from drydock_agent.spool.store import Spool

# Maximum bytes of invalid documents reported in an hour, so that they do not fill the disk. Small ones count as more.
UNREADABLE_BYTES = 4 * (wire.MAX_DOCUMENT_BYTES + 4096)
UNREADABLE_SECONDS = 3600.0
UNREADABLE_MIN_BYTES = 4096
# While the service refuses this agent, or answers with something that is no document, each pause before the next poll
# is twice the last one, up to this. A page in place of a document may be gone with the next answer.
MAX_REFUSED_SECONDS = 30.0
MAX_UNREADABLE_SECONDS = 5.0
# The service switches itself off after a day without a call; the next call may then take two minutes.
SWITCHED_OFF_SECONDS = 24 * 3600.0
# How often the spool is written although there is nothing to report, so that a full disk is known before an event is.
SPOOL_CHECK_SECONDS = 60.0

log = logging.getLogger("drydock_agent")


class ScheduledEvents:
    """Reports a document if its content or incarnation has changed since the last report. Otherwise it writes periodic
    reminders.
    """

    name = "scheduled events"

    def __init__(
        self, context: Context, *, imds: Imds, on_document: Callable[[Document], None] = lambda document: None
    ) -> None:
        self.wake = threading.Event()
        # Set by the first successful poll of this run; only then `listed` is current.
        self.seen = threading.Event()
        self.last_poll_at: datetime | None = None
        self._problem = ""
        self._refusals = 0
        # Time of the last good poll and hash of the last forwarded document; set once all findings are in the spool.
        self.spooled_poll: tuple[datetime | None, str] = (None, "")
        self._context = context
        self._clock = context.clock
        self._limiter = context.limiter
        self._poll_seconds = context.settings.poll_seconds
        self._imds = imds
        self._on_document = on_document
        self._outbox = context.outbox()
        self._resend = threading.Event()
        self._trouble: set[str] = set()
        self._last_body: bytes | None = None
        self._unconfirmed: Document | None = None
        self._last_unreadable = ""
        self._unreadable_until = 0.0
        self._unreadable_left = 0
        self._next_reminder = 0.0
        self._next_spool_check = 0.0
        self._reminds = threading.Event()
        self._next_requested_reminder = self._reminder_deferred_until = float("-inf")
        self._due = 0.0
        remembered = _remembered(context.spool)
        self._content_key: str = remembered.get("sameness", "")
        self._hash: str = remembered.get("hash", "")
        self._incarnation: int | None = remembered.get("incarnation")
        self._listed: dict[str, str] = remembered.get("listed", {})
        self._started = frozenset(remembered.get("started", ()))
        polled = from_text(remembered.get("at"))
        self._last_good_at = polled
        self._kept_version = context.spool.get("events_version") or ""
        imds.versions.remembered = self._kept_version

    @property
    def problem(self) -> str:
        """Problem of the spool or else of the last poll, as in `wire.metadata_text`; empty before the first poll."""
        return wire.SPOOL_UNWRITABLE if self._outbox.failing else self._problem

    @property
    def events_version(self) -> str:
        """The api-version of the last successful poll. Before the first one, that of an earlier run."""
        return self._imds.events_version if self.seen.is_set() else self._kept_version

    @property
    def lists_any(self) -> bool:
        """True if the newest document lists an event."""
        return bool(self._listed)

    def listed(self, event_id: str) -> str | None:
        """Return the event's id as the newest document spells it, or None if it does not list the event."""
        return self._listed.get(event_id.lower())

    def started(self, event_id: str) -> bool:
        """Return whether the newest document lists the event as Started."""
        return event_id.lower() in self._started

    def resend(self) -> None:
        """Report the next document even if it is unchanged, because the backend may have lost it."""
        self._resend.set()

    def resend_if_wanted(self, hashes: Collection[str]) -> bool:
        """Call `resend` if the last reported document is one of `hashes`. Return whether it is."""
        wanted = self._hash in hashes
        if wanted:
            self.resend()
        return wanted

    def defer_reminder(self) -> None:
        """Postpone the next reminder, because the backend already knows about a successful poll. May be called from any
        thread.
        """
        self._reminder_deferred_until = self._clock.monotonic() + self._context.settings.reminder_seconds

    def remind(self) -> None:
        """Write a reminder after the next successful poll, because the backend believes another document to be the
        newest.

        This happens at most once in `reminder_seconds`. May be called from any thread.
        """
        now = self._clock.monotonic()
        if now >= self._next_requested_reminder:
            self._next_requested_reminder = now + self._context.settings.reminder_seconds
            self._reminds.set()

    def step(self) -> float:
        """Poll if this is due. Return the seconds until the next poll."""
        now = self._clock.monotonic()
        if now < self._due:
            return self._due - now
        self._due = now + self._poll_seconds
        try:
            body = self._imds.scheduled_events(first_call=self._first_call())
        except MetadataUnavailable as error:
            self._trouble.add(f"poll {error.status}")
            self._limiter.warn(f"poll {error.status}", f"No document: {error}.")
            self._problem = error.problem
            self._refusals = self._refusals + 1 if error.is_lasting else 0
            if error.status == 429:
                self._due += 4 * self._poll_seconds
        else:
            self._take(body, self._clock.now())
        if self._refusals:
            most = MAX_UNREADABLE_SECONDS if self._problem == wire.UNREADABLE else MAX_REFUSED_SECONDS
            longer = min(self._poll_seconds * 2 ** min(self._refusals, 10), most)
            self._due = now + max(longer, self._poll_seconds)
        if self._outbox.write():
            self._keep_version()
            self._check_spool(now)
            # Without its spool this machine could not report an event, nor carry out an order.
            if not self._outbox.failing:
                self.spooled_poll = (self.last_poll_at, self._hash)
        # A slow answer moves the next poll; it never makes two polls follow each other at once.
        self._due = max(self._due, self._clock.monotonic() + self._poll_seconds / 2)
        return self._due - self._clock.monotonic()

    def add_early_documents(self, documents: Iterable[EarlyDocument]) -> None:
        """Process documents that were received before the machine was identified. Call this before the first poll."""
        for one in documents:
            self._imds.events_version = one.api_version
            self._take(one.body, one.at)

    def interrupt(self) -> None:
        """Abort the current call."""
        self._imds.interrupt()

    def cut_if_overdue(self) -> None:
        """Abort the current call if it has taken too long."""
        self._imds.cut_if_overdue()

    def _take(self, body: bytes, at: datetime) -> None:
        is_resend = self._resend.is_set()
        self._resend.clear()
        if body != self._last_body or is_resend:
            document = read(body)
            if not document.readable:
                self._take_unreadable(document, at)
                return
            self._last_body = body
            # This must precede making the document the newest one.
            needs_confirmation = self._needs_confirmation(document)
            if is_resend or document.content_key != self._content_key:
                self._forward(document, at)
            self._listed, self._started = document.listed, document.started
            self._unconfirmed = document if needs_confirmation else None
            if not needs_confirmation:
                self._on_document(document)
        elif self._unconfirmed is not None:
            # The next poll confirms it.
            document, self._unconfirmed = self._unconfirmed, None
            self._on_document(document)
        self.last_poll_at = self._last_good_at = at
        self._problem, self._refusals = wire.NO_PROBLEM, 0
        self.seen.set()
        while self._trouble:
            self._limiter.recovered(self._trouble.pop(), "The metadata service answers again.")
        now = self._clock.monotonic()
        if self._reminds.is_set() or now >= max(self._next_reminder, self._reminder_deferred_until):
            self._remind(at)

    def _needs_confirmation(self, document: Document) -> bool:
        """Return whether a document is doubtful: its incarnation is lower than before, or it lists no events any more
        although the incarnation is the same.

        A doubtful document is reported like any other, but starts hooks only after the next poll confirms it.
        """
        if document.incarnation is None or self._incarnation is None:
            return False
        lost = bool(self._listed) and not document.listed
        return document.incarnation < self._incarnation or (document.incarnation == self._incarnation and lost)

    def _first_call(self) -> bool:
        # Use the wall clock: after a day of sleep, the service is disabled for this machine.
        return (
            self._last_good_at is None
            or (self._clock.now() - self._last_good_at).total_seconds() > SWITCHED_OFF_SECONDS
        )

    def _forward(self, document: Document, at: datetime) -> None:
        self._content_key, self._hash, self._incarnation = document.content_key, document.hash, document.incarnation
        self._next_reminder = self._clock.monotonic() + self._context.settings.reminder_seconds
        remember = {
            "sameness": document.content_key,
            "hash": document.hash,
            "incarnation": document.incarnation,
            "listed": document.listed,
            "started": sorted(document.started),
            "at": to_text(at),
        }
        data = to_data(document, api_version=self._imds.events_version)
        self._outbox.add(wire.DOCUMENT, at, data, remember={"newest": json.dumps(remember)})

    def _take_unreadable(self, document: Document, at: datetime) -> None:
        self._limiter.warn("unreadable", "The metadata service answered with something that is no document.")
        self._problem = wire.UNREADABLE
        self._refusals += 1
        now = self._clock.monotonic()
        if now >= self._unreadable_until:
            self._unreadable_until, self._unreadable_left = now + UNREADABLE_SECONDS, UNREADABLE_BYTES
        size = max(len(document.body), UNREADABLE_MIN_BYTES)
        if document.hash != self._last_unreadable and size <= self._unreadable_left:
            self._last_unreadable = document.hash
            self._unreadable_left -= size
            data = to_data(document, api_version=self._imds.events_version)
            self._outbox.add(wire.DOCUMENT, at, data)
            # Report the next good answer even if it equals the one before this page.
            self._reminds.set()

    def _remind(self, at: datetime) -> None:
        self._reminds.clear()
        self._next_reminder = self._clock.monotonic() + self._context.settings.reminder_seconds
        data = {"hash": self._hash, "incarnation": self._incarnation}
        self._outbox.add(wire.REMINDER, at, data)

    def _check_spool(self, now: float) -> None:
        if now >= self._next_spool_check:
            self._next_spool_check = now + SPOOL_CHECK_SECONDS
            self._outbox.keep("checked_at", to_text(self._clock.now()))

    def _keep_version(self) -> None:
        version = self._imds.events_version
        news = self.seen.is_set() and version != self._kept_version
        if news and self._outbox.keep("events_version", version):
            log.info("Scheduled events are asked for with api-version %s.", version)
            self._kept_version = version


def _remembered(spool: Spool) -> dict[str, Any]:
    content = json.loads(spool.get("newest") or "{}")
    return content if isinstance(content, dict) else {}
