"""HTTP as far as the gateway needs it: requests, bodies with size limits, responses and problem documents."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from ipaddress import ip_network
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from django.conf import settings

from fleet.domain.addresses import address_of
from fleet.domain.trace import CALL, Call
from fleet.wording.problems import PROBLEMS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = b"application/json"
PROBLEM = b"application/problem+json"

# A client that sends a few bytes a minute must not keep a place for ever.
BODY_SECONDS = 30.0


@dataclass(eq=False)
class Problem(Exception):
    """An error response: HTTP status, problem type, and a sentence with the remedy (RFC 9457).

    `retry_after` is the header `Retry-After` in whole seconds. `allow` lists the methods of a 405. `errors` of the type
    `validation` have `field` and `message`. `server_time` is set if the signing time of a call is wrong.
    """

    status: int
    code: str
    sentence: str
    _: KW_ONLY
    retry_after: int | None = None
    allow: Collection[str] = ()
    errors: Collection[dict[str, str]] = ()
    server_time: datetime | None = None

    def __str__(self) -> str:
        return self.sentence


def busy(sentence: str) -> Problem:
    """Return a Problem 503 with a random `Retry-After`, so that rejected clients do not all return at the same time."""
    return Problem(503, "busy", sentence, retry_after=random.randint(1, 5))  # noqa: S311 - no secret


class Disconnected(Exception):
    """Raised if the client disconnects before its request is complete; no response is sent."""


class Request:
    """One HTTP request, read from its ASGI scope. Header names are in lower case."""

    __slots__ = ("_headers", "receive", "scope", "signed_hash")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self._headers: dict[bytes, bytes] | None = None
        # The body's hash in its signature (SHA-256 in hex, `-` without one); empty for an unsigned call.
        self.signed_hash = ""

    def header(self, name: bytes) -> bytes:
        if self._headers is None:
            self._headers = dict(self.scope["headers"])
        return self._headers.get(name, b"")

    def forget(self) -> None:
        """Release the data of a long poll's request to save memory; it must not be read afterwards."""
        self._headers = None
        self.scope.clear()

    @property
    def call(self) -> Call:
        """Return the call of this request, in which the user is recorded for the log."""
        found: Call = self.scope[CALL]
        return found

    @property
    def query(self) -> dict[str, str]:
        text = self.scope["query_string"].decode("latin-1")
        if "%" in text or "+" in text:
            return dict(parse_qsl(text, keep_blank_values=True))
        # Nothing is escaped, as in nearly all calls of agents: the same for a tenth.
        return {name: value for name, _, value in (part.partition("=") for part in text.split("&") if part)}

    def refuse_parameters(self) -> None:
        """Raise Problem `validation` if the URL has a query. An ignored filter would return more than the caller
        expects.
        """
        if names := sorted(self.query):
            errors = [{"field": name, "message": "There is no such parameter."} for name in names]
            sentence = f"There is no parameter `{names[0]}` here. Correct what `errors` names."
            raise Problem(422, "validation", sentence, errors=errors)

    @property
    def client(self) -> str:
        """Return the client's address without a port: that of the peer, or the one that a trusted proxy reports."""
        client = self.scope.get("client")
        forwarded = b",".join(value for name, value in self.scope["headers"] if name == b"x-forwarded-for")
        proxies = [ip_network(proxy, strict=False) for proxy in settings.TRUSTED_PROXIES]
        return address_of(str(client[0]) if client else "", forwarded.decode("latin-1"), proxies)

    @property
    def bearer(self) -> str:
        """Return the token of the header `Authorization: Bearer …`; empty without one."""
        scheme, _, token = self.header(b"authorization").partition(b" ")
        return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""

    async def body(self, limit: int) -> bytes:
        """Return the whole body. Raises Problem 413 above `limit` bytes, 408 if it arrives too slowly, 401 if it
        differs from the signed body, and Disconnected.
        """
        raw = await self._body(limit)
        if self.signed_hash and self.signed_hash != (sha256(raw).hexdigest() if raw else "-"):
            raise Problem(401, "not-authenticated", "The body of this call is not the one that was signed.")
        return raw

    async def _body(self, limit: int) -> bytes:
        too_large = Problem(413, "too-large", f"A request may have up to {limit} bytes.")
        stated = self.header(b"content-length")
        if stated.isdigit() and int(stated) > limit:
            raise too_large
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            first: bytes = message.get("body", b"")
            if len(first) > limit:
                raise too_large
            return first
        parts = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    parts += message.get("body", b"")
                    if len(parts) > limit:
                        raise too_large
                    if not message.get("more_body"):
                        return bytes(parts)
                    message = await self.receive()
        except TimeoutError:
            sentence = f"The request took more than {BODY_SECONDS:.0f} seconds to arrive: send it again."
            raise Problem(408, "too-slow", sentence) from None

    async def gone(self) -> None:
        """Return when the client has disconnected. Call it only after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def when_gone(self, call: Callable[[], None]) -> asyncio.Future[Message]:
        """Call `call` when the client has disconnected, and return a future that cancels this. Call it only after the
        body was read. If the server provides its own future, that one is used: it costs a tenth of a task for each long
        poll.
        """
        message = asyncio.ensure_future(self.receive())
        message.add_done_callback(partial(_ended, call))
        return message


def _ended(call: Callable[[], None], message: asyncio.Future[Message]) -> None:
    if not message.cancelled():
        # However it ended, the client has disconnected.
        message.exception()
        call()


async def answer(
    send: Send, status: int, body: bytes, *, kind: bytes = JSON, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a complete response, marked as not cacheable. `kind` is the media type."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", kind),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def answer_problem(send: Send, problem: Problem) -> None:
    """Send the problem as `application/problem+json`."""
    document: dict[str, Any] = {
        "type": problem.code,
        "title": PROBLEMS[problem.code].title,
        "status": problem.status,
        "detail": problem.sentence,
        **({"errors": list(problem.errors)} if problem.errors else {}),
        **({"server_time": problem.server_time} if problem.server_time else {}),
    }
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if problem.retry_after is not None:
        headers += ((b"retry-after", str(problem.retry_after).encode()),)
    if problem.allow:
        headers += ((b"allow", ", ".join(problem.allow).encode()),)
    if problem.status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    await answer(send, problem.status, msgspec.json.encode(document), kind=PROBLEM, headers=headers)
