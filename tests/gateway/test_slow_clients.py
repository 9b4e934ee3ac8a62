"""Slow clients: senders and readers of any speed occupy no Django thread, and other clients get answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from pytest_django import DjangoDbBlocker

from fleet.domain.secrets import new_secret
from fleet.embedded import Urls
from fleet.gateway import django_pages
from tests.factories import operator
from tests.gateway.conftest import shared
from tests.gateway.test_streams import token as token  # noqa: PLC0414 - a fixture
from tests.gateway_process import Gateway
from tests.rows import TokenFactory

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

# More than Django has threads.
MANY = 24
SILENT = 400


@pytest.fixture
def sockets(gateway: Gateway) -> Iterator[list[socket.socket]]:
    """Connections to the gateway with nothing said yet."""
    with ExitStack() as stack:
        yield [stack.enter_context(opened(gateway)) for _ in range(MANY)]


def opened(gateway: Gateway) -> socket.socket:
    parts = urlsplit(gateway.url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10)
    # So that little of an answer fits between the two.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return connection


def answers_quickly(gateway: Gateway) -> None:
    began = time.monotonic()
    assert requests.get(f"{gateway.url}/accounts/login/", timeout=10).status_code == 200
    assert time.monotonic() - began < 5


def test_half_sent_logins_do_not_delay_pages(gateway: Gateway, sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.sendall(b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nuser")
    time.sleep(0.5)
    answers_quickly(gateway)


def test_hundreds_of_silent_connections_block_no_client(gateway: Gateway) -> None:
    with ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(opened(gateway))
        answers_quickly(gateway)
        agent = gateway.agent()
        assert agent.post(agent.document()).status_code == 200


def test_half_sent_api_calls_do_not_delay_pages(gateway: Gateway, sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.sendall(b"POST /api/v1/sets HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n{")
    time.sleep(0.5)
    answers_quickly(gateway)


def test_a_body_that_is_too_long_is_refused_before_it_is_here(gateway: Gateway) -> None:
    with opened(gateway) as connection:
        length = str(django_pages.BODY_BYTES + 1).encode()
        connection.sendall(b"POST /accounts/login/ HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n")
        assert b"413" in connection.recv(4096).splitlines()[0]


@pytest.fixture(scope="module")
def writing_token(one_gateway: Gateway, django_db_blocker: DjangoDbBlocker) -> str:
    """A token that does more than read, which alone changes the settings of its person."""
    secret = new_secret("dd")
    with shared(one_gateway.urls, django_db_blocker):
        TokenFactory(secret=secret, user=operator(), scopes=["read", "approve"])
    return secret


def test_a_body_in_pieces_arrives_whole(gateway: Gateway, writing_token: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"time_zone": '
        yield b'"Nowhere/Else"}'

    headers = {"Authorization": f"Bearer {writing_token}", "Content-Type": "application/json"}
    answer = requests.patch(f"{gateway.url}/api/v1/me/", data=pieces(), headers=headers, timeout=10)
    assert answer.status_code == 422
    assert "Nowhere/Else" in answer.text


def test_slow_reader_of_a_long_answer_does_not_delay_pages(
    gateway: Gateway, sockets: list[socket.socket], token: str, servers: Urls
) -> None:
    with psycopg.connect(servers.database) as writer:
        writer.execute(
            "INSERT INTO fleet_entry (kind, text, at, recorded_at, actor, via, token_name, why, request_id, address,"
            " data) SELECT 'token_created', repeat('x', 4000), now(), now(), 'otto', 'page', '', '', '', '', '{}'"
            " FROM generate_series(1, 2000)"
        )
    for one in sockets:
        one.sendall(
            b"GET /api/v1/audit/export.csv HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
        )
    for one in sockets:
        assert b"200" in one.recv(256).splitlines()[0]
    answers_quickly(gateway)
    # The gateway computes nothing more for clients that disconnected, and a client that keeps reading gets everything.
    for one in sockets:
        one.close()
    answer = requests.get(
        f"{gateway.url}/api/v1/audit/export.csv", headers={"Authorization": f"Bearer {token}"}, timeout=60
    )
    assert answer.text.count("x" * 4000) >= 2000
