"""Memory of long polls: the gateway keeps only what it needs, and notices a disconnected client without a task."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

import pytest

from fleet.gateway.http import Message, Request, Scope
from tests.loops import in_a_loop


def request_of(query: str, messages: list[asyncio.Future[Message]] | None = None) -> Request:
    scope: Scope = {"type": "http", "query_string": query.encode("latin-1"), "headers": [(b"accept", b"*/*")]}
    given = iter(messages or ())
    receive: Any = lambda: next(given)  # noqa: E731 - as servers give it: a future, and no coroutine
    return Request(scope, receive)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "wait=50&spool=a-b&keys=",
        "wait",
        "=x&&a=1&a=2",
        "a=b=c&d==&",
        "sent_at=2026-01-01T00:00:00%2B01:00",
        "a+b=c+d&e=%41%zz",
        "\xfc=\xdf;x=1",
    ],
)
def test_a_query_is_read_as_the_standard_library_reads_it(query: str) -> None:
    assert request_of(query).query == dict(parse_qsl(query, keep_blank_values=True))


def test_nothing_of_a_held_call_is_kept() -> None:
    request = request_of("wait=50")
    assert request.header(b"accept") == b"*/*"
    request.forget()
    assert request.scope == {}
    assert request._headers is None


def test_a_client_that_went_away_is_heard_once_and_one_that_was_answered_not_at_all() -> None:
    heard: list[str] = []

    async def story() -> None:
        events = asyncio.get_running_loop()
        left, cut, answered = events.create_future(), events.create_future(), events.create_future()
        request = request_of("", [left, cut, answered])
        request.when_gone(lambda: heard.append("left"))
        request.when_gone(lambda: heard.append("cut"))
        request.when_gone(lambda: heard.append("answered")).cancel()
        left.set_result({"type": "http.disconnect"})
        cut.set_exception(ConnectionResetError())
        await asyncio.sleep(0)

    in_a_loop(story())
    assert heard == ["left", "cut"]
