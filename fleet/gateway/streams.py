"""Server-sent events for browsers and scripts. They name changed objects by id, and resume by `Last-Event-ID` without
losing entries.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.conf import settings

from fleet.domain.people import Access, Right
from fleet.domain.pseudonyms import pseudonym
from fleet.domain.reasons import Refused
from fleet.domain.timeline import FIRST_ERA, LAST_ERA
from fleet.gateway import limits, metrics
from fleet.gateway.feed import PAGE, Feed, FeedFrame, Subscription, cursor_text, feed_frame
from fleet.gateway.http import Message, Problem, Request, Send, busy
from fleet.gateway.open_calls import CallCredentials, OpenCalls, access_of, credentials_of
from fleet.gateway.threads import Threads
from fleet.operations import clock
from fleet.projections.timeline import entries as feed_operations
from fleet.projections.timeline.entries import Cursor
from fleet.projections.visibility import LimitedReader, limited_reader, reading_as
from fleet.wording.say import say
from fleet.wording.times import API

PING = b": ping\n\n"
# How long a stream that ends waits for its client.
LAST_SECONDS = 1.0
STREAM_BEGINS: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache, no-transform"),
        # Proxies that gather answers would hold events back.
        (b"x-accel-buffering", b"no"),
    ],
}


@dataclass(frozen=True, slots=True)
class StreamListener:
    """The user who listens to a stream: account, token and access. `reader` limits the visible entries; None: no
    limit.
    """

    reader: LimitedReader | None
    person: str
    token: str
    access: Access


def listener_of(by: CallCredentials, *, now: datetime) -> StreamListener | None:
    """Return the listener with these credentials; None if they are not valid. Raises Problem 403 if the user may not
    read.
    """
    try:
        found = access_of(by, now=now)
    except Refused as error:
        raise Problem(403, "not-permitted", say(error.reason, API)) from error
    if found is None:
        return None
    if found.access.scopes is not None and "read" not in found.access.scopes:
        raise Problem(403, "not-permitted", "The token does not have the scope `read`.")
    owned = found.access.rights
    if not owned.may(Right.READ):
        raise Problem(403, "not-permitted", "Reading needs the right of a viewer. Ask an admin of your installation.")
    reader = limited_reader(owned, name=found.name, number=found.access.person)
    return StreamListener(reader, pseudonym(found.access.person), found.token_name, found.access)


def visible_frames(reader: LimitedReader, ids: Collection[int]) -> dict[int, bytes]:
    """Return the frames, by entry id, of those of these entries that the reader may see."""
    with reading_as(LimitedReader(reader.name, reader.scopes, reader.number)):
        return {entry.row.id: feed_frame(entry).frame for entry in feed_operations.visible_entries(ids)}


def read_cursor(text: str) -> Cursor | None:
    """Parse a cursor as written by `cursor_text`; None for any other text."""
    parts = text.strip().split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        return None
    era, xid, number = [FIRST_ERA, *map(int, parts)][-3:]
    return (era, xid, number) if era <= LAST_ERA and max(xid, number) < 2**63 else None


@dataclass(eq=False)
class Streams:
    """The open streams of this process."""

    feed: Feed
    threads: Threads
    open_calls: OpenCalls
    count: int = 0
    stopping: bool = False

    async def serve(self, request: Request, send: Send) -> None:
        """Answer a call with an event stream. Raises Problem 401, 403, 422 or 503 before the response begins."""
        by = credentials_of(request)
        ear = await self._ear(request, by)
        if ear is None:
            raise Problem(401, "not-authenticated", "Sign in, or send a valid token as `Authorization: Bearer …`.")
        request.refuse_parameters()
        if self.count >= limits.STREAMS or self.stopping:
            metrics.SHED.labels("streams").inc()
            raise busy("This process holds as many streams as it can: try again in a moment.")
        position = self.feed.position
        if position is None:
            raise busy("The timelines cannot be read yet: try again in a moment.")
        cursor, lost = await self._start(request.header(b"last-event-id").decode("latin-1").strip(), position)
        self.count += 1
        subscription, call = self.feed.subscribe(), self.open_calls.open(by, ear.access)
        gone = asyncio.ensure_future(request.gone())
        gone.add_done_callback(lambda _: subscription.end())
        end = asyncio.get_running_loop().call_later(self._longest(by, ear), subscription.end)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as call.interrupts:
                    await send(STREAM_BEGINS)
                    with suppress(Problem):
                        async for part in self._parts(request, subscription, cursor, ear, lost):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
            # A client that reads nothing any more is not waited for.
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    if not gone.done():
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            end.cancel()
            gone.cancel()
            self.open_calls.close(call)
            self.feed.unsubscribe(subscription)
            self.count -= 1

    def _longest(self, by: CallCredentials, ear: StreamListener) -> float:
        """Return the maximum duration of the stream in seconds. It is shorter for a session of the login proxy, because
        the proxy's headers are checked only when a stream begins.
        """
        if ear.access.scopes is None and by.proxy_user:
            return min(settings.STREAM_SECONDS, settings.PROXY_SIGN_IN_STREAM_SECONDS)
        return settings.STREAM_SECONDS

    def stop(self) -> None:
        self.stopping = True
        self.feed.end_all()

    async def _start(self, last_id: str, position: Cursor) -> tuple[Cursor, str]:
        """Return the cursor at which the stream begins, and why the client may have missed entries after `last_id`
        (empty if it has not).
        """
        if not last_id:
            return position, ""
        cursor = read_cursor(last_id)
        if cursor is None:
            return position, "unreadable"
        if cursor[0] < position[0]:
            # The database was restored from a backup since: some sent entries no longer exist. The entries of the new
            # era follow all of the earlier one, and are sent in full.
            return cursor, "earlier-era"
        if cursor > position and cursor > await self.threads.run(feed_operations.newest_cursor):
            # Of another database, or of this one before it was restored.
            return position, "ahead"
        return cursor, ""

    async def _ear(self, request: Request, by: CallCredentials) -> StreamListener | None:
        ear = await self.threads.run(listener_of, by, now=clock.now())
        if ear is not None:
            request.call.person, request.call.token = ear.person, ear.token
        return ear

    async def _frames(self, entries: list[FeedFrame], ear: StreamListener) -> bytes:
        """Return the bytes of these entries that one listener receives."""
        if ear.reader is None:
            return b"".join(entry.frame for entry in entries)
        ids = [entry.cursor[2] for entry in entries]
        frames = await self.threads.run(visible_frames, ear.reader, ids)
        return b"".join(frames[number] for number in ids if number in frames)

    async def _parts(
        self, request: Request, subscription: Subscription, cursor: Cursor, ear: StreamListener, lost: str
    ) -> AsyncIterator[bytes]:
        """Yield the stream's bytes until it ends. While old entries are sent, new ones wait in the subscription.

        Access is checked again at each entry about access; a listener without it receives nothing more. Raises Problem
        if the database becomes unavailable: the stream then ends, and the client resumes it.
        """
        position = max(self.feed.position or cursor, cursor)
        shown = msgspec.json.encode({"server_time": clock.now()})
        yield b"retry: 2000\nid: %b\nevent: clock\ndata: %b\n\n" % (cursor_text(cursor), shown)
        if lost:
            yield b"id: %b\nevent: reset\ndata: %b\n\n" % (cursor_text(cursor), msgspec.json.encode({"reason": lost}))
        while cursor < position:
            recent = self.feed.since(cursor)
            if recent is None:
                page = await self.threads.run(feed_operations.entries_after, cursor=cursor, limit=PAGE)
                recent = [feed_frame(entry) for entry in page]
                if len(recent) < PAGE:
                    position = cursor
            else:
                position = cursor
            if recent:
                if frames := await self._frames(recent, ear):
                    yield frames
                cursor = recent[-1].cursor
        while not subscription.overrun:
            try:
                async with asyncio.timeout(settings.STREAM_PING_SECONDS):
                    await subscription.news.wait()
            except TimeoutError:
                yield PING
                continue
            subscription.news.clear()
            fresh = [entry for entry in subscription.queue if entry.cursor > cursor]
            subscription.queue.clear()
            if fresh:
                if any(entry.about_access for entry in fresh):
                    # Check now, before the next comparison of open calls: new entries may no longer be visible.
                    heard = await self._ear(request, credentials_of(request))
                    if heard is None:
                        return
                    ear = heard
                if frames := await self._frames(fresh, ear):
                    yield frames
                cursor = fresh[-1].cursor
