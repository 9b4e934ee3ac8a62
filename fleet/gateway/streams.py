"""Server-sent events for browsers and scripts: what changed, with ids, resumed by `Last-Event-ID` without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.cookies import CookieError, SimpleCookie

import msgspec
from django.conf import settings

from fleet.domain.people import Right
from fleet.domain.pseudonyms import pseudonym
from fleet.domain.refusal import Refused
from fleet.domain.timeline import FIRST_ERA, LAST_ERA
from fleet.gateway import metrics
from fleet.gateway.feed import PAGE, Feed, Subscription, Told, cursor_text, told
from fleet.gateway.http import Problem, Request, Send, busy
from fleet.gateway.limits import GatewayLimits
from fleet.gateway.threads import Threads
from fleet.operations import clock
from fleet.operations.people import tokens
from fleet.projections.people import rights
from fleet.projections.sight import Sight, seeing, sight_of
from fleet.projections.timeline import feed as feed_operations
from fleet.projections.timeline.feed import Cursor
from fleet.wording.reader import API
from fleet.wording.say import say

PING = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Ear:
    """Who listens, by which token. `sight` says how far they see; None where they see everything."""

    sight: Sight | None
    person: str = ""
    token: str = ""


def ear_of(*, token: str, session_key: str, now: datetime, address: str = "") -> Ear | None:
    """Who has this token, or else this session; None where nobody does. Raises Problem 403 when they may not read,
    or the token does not count from this address.
    """
    token_name = ""
    if token:
        try:
            found = tokens.person_of_token(token=token, now=now, address=address)
        except Refused as error:
            raise Problem(403, "not-permitted", say(error.reason, API)) from error
        if found is None:
            return None
        person, row = found
        token_name = row.name
        if "read" not in row.scopes:
            raise Problem(403, "not-permitted", "The token does not have the scope `read`.")
    else:
        session = tokens.person_of_session(session_key=session_key, now=now) if session_key else None
        if session is None:
            return None
        person = session
    owned = rights(person)
    if not owned.may(Right.READ):
        raise Problem(403, "not-permitted", "Reading needs the right of a viewer. Ask an admin of your installation.")
    name = person.get_username()
    return Ear(sight_of(owned, name=name, number=person.pk), pseudonym(person.pk), token_name)


def told_to(sight: Sight, ids: Collection[int]) -> dict[int, bytes]:
    """Of these entries those in sight, each as this stream tells it, by id."""
    with seeing(Sight(sight.name, sight.scopes, sight.number)):
        return {entry.row.id: told(entry).frame for entry in feed_operations.entries_in_sight(ids)}


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
        """Answer one call with a stream. Raises Problem 401, 403, 422 or 503 before anything was sent."""
        ear = await self._ear(request)
        if ear is None:
            raise Problem(401, "not-authenticated", "Log in, or send a valid token as `Authorization: Bearer …`.")
        request.refuse_parameters()
        if self.count >= self.limits.streams or self.stopping:
            metrics.SHED.labels("streams").inc()
            raise busy("This process holds as many streams as it can: try again in a moment.")
        position = self.feed.position
        if position is None:
            raise busy("The timelines cannot be read yet: try again in a moment.")
        cursor, lost = await self._start(request.header(b"last-event-id").decode("latin-1").strip(), position)
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
                async for part in self._parts(request, subscription, cursor, ear, lost):
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

    async def _start(self, last_id: str, position: Cursor) -> tuple[Cursor, str]:
        """Where the stream begins, and why what was kept up to this id is not to be relied on, if it is not."""
        if not last_id:
            return position, ""
        cursor = read_cursor(last_id)
        if cursor is None:
            return position, "unreadable"
        if cursor[0] < position[0]:
            # The database came back from a backup since: of what was told some is not there any more. What has been
            # written in the new era comes after all of the earlier one, and is told whole.
            return cursor, "earlier-era"
        if cursor > position and cursor > await self.threads.run(feed_operations.newest_cursor):
            # Of another database, or of this one before it was restored.
            return position, "ahead"
        return cursor, ""

    async def _ear(self, request: Request) -> Ear | None:
        ear = await self.threads.run(
            ear_of,
            token=request.bearer,
            session_key=session_key(request),
            now=clock.now(),
            address=request.client,
        )
        if ear is not None:
            request.call.person, request.call.token = ear.person, ear.token
        return ear

    async def _frames(self, entries: list[Told], ear: Ear) -> bytes:
        """What one stream tells of these entries."""
        if ear.sight is None:
            return b"".join(entry.frame for entry in entries)
        ids = [entry.cursor[2] for entry in entries]
        frames = await self.threads.run(told_to, ear.sight, ids)
        return b"".join(frames[number] for number in ids if number in frames)

    async def _parts(
        self, request: Request, subscription: Subscription, cursor: Cursor, ear: Ear, lost: str
    ) -> AsyncIterator[bytes]:
        """The stream's bytes, until it has to end. What comes while it catches up waits in the subscription.

        Whoever has lost the right to listen is told nothing more: asked anew where an entry is about somebody's access.

        Raises Problem when the database is away in the meantime: then the stream ends and is resumed.
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
                recent = [told(entry) for entry in page]
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
                async with asyncio.timeout(self.limits.ping):
                    await subscription.news.wait()
            except TimeoutError:
                yield PING
                continue
            subscription.news.clear()
            fresh = [entry for entry in subscription.queue if entry.cursor > cursor]
            subscription.queue.clear()
            if fresh:
                if any(entry.about_access for entry in fresh):
                    heard = await self._ear(request)
                    if heard is None:
                        return
                    ear = heard
                if frames := await self._frames(fresh, ear):
                    yield frames
                cursor = fresh[-1].cursor
