"""Django inside the ASGI application: WSGI in a few threads, with a limit on waiting requests.

A thread is used only while Django computes, never while a client is slow. The whole body is read before a thread
starts, and each part of a long response is generated after the client has received the part before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from io import BytesIO
from time import monotonic
from typing import Any, TypeVar, cast
from urllib.parse import quote_from_bytes

from a2wsgi.wsgi import build_environ
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from fleet.domain import db_timeouts
from fleet.domain.people import SENT_WITH, Access
from fleet.domain.sign_on import TOLD_BY_PROXY, told_by_proxy
from fleet.domain.trace import CALL
from fleet.gateway import http, metrics
from fleet.gateway.open_calls import OpenCall, OpenCalls, credentials_of

T = TypeVar("T")

# Characters that need no escaping in a query string.
PLAIN = bytes(range(0x21, 0x7F))
HTML = b"text/html; charset=utf-8"
# A form or a call of the API: the longest has a few texts of 2,000 characters.
BODY_BYTES = 256 * 1024
# How many longer bodies, where they are accepted, one process keeps at once.
LARGE_AT_ONCE = 2
# How much of a long answer a thread computes at once.
PIECE_BYTES = 64 * 1024
# And for how long at once, where matches are rare.
PIECE_WORK = 0.5
# How long one piece may take to be sent. A slower client has to request it again.
PIECE_SECONDS = 30.0


class Pages:
    """ASGI application that runs Django. Django's own ASGI handler would cost several times as much and leaks
    connections.
    """

    def __init__(
        self,
        handler: WSGIHandler,
        *,
        threads: int,
        queue: int,
        page_of: Callable[[int], bytes] | None = None,
        large: Mapping[str, int] | None = None,
        open_calls: OpenCalls | None = None,
    ) -> None:
        """Create the application around Django's `handler`, with this many `threads` and at most `queue` requests.

        `page_of` returns the error page for an HTTP status; programs get a problem document instead. `large` maps
        addresses that accept larger bodies to their limit in bytes. `open_calls` ends streamed files when the user's
        access ends.
        """
        self.open_calls = open_calls or OpenCalls()
        self._large = large or {}
        self.large_ones = 0
        self.queue = queue
        self._page_of = page_of
        self.running = 0
        self._handler = handler
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix="django", initializer=db_timeouts.use_profile, initargs=("pages",)
        )

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        if scope["type"] != "http":
            return
        request = http.Request(scope, receive)
        most = self._most(request)
        if most > BODY_BYTES and self.large_ones >= LARGE_AT_ONCE:
            metrics.SHED.labels("pages").inc()
            await self._refuse(scope, send, http.busy("Other long lists are being read: try again in a moment."))
            return
        self.large_ones += most > BODY_BYTES
        try:
            await self._serve(request, send, most)
        finally:
            self.large_ones -= most > BODY_BYTES

    def _most(self, request: http.Request) -> int:
        """Return the maximum size of the request's body in bytes. A short body does not count as one of the large
        ones.
        """
        stated = request.header(b"content-length")
        short = stated.isdigit() and len(stated) < 20 and int(stated) <= BODY_BYTES
        return BODY_BYTES if short else self._large.get(request.scope["path"], BODY_BYTES)

    async def _serve(self, request: http.Request, send: http.Send, most: int) -> None:
        scope = request.scope
        try:
            body = await request.body(most)
            if self.running >= self.queue:
                metrics.SHED.labels("pages").inc()
                raise http.busy("Too many requests are waiting: try again in a moment.")
        except http.Problem as problem:
            await self._refuse(scope, send, problem)
            return
        except http.Disconnected:
            return
        self.running += 1
        # The server reports no error when it sends to a disconnected client.
        gone = asyncio.ensure_future(request.gone())
        try:
            await self._answer(_Answer(self._handler, _environ(scope, body)), request, send, gone)
        finally:
            gone.cancel()
            self.running -= 1

    async def _refuse(self, scope: http.Scope, send: http.Send, problem: http.Problem) -> None:
        accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        if self._page_of is None or b"text/html" not in accepted or scope["path"].startswith("/api/"):
            await http.answer_problem(send, problem)
            return
        again = ((b"retry-after", str(problem.retry_after).encode()),) if problem.retry_after is not None else ()
        await http.answer(send, problem.status, self._page_of(problem.status), kind=HTML, headers=again)

    async def _answer(
        self, answer: _Answer, request: http.Request, send: http.Send, gone: asyncio.Future[None]
    ) -> None:
        # Everything of one request in one context, whichever threads it takes.
        context = copy_context()
        loop = asyncio.get_running_loop()

        async def in_a_thread(step: Callable[[], T]) -> T:
            return await loop.run_in_executor(self._threads, context.run, step)

        piece, more = await in_a_thread(answer.begin)
        call = self._watched(answer, request) if more else None
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            while call is None or not call.over:
                if piece or not more:
                    await _sent(send, {"type": "http.response.body", "body": piece, "more_body": more}, call)
                if not more or gone.done():
                    return
                piece, more = await in_a_thread(answer.next_piece)
        except TimeoutError:
            if call is None or not call.over:
                metrics.SHED.labels("slow-reader").inc()
        finally:
            if call is not None:
                self.open_calls.close(call)
            if more:
                await in_a_thread(answer.close)

    def _watched(self, answer: _Answer, request: http.Request) -> OpenCall | None:
        """Register a streamed response of a user, so that it ends when the access with which it began has ended. Return
        None if that is not needed.
        """
        if (access := answer.access) is None:
            return None
        by = credentials_of(request)
        # Pages accept no tokens, so a token that a browser sends is ignored.
        return self.open_calls.open(by if access.scopes is not None else replace(by, token=""), access)


async def _sent(send: http.Send, message: http.Message, call: OpenCall | None) -> None:
    """Send one part of a response. Raises TimeoutError if the client is too slow or the access of the call ends."""
    async with asyncio.timeout(PIECE_SECONDS) as bound:
        if call is None:
            await send(message)
            return
        call.interrupts = bound
        try:
            await send(message)
        finally:
            call.interrupts = None


@dataclass(eq=False)
class _Answer:
    """One request that Django processes step by step; each step may run in another thread."""

    handler: WSGIHandler
    environ: dict[str, Any]
    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    _answer: Any = None
    _chunks: Iterator[bytes] = field(init=False)

    def begin(self) -> tuple[bytes, bool]:
        """Call Django. Return the first part of the response, and whether more parts follow."""
        self._answer = self.handler(self.environ, self._start)
        self._chunks = iter(self._answer)
        return self.next_piece()

    def next_piece(self) -> tuple[bytes, bool]:
        """Return the next part, and whether more parts follow. After the last part, Django's request is closed."""
        piece, began = bytearray(), monotonic()
        try:
            for chunk in self._chunks:
                piece += chunk
                if len(piece) >= PIECE_BYTES or monotonic() - began >= PIECE_WORK:
                    return bytes(piece), True
        except BaseException:
            self.close()
            raise
        self.close()
        return bytes(piece), False

    @property
    def access(self) -> Access | None:
        """Return the access with which the response began; None if no user is signed in."""
        found: Access | None = self.environ.get(SENT_WITH)
        return found

    def close(self) -> None:
        self._answer.close()

    def _start(self, status: str, headers: list[tuple[str, str]], _error: Any = None, /) -> Callable[[bytes], object]:
        self.status = int(status.partition(" ")[0])
        self.headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        # WSGI's old way to write, which Django does not use.
        return lambda _: None


def _environ(scope: http.Scope, body: bytes) -> dict[str, Any]:
    # WSGI does not distinguish `X-Forwarded-For` and `X_Forwarded_For`: a client could add to a proxy's header.
    named = [(name, value) for name, value in scope["headers"] if b"_" not in name]
    # By the socket's own peer, which no header states: it is not available after this point.
    client = scope.get("client")
    named, proxy_user = told_by_proxy(named, peer=str(client[0]) if client else "", by=settings.PROXY_SIGN_IN)
    # Bytes beyond ASCII would raise where the environment is built.
    query = quote_from_bytes(scope["query_string"], safe=PLAIN).encode()
    plain: Any = {**scope, "headers": named, "query_string": query}
    # Its notion of a body is narrower in types than ours, and the same in fact.
    environ: Any = build_environ(plain, cast(Any, BytesIO(body)))
    # However the body came, in chunks or whole, its length is known by now.
    environ["CONTENT_LENGTH"] = str(len(body))
    environ[CALL] = scope[CALL]
    if proxy_user is not None:
        environ[TOLD_BY_PROXY] = proxy_user
    return cast(dict[str, Any], environ)
