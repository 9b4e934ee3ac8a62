"""Small HTTP/1.1 server on asyncio. It controls every byte, so that it can also send invalid responses.

The handler returns a `Response`, or a coroutine for a later response, which is cancelled if the client disconnects.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import urllib.parse
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Request:
    """One HTTP request. `target` and `head` are as received. Header names are lower case; repeated headers are
    joined.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    head: bytes

    @property
    def path(self) -> str:
        """The path without the query, percent-decoded."""
        return _split_target(self.target)[0]

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the query in order, including repeated names."""
        return _split_target(self.target)[1]


@dataclass(slots=True)
class Response:
    """One HTTP response. If `length` differs from the body's length, it is sent as Content-Length, and the connection
    is closed afterwards.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None


class Reset(Response):
    """Instead of a response, reset the connection."""

    def __init__(self) -> None:
        super().__init__(status=0)


class Hangup(Response):
    """Instead of a response, close the connection normally."""

    def __init__(self) -> None:
        super().__init__(status=0)


Answer = Response | Coroutine[Any, Any, Response]
Handler = Callable[[Request], Answer]


class BadRequestError(Exception):
    """The bytes are not a supported request. The connection cannot be used further."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Connection(asyncio.Protocol):
    """Connection of one client. Requests are answered one at a time, in order."""

    def __init__(self, handler: Handler, connections: set[Connection]) -> None:
        self._handler = handler
        self._connections = connections
        self._buffer = bytearray()
        self._later: asyncio.Task[None] | None = None
        self._told_to_continue = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._later is not None:
            self._later.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._later is None:
            self._work()

    def abort(self) -> None:
        self._transport.abort()

    def _work(self) -> None:
        while self._buffer and self._later is None and not self._transport.is_closing():
            try:
                parsed = parse(self._buffer)
            except BadRequestError as error:
                self._write(Response(error.status, str(error).encode(), "text/plain; charset=utf-8"), keep=False)
                return
            if parsed is None:
                self._continue_if_asked()
                return
            request, used = parsed
            del self._buffer[:used]
            self._told_to_continue = False
            answer = self._handler(request)
            if isinstance(answer, Response):
                self._write(answer, keep=_keeps(request), head_only=request.method == "HEAD")
            else:
                self._later = asyncio.create_task(self._write_later(answer, request))

    async def _write_later(self, answer: Coroutine[Any, Any, Response], request: Request) -> None:
        response: Response = Reset()
        try:
            response = await answer
        finally:
            # After an exception, reset the connection so that the client does not wait. asyncio logs the exception.
            self._later = None
            self._write(response, keep=_keeps(request), head_only=request.method == "HEAD")
        self._work()

    def _write(self, response: Response, *, keep: bool, head_only: bool = False) -> None:
        if self._transport.is_closing():
            return
        if isinstance(response, Reset):
            # With a linger time of 0, closing sends RST instead of FIN.
            linger = struct.pack("ii", 1, 0)
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
            return
        if isinstance(response, Hangup):
            self._transport.close()
            return
        length = len(response.body) if response.length is None else response.length
        keep = keep and length == len(response.body)
        lines = [f"HTTP/1.1 {response.status} {_reason(response.status)}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        if response.status != 304:
            lines.append(f"Content-Type: {response.content_type}")
            lines.append(f"Content-Length: {length}")
        if not keep:
            lines.append("Connection: close")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        self._transport.write(head if head_only or response.status == 304 else head + response.body)
        if not keep:
            self._transport.close()

    def _continue_if_asked(self) -> None:
        if self._told_to_continue or b"\r\n\r\n" not in self._buffer:
            return
        head = bytes(self._buffer[: self._buffer.index(b"\r\n\r\n")]).lower()
        if b"\r\nexpect: 100-continue" in head:
            self._told_to_continue = True
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def parse(buffer: bytearray) -> tuple[Request, int] | None:
    """Return the first request in `buffer` and its length in bytes, or None if it is incomplete. Raises
    BadRequestError.
    """
    end, gap = buffer.find(b"\r\n\r\n"), 4
    if end < 0:
        # Requests typed by hand (nc, printf) may have no carriage return at the end of lines.
        end, gap = buffer.find(b"\n\n"), 2
    if end < 0 or end > MAX_HEAD_BYTES:
        if len(buffer) > MAX_HEAD_BYTES:
            raise BadRequestError(431, "the head of the request is too large")
        return None
    head = bytes(buffer[:end])
    method, target = _request_line(head)
    headers = parse_headers(head)
    start = end + gap
    if "chunked" in headers.get("transfer-encoding", "").lower():
        chunked = _unchunk(buffer, start)
        if chunked is None:
            return None
        body, used = chunked
        return Request(method, target, headers, body, head), used
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise BadRequestError(400, "Content-Length is not a number")
    length = int(declared)
    if length > MAX_BODY_BYTES:
        raise BadRequestError(413, "the body is too large")
    if len(buffer) < start + length:
        return None
    return Request(method, target, headers, bytes(buffer[start : start + length]), head), start + length


def parse_headers(head: bytes) -> dict[str, str]:
    """Return the headers of a request, with names in lower case."""
    headers: dict[str, str] = {}
    for line in head.split(b"\n")[1:]:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(400, "a header line is malformed")
        key, text = name.lower(), value.strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@functools.lru_cache(maxsize=4096)
def _split_target(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    path, _, query = target.partition("?")
    return urllib.parse.unquote(path), tuple(urllib.parse.parse_qsl(query, keep_blank_values=True))


def _request_line(head: bytes) -> tuple[str, str]:
    words = head.split(b"\n", 1)[0].decode("latin-1").rstrip("\r").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0] or not words[1].startswith("/"):
        raise BadRequestError(400, "the request line is malformed")
    return words[0], words[1]


def _unchunk(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    body = bytearray()
    at = start
    while True:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        size_text = bytes(buffer[at:line_end]).split(b";", 1)[0].strip()
        try:
            size = int(size_text, 16)
        except ValueError as error:
            raise BadRequestError(400, "a chunk's size is malformed") from error
        if size < 0 or len(body) + size > MAX_BODY_BYTES:
            raise BadRequestError(413, "the body is too large")
        at = line_end + 2
        if len(buffer) < at + size + 2:
            return None
        body += buffer[at : at + size]
        at += size + 2
        if size == 0:
            return bytes(body), at


def _keeps(request: Request) -> bool:
    wish = request.headers.get("connection", "").lower()
    if request.head.split(b"\n", 1)[0].rstrip().endswith(b"HTTP/1.0"):
        return "keep-alive" in wish
    return "close" not in wish


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
