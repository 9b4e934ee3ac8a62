"""Slow, silent and greedy clients: they occupy no Django thread, and other clients get answers."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import requests

from fleet.api.views.machines import MAX_INVENTORY_BYTES
from fleet.domain.trace import CALL, Call, Trace
from fleet.embedded import Urls
from fleet.gateway import django_pages
from fleet.gateway.django_pages import BODY_BYTES, LARGE_AT_ONCE, Pages
from fleet.gateway.silence import FOLDER, SILENT_SECONDS, Silence
from fleet.models import InventoryMachine
from tests.factories import admin
from tests.gateway.test_streams import reader as reader  # noqa: PLC0414 - a fixture
from tests.gateway_process import Gateway
from tests.loops import in_a_loop
from tests.processes import wait_for
from tests.rows import bearer

# More than Django has threads.
MANY = 24

SILENT = 400
PLACE = "/api/v1/inventory/"


@pytest.fixture
def sockets(gateway: Gateway) -> Iterator[list[socket.socket]]:
    """Connections to the gateway on which the client has sent nothing yet."""
    with ExitStack() as stack:
        yield [stack.enter_context(opened(gateway)) for _ in range(SILENT)]


def opened(gateway: Gateway) -> socket.socket:
    parts = urlsplit(gateway.url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10)
    # So that little of an answer fits between the two.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return connection


def begun(gateway: Gateway, length: int, path: str = PLACE) -> socket.socket:
    """Return a call that states how long its body is, and sends nothing of it yet."""
    connection = opened(gateway)
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n".encode())
    return connection


def answers_quickly(gateway: Gateway) -> None:
    began = time.monotonic()
    assert requests.get(f"{gateway.url}/accounts/login/", timeout=10).status_code == 200
    assert time.monotonic() - began < 5


@pytest.mark.real_time
def test_silent_and_half_sent_calls_delay_no_client(gateway: Gateway, sockets: list[socket.socket]) -> None:
    for connection in sockets[:MANY]:
        connection.sendall(b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nuser")
    for connection in sockets[MANY : 2 * MANY]:
        head = b"POST /api/v1/sets HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n{"
        connection.sendall(head)
    time.sleep(0.5)
    answers_quickly(gateway)
    agent = gateway.agent()
    assert agent.post(agent.document()).status_code == 200


def test_a_body_that_is_too_long_is_refused_before_it_is_here(gateway: Gateway) -> None:
    for path, most in (("/accounts/login/", BODY_BYTES), (PLACE, MAX_INVENTORY_BYTES)):
        with begun(gateway, most + 1, path) as connection:
            answer = connection.recv(4096)
        assert b" 413 " in answer.splitlines()[0]
        assert path != PLACE or b"application/problem+json" in answer


@pytest.mark.real_time
def test_slow_reader_of_a_long_answer_does_not_delay_pages(
    gateway: Gateway, sockets: list[socket.socket], reader: dict[str, str], servers: Urls
) -> None:
    with psycopg.connect(servers.database) as writer:
        writer.execute(
            "INSERT INTO fleet_entry (kind, text, at, recorded_at, actor, via, token_name, why, request_id, address,"
            " data) SELECT 'token_created', repeat('x', 4000), now(), now(), 'otto', 'page', '', '', '', '', '{}'"
            " FROM generate_series(1, 2000)"
        )
    for one in sockets[:MANY]:
        one.sendall(
            b"GET /api/v1/audit/export.csv HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Authorization: " + reader["Authorization"].encode() + b"\r\n\r\n"
        )
    for one in sockets[:MANY]:
        assert b"200" in one.recv(256).splitlines()[0]
    answers_quickly(gateway)
    # The gateway computes nothing more for clients that disconnected, and a client that keeps reading gets everything.
    for one in sockets:
        one.close()
    answer = requests.get(f"{gateway.url}/api/v1/audit/export.csv", headers=reader, timeout=60)
    assert answer.text.count("x" * 4000) >= 2000


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Two connections to a port of this process: each as (their end, ours)."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        found = []
        for _ in range(2):
            theirs = stack.enter_context(socket.create_connection(server.getsockname(), timeout=5))
            found.append((theirs, stack.enter_context(server.accept()[0])))
        yield found


def ended(ours: socket.socket) -> bool:
    ours.settimeout(0.2)
    try:
        return ours.recv(1) == b""
    except TimeoutError:
        return False


def test_only_who_never_said_anything_is_cut_off_and_no_descriptor_stays_open(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    (quiet, _), (talks, other) = pairs
    talks.sendall(b"GET /")
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(os.devnull).open() as file:
        silence = Silence(seconds=0.3)
        before = sorted(FOLDER.iterdir())
        for _ in range(3):
            silence.step()
        assert not ended(quiet)
        time.sleep(0.4)
        silence.step()
        assert ended(quiet)
        assert (ended(talks), other.recv(5)) == (False, b"GET /")
        assert sorted(FOLDER.iterdir()) == before
        # No other socket and no file is touched.
        ours.sendall(b"still here")
        assert (theirs.recv(10), file.read()) == (b"still here", "")


@pytest.mark.real_time
@pytest.mark.long
def test_a_real_gateway_ends_a_silent_connection(gateway: Gateway) -> None:
    with opened(gateway) as silent:
        silent.settimeout(SILENT_SECONDS + 30)
        began = time.monotonic()
        assert silent.recv(1) == b""
        assert time.monotonic() - began >= SILENT_SECONDS - 1


def printed(count: int) -> bytes:
    """`az vm list` of so many machines, each as long as it is there."""
    group = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/harbour"
    machines = [
        {
            "id": f"{group}/providers/Microsoft.Compute/virtualMachines/pier-{number}",
            "name": f"pier-{number}",
            "type": "Microsoft.Compute/virtualMachines",
            "resourceGroup": "harbour",
            "location": "westeurope",
            "tags": {"note": "x" * 4000},
        }
        for number in range(count)
    ]
    return json.dumps(machines).encode()


@pytest.fixture
def importer(gateway: Gateway) -> dict[str, str]:
    return bearer(admin(), "read", "admin") | {"Content-Type": "application/json"}


def sent(gateway: Gateway, importer: dict[str, str], body: bytes | Iterator[bytes]) -> requests.Response:
    return requests.post(gateway.url + PLACE, data=body, headers=importer, timeout=30)


def test_a_long_list_is_read(gateway: Gateway, importer: dict[str, str]) -> None:
    body = printed(150)
    assert len(body) > 2 * BODY_BYTES
    assert sent(gateway, importer, body).status_code == 200
    # In chunks without a stated total length.
    assert sent(gateway, importer, iter([body[:1000], body[1000:]])).status_code == 200
    assert InventoryMachine.objects.filter(name__startswith="pier-").count() == 150


def test_excess_large_upload_gets_503(gateway: Gateway, importer: dict[str, str]) -> None:
    def refused() -> tuple[str, bool] | None:
        answer = sent(gateway, importer, printed(70))
        return (answer.json()["type"], "Retry-After" in answer.headers) if answer.status_code == 503 else None

    with ExitStack() as stack:
        for _ in range(LARGE_AT_ONCE - 1):
            stack.enter_context(begun(gateway, 2 * BODY_BYTES))

        def one_more() -> tuple[str, bool] | None:
            # Of those before it one may have come while the place of an earlier call was still taken.
            stack.enter_context(begun(gateway, 2 * BODY_BYTES))
            return refused()

        assert wait_for(one_more, seconds=20, what="the places of long ones are taken") == ("busy", True)
        # A short one needs no such place.
        assert sent(gateway, importer, b"[]").status_code == 200
    wait_for(lambda: refused() is None, seconds=20, what="the places are free again")


# An uninterrupted search ends here, and the test with it.
MOST = 2_000_000


class Handler:
    """WSGI handler: `/search` finds nothing until `/other` has answered a request."""

    def __init__(self) -> None:
        self.answered = Event()
        self.looked = 0

    def __call__(self, environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], Any]) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        if environ["PATH_INFO"] == "/other":
            self.answered.set()
            return (part for part in (b"other",))
        return self._search()

    def _search(self) -> Iterator[bytes]:
        yield b"head\n"
        while not self.answered.is_set() and self.looked < MOST:
            self.looked += 1
            yield b""
        yield b"found\n"


async def asked(pages: Pages, path: str) -> list[bytes]:
    """The pieces of the answer as they are sent."""
    sent: list[bytes] = []
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise RuntimeError("No caller disconnects.")

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


@in_a_loop
async def test_others_are_answered_while_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django_pages, "PIECE_WORK", 0.0)
    handler: Any = Handler()
    pages = Pages(handler, threads=1, queue=10)
    search = asyncio.ensure_future(asked(pages, "/search"))
    await asyncio.sleep(0)
    assert b"".join(await asked(pages, "/other")) == b"other"
    assert b"".join(await search) == b"head\nfound\n"
    assert handler.looked < MOST
