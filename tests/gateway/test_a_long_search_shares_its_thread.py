"""Long searches in files: the gateway produces them in slices, and its thread answers others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest

from fleet.domain.trace import CALL, Call, Trace
from fleet.gateway import django_pages
from fleet.gateway.django_pages import Pages
from tests.loops import in_a_loop

# An uninterrupted search ends here, and the test with it.
MOST = 2_000_000


class Answer(list[bytes]):
    def close(self) -> None:
        pass


class Handler:
    """WSGI handler: `/search` finds nothing until `/other` has answered a request."""

    def __init__(self) -> None:
        self.answered = Event()
        self.looked = 0

    def __call__(self, environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], Any]) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        if environ["PATH_INFO"] == "/other":
            self.answered.set()
            return Answer([b"other"])
        found = self._search()
        return _Streamed(found)

    def _search(self) -> Iterator[bytes]:
        yield b"head\n"
        while not self.answered.is_set() and self.looked < MOST:
            self.looked += 1
            yield b""
        yield b"found\n"


class _Streamed:
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        pass


async def asked(pages: Pages, path: str) -> list[bytes]:
    """The pieces of the answer as they are sent."""
    sent: list[bytes] = []
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise RuntimeError("Nobody goes away.")

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"])
            assert message["body"] or not message["more_body"], "Nothing is no piece: a client may take it for the end."

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http", "http_version": "1.1",
        "root_path": "", CALL: Call(Trace("x")),
    }  # fmt: skip
    await pages(scope, receive, send)
    return sent


def test_others_are_answered_while_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django_pages, "PIECE_WORK", 0.0)
    handler: Any = Handler()
    pages = Pages(handler, threads=1, queue=10)

    async def story() -> tuple[list[bytes], list[bytes]]:
        search = asyncio.ensure_future(asked(pages, "/search"))
        await asyncio.sleep(0)
        other = await asked(pages, "/other")
        return await search, other

    found, other = in_a_loop(story())
    assert b"".join(other) == b"other"
    assert b"".join(found) == b"head\nfound\n"
    assert handler.looked < MOST
