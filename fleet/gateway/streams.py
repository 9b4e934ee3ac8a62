"""Server-sent events for browsers and scripts: what changed, with ids, resumed by `Last-Event-ID` without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie

import msgspec
from django.conf import settings

from fleet.domain.people import Right
from fleet.domain.timeline import FIRST_ERA, LAST_ERA
from fleet.gateway import metrics
from fleet.gateway.feed import PAGE, Feed, Subscription, cursor_text, told
from fleet.gateway.http import Problem, Request, Send, busy
from fleet.gateway.limits import GatewayLimits
from fleet.gateway.threads import Threads
from fleet.operations.people import tokens
from fleet.projections.people import rights
from fleet.projections.timeline import feed as feed_operations
from fleet.projections.timeline.feed import Cursor

PING = b": ping\n\n"


def may_read(*, token: str, session_key: str, now: datetime) -> bool:
    """Whether the token or else the session belongs to a person who may read. Raises Problem 403 when they may not."""
    if token:
        found = tokens.person_of_token(token=token, now=now)
        if found is None:
            return False
        person, row = found
        if "read" not in row.scopes:
            raise Problem(403, "not-permitted", "The token does not have the scope `read`.")
    else:
        session = tokens.person_of_session(session_key=session_key) if session_key else None
        if session is None:
            return False
        person = session
    if not rights(person).may(Right.READ):
        raise Problem(403, "not-permitted", "Reading needs the right of a viewer. Ask an admin of your installation.")
    return True


def session_key(request: Request) -> str:
    try:
        morsel = SimpleCookie(request.header(b"cookie").decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def read_cursor(text: str) -> Cursor | None:
    """What `cursor_text` makes of one; None for anything else."""
    parts = text.strip().split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        return None
    era, xid, number = [FIRST_ERA, *map(int, parts)][-3:]
    return (era, xid, number) if era <= LAST_ERA and max(xid, number) < 2**63 else None


class Streams:
    """The open streams of this process."""

    def __init__(self, feed: Feed, threads: Threads, limits: GatewayLimits) -> None:
        self.feed = feed
        self.threads = threads
        self.limits = limits
        self.count = 0
        self.stopping = False

    async def serve(self, request: Request, send: Send) -> None:
        """Answer one call with a stream. Raises Problem 401, 403 or 503 before anything was sent."""
        if not await self._may_listen(request):
            raise Problem(401, "not-authenticated", "Log in, or send a valid token as `Authorization: Bearer …`.")
        if self.count >= self.limits.streams or self.stopping:
            metrics.SHED.labels("streams").inc()
            raise busy("This process holds as many streams as it can: try again in a moment.")
        position = self.feed.position
        if position is None:
            raise busy("The timelines cannot be read yet: try again in a moment.")
        cursor = read_cursor(request.header(b"last-event-id").decode("latin-1")) or position
        # An id from beyond the newest is of another database, as after a restore: such a stream begins anew.
        if cursor > position and cursor > await self.threads.run(feed_operations.newest_cursor):
            cursor = position
        self.count += 1
        subscription = self.feed.subscribe()
        gone = asyncio.ensure_future(request.gone())
        gone.add_done_callback(lambda _: subscription.end())
        end = asyncio.get_running_loop().call_later(self.limits.stream, subscription.end)
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", b"text/event-stream; charset=utf-8"),
                        (b"cache-control", b"no-cache, no-transform"),
                        # Proxies that gather answers would hold events back.
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
            with suppress(Problem):
                async for part in self._parts(request, subscription, cursor):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            end.cancel()
            gone.cancel()
            self.feed.unsubscribe(subscription)
            self.count -= 1

    def stop(self) -> None:
        self.stopping = True
        self.feed.end_all()

    async def _may_listen(self, request: Request) -> bool:
        return await self.threads.run(
            may_read, token=request.bearer, session_key=session_key(request), now=datetime.now(UTC)
        )

    async def _parts(self, request: Request, subscription: Subscription, cursor: Cursor) -> AsyncIterator[bytes]:
        """The stream's bytes, until it has to end. What comes while it catches up waits in the subscription.

        Whoever has lost the right to listen is told nothing more: asked anew where an entry is about somebody's access.

        Raises Problem when the database is away in the meantime: then the stream ends and is resumed.
        """
        position = max(self.feed.position or cursor, cursor)
        clock = msgspec.json.encode({"server_time": datetime.now(UTC)})
        yield b"retry: 2000\nid: %b\nevent: clock\ndata: %b\n\n" % (cursor_text(cursor), clock)
        while cursor < position:
            recent = self.feed.since(cursor)
            if recent is None:
                page = await self.threads.run(feed_operations.entries_after, cursor=cursor, limit=PAGE)
                recent = [told(entry) for entry in page]
                if len(recent) < PAGE:
                    position = cursor
            else:
                position = cursor
            if recent:
                yield b"".join(entry.frame for entry in recent)
                cursor = recent[-1].cursor
        while not subscription.overrun:
            try:
                async with asyncio.timeout(self.limits.ping):
                    await subscription.news.wait()
            except TimeoutError:
                yield PING
                continue
            subscription.news.clear()
            fresh = [entry for entry in subscription.queue if entry.cursor > cursor]
            subscription.queue.clear()
            if fresh:
                if any(entry.about_access for entry in fresh) and not await self._may_listen(request):
                    return
                cursor = fresh[-1].cursor
                yield b"".join(entry.frame for entry in fresh)
