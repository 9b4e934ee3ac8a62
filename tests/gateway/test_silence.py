"""Silent connections: the gateway closes one that never sent a byte; the server handles all others."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fleet.gateway.silence import FOLDER, SILENT_SECONDS, Silence
from tests.gateway_process import Gateway


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


def test_only_who_never_said_anything_is_cut_off(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    (quiet, _), (talks, other) = pairs
    talks.sendall(b"GET /")
    silence = Silence(seconds=0.3)
    silence.step()
    assert not ended(quiet)
    time.sleep(0.4)
    silence.step()
    assert ended(quiet)
    assert (ended(talks), other.recv(5)) == (False, b"GET /")


def test_looking_leaves_no_descriptor_open_and_harms_no_other_file(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(os.devnull).open() as file:
        silence = Silence(seconds=0)
        before = sorted(FOLDER.iterdir())
        for _ in range(3):
            silence.step()
        assert sorted(FOLDER.iterdir()) == before
        ours.sendall(b"still here")
        assert (theirs.recv(10), file.read()) == (b"still here", "")


@pytest.mark.flow
@pytest.mark.real_time
@pytest.mark.long
def test_a_real_gateway_ends_a_silent_connection(gateway: Gateway) -> None:
    parts = urlsplit(gateway.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=SILENT_SECONDS + 30) as silent:
        began = time.monotonic()
        assert silent.recv(1) == b""
        assert time.monotonic() - began >= SILENT_SECONDS - 1
