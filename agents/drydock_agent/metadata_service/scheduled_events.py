"""The poller: one poll a second of what Azure announces, and every change of it into the spool."""

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
from drydock_agent.metadata_service.client import Imds, NotNow
from drydock_agent.metadata_service.document import Document, read, to_data
from drydock_agent.metadata_service.meanwhile import EarlyDocument
from drydock_agent.spool.store import Spool

# A path that answers with another unreadable page each second must not fill the disk: so many bytes are kept an hour,
# and a small page counts as much as a report costs.
UNREADABLE_BYTES = 4 * (wire.MAX_DOCUMENT_BYTES + 4096)
UNREADABLE_SECONDS = 3600.0
UNREADABLE_LEAST = 4096
# The service switches itself off after a day without a call; the next call may then take two minutes.
SWITCHED_OFF_SECONDS = 24 * 3600.0

log = logging.getLogger("drydock_agent")


class ScheduledEvents:
    """Forwards a document when its content or incarnation differs from the last one, else a reminder now and then."""

    name = "scheduled events"

    def __init__(
        self, context: Context, *, imds: Imds, read_one: Callable[[Document], None] = lambda document: None
    ) -> None:
        self.wake = threading.Event()
        # Set by the first good answer of this run: from then on `listed` speaks of now.
        self.seen = threading.Event()
        self.last_poll_at: datetime | None = None
        # The last good poll, and the hash of the document that was forwarded last, as far as all that was found up to
        # then is in the spool.
        self.told: tuple[datetime | None, str] = (None, "")
        self._context = context
        self._clock = context.clock
        self._limiter = context.limiter
        self._poll_seconds = context.settings.poll_seconds
        self._imds = imds
        self._read_one = read_one
        self._outbox = context.outbox()
        self._forget = threading.Event()
        self._trouble: set[str] = set()
        self._last_body: bytes | None = None
        self._doubtful: Document | None = None
        self._last_unreadable = ""
        self._unreadable_until = 0.0
        self._unreadable_left = 0
        self._next_reminder = 0.0
        self._reminds = threading.Event()
        self._asked_again = self._carried_until = float("-inf")
        self._due = 0.0
        remembered = _remembered(context.spool)
        self._sameness: str = remembered.get("sameness", "")
        self._hash: str = remembered.get("hash", "")
        self._incarnation: int | None = remembered.get("incarnation")
        self._listed: dict[str, str] = remembered.get("listed", {})
        self._started = frozenset(remembered.get("started", ()))
        polled = from_text(remembered.get("at"))
        self._good_at = polled
        self._kept_version = context.spool.get("events_version") or ""
        imds.versions.remembered = self._kept_version

    @property
    def lists_any(self) -> bool:
        """Whether the newest document lists any event."""
        return bool(self._listed)

    def listed(self, event_id: str) -> str | None:
        """The event's id as the newest document spells it; None where the document does not list it."""
        return self._listed.get(event_id.lower())

    def started(self, event_id: str) -> bool:
        """Whether the newest document lists the event as Started."""
        return event_id.lower() in self._started

    def forget(self) -> None:
        """Forward the next document whole, whatever was forwarded before: the backend may not know it."""
        self._forget.set()

    def tell_if(self, hashes: Collection[str]) -> bool:
        """The same, if the document that was forwarded last is one of these."""
        wanted = self._hash in hashes
        if wanted:
            self.forget()
        return wanted

    def carried(self) -> None:
        """The backend heard of a good poll: no reminder is needed for a while. From any thread."""
        self._carried_until = self._clock.monotonic() + self._context.settings.reminder_seconds

    def remind(self) -> None:
        """Write a reminder with the next good poll: the backend does not have this document as the newest. A backend
        that says so again and again is reminded no more often than others. From any thread.
        """
        now = self._clock.monotonic()
        if now >= self._asked_again:
            self._asked_again = now + self._context.settings.reminder_seconds
            self._reminds.set()

    def step(self) -> float:
        """One poll when it is due. Returns the seconds until the next."""
        now = self._clock.monotonic()
        if now < self._due:
            return self._due - now
        self._due = now + self._poll_seconds
        try:
            body = self._imds.scheduled_events(first_call=self._first_call())
        except NotNow as error:
            self._trouble.add(f"poll {error.status}")
            self._limiter.warn(f"poll {error.status}", f"No document: {error}.")
            if error.status == 429:
                self._due += 4 * self._poll_seconds
        else:
            self._take(body, self._clock.now())
        if self._outbox.write():
            self._keep_version()
            self.told = (self.last_poll_at, self._hash)
        # A slow answer moves the next poll; it never makes two polls follow each other at once.
        self._due = max(self._due, self._clock.monotonic() + self._poll_seconds / 2)
        return self._due - self._clock.monotonic()

    def read_before(self, documents: Iterable[EarlyDocument]) -> None:
        """Take what was read before it was known which machine this is. Call it before the first poll."""
        for one in documents:
            self._imds.events_version = one.api_version
            self._take(one.body, one.at)

    def interrupt(self) -> None:
        """End the call in progress."""
        self._imds.interrupt()

    def cut_if_overdue(self) -> None:
        """End a call that would never end by itself."""
        self._imds.cut_if_overdue()

    def _take(self, body: bytes, at: datetime) -> None:
        forget = self._forget.is_set()
        self._forget.clear()
        if body != self._last_body or forget:
            document = read(body)
            if not document.readable:
                self._take_unreadable(document, at)
                return
            self._last_body = body
            # Before the document counts as the newest one.
            doubtful = self._is_doubtful(document)
            if forget or document.sameness != self._sameness:
                self._forward(document, at)
            self._listed, self._started = document.listed, document.started
            self._doubtful = document if doubtful else None
            if not doubtful:
                self._read_one(document)
        elif self._doubtful is not None:
            # The next poll confirms it.
            document, self._doubtful = self._doubtful, None
            self._read_one(document)
        self.last_poll_at = self._good_at = at
        self.seen.set()
        while self._trouble:
            self._limiter.recovered(self._trouble.pop(), "The metadata service answers again.")
        now = self._clock.monotonic()
        if self._reminds.is_set() or now >= max(self._next_reminder, self._carried_until):
            self._remind(at)

    def _is_doubtful(self, document: Document) -> bool:
        """Whether a document did not advance: its incarnation runs backwards, or events are gone without a new one. It
        is forwarded like any other, but no hook runs on it before the next poll confirms it.
        """
        if document.incarnation is None or self._incarnation is None:
            return False
        lost = bool(self._listed) and not document.listed
        return document.incarnation < self._incarnation or (document.incarnation == self._incarnation and lost)

    def _first_call(self) -> bool:
        # By the wall clock: a machine that was put to sleep for a day wakes to a service that is switched off.
        return self._good_at is None or (self._clock.now() - self._good_at).total_seconds() > SWITCHED_OFF_SECONDS

    def _forward(self, document: Document, at: datetime) -> None:
        self._sameness, self._hash, self._incarnation = document.sameness, document.hash, document.incarnation
        self._next_reminder = self._clock.monotonic() + self._context.settings.reminder_seconds
        remember = {
            "sameness": document.sameness,
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
        now = self._clock.monotonic()
        if now >= self._unreadable_until:
            self._unreadable_until, self._unreadable_left = now + UNREADABLE_SECONDS, UNREADABLE_BYTES
        size = max(len(document.body), UNREADABLE_LEAST)
        if document.hash != self._last_unreadable and size <= self._unreadable_left:
            self._last_unreadable = document.hash
            self._unreadable_left -= size
            data = to_data(document, api_version=self._imds.events_version)
            self._outbox.add(wire.DOCUMENT, at, data)
            # That is the newest word now: the next good answer is told even where it is the same as before.
            self._reminds.set()

    def _remind(self, at: datetime) -> None:
        self._reminds.clear()
        self._next_reminder = self._clock.monotonic() + self._context.settings.reminder_seconds
        data = {"hash": self._hash, "incarnation": self._incarnation}
        self._outbox.add(wire.REMINDER, at, data)

    def _keep_version(self) -> None:
        version = self._imds.events_version
        news = self.seen.is_set() and version != self._kept_version
        if news and self._outbox.keep("events_version", version):
            log.info("Scheduled events are asked for with api-version %s.", version)
            self._kept_version = version


def _remembered(spool: Spool) -> dict[str, Any]:
    content = json.loads(spool.get("newest") or "{}")
    return content if isinstance(content, dict) else {}
