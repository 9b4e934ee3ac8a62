"""Django as one guest of the ASGI application: WSGI in a few threads, with a bound on how many wait."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote_from_bytes

from a2wsgi import WSGIMiddleware
from django.core.handlers.wsgi import WSGIHandler

from fleet.gateway import metrics
from fleet.gateway.http import Message, Receive, Scope, Send, answer_problem, busy

# What may stand in a query string as it is.
PLAIN = bytes(range(0x21, 0x7F))


def _as_coroutine(receive: Receive) -> Receive:
    """Granian's `receive` answers with a future, and a2wsgi hands it to asyncio, which wants a coroutine."""

    async def received() -> Message:
        return await receive()

    return received


class Pages:
    """Django's pages. Its own ASGI path costs several times as much and leaks connections."""

    def __init__(self, handler: WSGIHandler, *, threads: int, queue: int) -> None:
        self.queue = queue
        self.running = 0
        # Its notion of ASGI's messages is narrower in types than ours, and the same in fact.
        self._wsgi: Any = WSGIMiddleware(cast(Any, handler), workers=threads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self.running >= self.queue:
            metrics.SHED.labels("pages").inc()
            await answer_problem(send, busy("Too many requests are waiting: try again in a moment."))
            return
        # Bytes beyond ASCII would raise where the environment is built.
        scope["query_string"] = quote_from_bytes(scope["query_string"], safe=PLAIN).encode()
        self.running += 1
        try:
            await self._wsgi(scope, _as_coroutine(receive), send)
        finally:
            self.running -= 1
