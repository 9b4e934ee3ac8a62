"""Feed of new timeline entries: read once for each process, and sent to all of its streams.

Entries are sent in the order of their transactions, and only below the horizon, where no earlier entry can still be
committed. A stream that resumes at its cursor therefore misses no entry.
"""

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass

import msgspec

from fleet.domain.timeline import FIRST_ERA, EntryKind
from fleet.gateway.threads import Loop
from fleet.projections.timeline import entries as feed
from fleet.projections.timeline.entries import Cursor, FeedEntry
from fleet.wording.say import text_of
from fleet.wording.times import API

PAUSE_SECONDS = 1.0
# Wake-ups arrive in bursts; one read serves all of this period.
BURST_SECONDS = 0.05
PAGE = 500
# Entries kept for streams that resume after a short break.
RECENT = 2_000


@dataclass(frozen=True, slots=True)
class FeedFrame:
    """One entry in the form in which it is sent, encoded once for all streams."""

    cursor: Cursor
    frame: bytes
    # It may have ended a user's right to listen.
    about_access: bool = False


# What ends sessions, tokens and rights.
ACCESS_KINDS = (EntryKind.PERSON_CHANGED, EntryKind.PERSON_FORGOTTEN, EntryKind.TOKEN_ENDED)


def cursor_text(cursor: Cursor) -> bytes:
    """Return a cursor as `<era>.<xid>.<id>`, or `<xid>.<id>` in the first era, which is the form of release 0.1.0."""
    return ".".join(map(str, cursor[1:] if cursor[0] == FIRST_ERA else cursor)).encode()


def feed_frame(entry: FeedEntry) -> FeedFrame:
    """Return the entry as a server-sent event `changed` whose id is the entry's cursor."""
    row = entry.row
    data = msgspec.json.encode(
        {
            "kind": row.kind,
            "event_id": row.event_id,
            "set": row.set.id if row.set else None,
            "machine": row.machine.id if row.machine else None,
            "approval": row.approval_id,
            "at": row.at,
            "text": text_of(row, API),
        }
    )
    frame = b"id: %b\nevent: changed\ndata: %b\n\n" % (cursor_text(entry.cursor), data)
    return FeedFrame(entry.cursor, frame, row.kind in ACCESS_KINDS)


class Subscription:
    """Bounded queue of one stream. `overrun` is true after the stream was too slow and entries were dropped."""

    __slots__ = ("news", "overrun", "queue")

    def __init__(self, size: int) -> None:
        self.queue: deque[FeedFrame] = deque(maxlen=size)
        self.news = asyncio.Event()
        self.overrun = False

    def put(self, entries: list[FeedFrame]) -> None:
        limit = self.queue.maxlen or 0
        if len(self.queue) + len(entries) > limit:
            self.end()
        else:
            self.queue.extend(entries)
        self.news.set()

    def end(self) -> None:
        """End the stream; the client resumes it at its cursor."""
        self.overrun = True
        self.news.set()


class Feed:
    """Reader thread of new entries and its subscriptions. Use the subscriptions only in the event loop's thread."""

    def __init__(self, events: asyncio.AbstractEventLoop, *, queue: int) -> None:
        self.events = events
        self.queue = queue
        self.loop = Loop("feed", self.read, pause=PAUSE_SECONDS)
        self.subscriptions: set[Subscription] = set()
        # The position of the event loop's thread, and the last sent entries: after `floor` up to `position`.
        self.position: Cursor | None = None
        self.floor: Cursor | None = None
        self.recent: deque[FeedFrame] = deque(maxlen=RECENT)
        self._cursor: Cursor | None = None
        self._last_read = 0.0
        self._started = threading.Event()

    def wake(self) -> None:
        """Read new entries soon; called after a wake-up."""
        if self.subscriptions:
            self.loop.wake()

    def read(self) -> None:
        """Read new entries page by page, and add them to the subscriptions."""
        wait = self._last_read + BURST_SECONDS - time.monotonic()
        if wait > 0:
            self.loop.sleep(wait)
        self._last_read = time.monotonic()
        if self._cursor is None or not self.subscriptions:
            self._cursor = feed.newest_cursor()
            self.events.call_soon_threadsafe(self._jump, self._cursor)
            return
        while not self.loop.stopped:
            entries = feed.entries_after(cursor=self._cursor, limit=PAGE)
            if entries:
                self._cursor = entries[-1].cursor
                self.events.call_soon_threadsafe(self._tell, [feed_frame(entry) for entry in entries])
            if len(entries) < PAGE:
                return

    def subscribe(self) -> Subscription:
        subscription = Subscription(self.queue)
        self.subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self.subscriptions.discard(subscription)

    def since(self, cursor: Cursor) -> list[FeedFrame] | None:
        """Return the entries after the cursor from memory; None if the memory does not reach back that far."""
        if self.floor is None or cursor < self.floor:
            return None
        return [entry for entry in self.recent if entry.cursor > cursor]

    def end_all(self) -> None:
        for subscription in self.subscriptions:
            subscription.end()

    def _jump(self, cursor: Cursor) -> None:
        # No stream was open when the reader skipped ahead; streams opened in the meantime have to resume.
        if self.position is not None:
            self.end_all()
        self.recent.clear()
        self.position = self.floor = cursor

    def _tell(self, entries: list[FeedFrame]) -> None:
        if len(self.recent) + len(entries) > RECENT:
            gone = len(self.recent) + len(entries) - RECENT
            self.floor = [*self.recent, *entries][gone - 1].cursor
        self.recent.extend(entries)
        self.position = entries[-1].cursor
        for subscription in self.subscriptions:
            subscription.put(entries)
