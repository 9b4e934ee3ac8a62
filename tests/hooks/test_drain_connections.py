"""Draining connections, with a real server and a real client."""

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.conftest import Example, ExampleFactory
from tests.processes import wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the example reads /proc/net")


@pytest.fixture
def client() -> Iterator[socket.socket]:
    """A client of a server that keeps the connection; closing it here closes it there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            served, _ = server.accept()
            served.settimeout(20)

            def serve() -> None:
                with served:
                    served.recv(1)

            thread = threading.Thread(target=serve)
            thread.start()
            yield client
        thread.join()


@pytest.fixture
def drain_file(tmp_path: Path) -> Path:
    return tmp_path / "draining"


def made_of(example: ExampleFactory, client: socket.socket, drain_file: Path, *, timeout: float) -> Example:
    made = example("drain-connections", timeout=timeout)
    made.set(DRAIN_PORT=client.getpeername()[1], DRAIN_FILE=drain_file)
    return made


@pytest.mark.real_time
def test_it_waits_until_the_last_one_has_gone(example: ExampleFactory, client: socket.socket, drain_file: Path) -> None:
    made = made_of(example, client, drain_file, timeout=15)

    def leave() -> None:
        wait_for(drain_file.exists, seconds=10, what="draining")
        client.shutdown(socket.SHUT_RDWR)
        client.close()

    leaver = threading.Thread(target=leave)
    leaver.start()
    event_id, said = made.prepare()
    leaver.join()
    assert said.endswith("No client is connected.\n")
    assert drain_file.exists(), "no new client before the event is over"
    made.recover(event_id)
    assert not drain_file.exists()


@pytest.mark.real_time
def test_one_who_stays_is_a_failure_in_words(example: ExampleFactory, client: socket.socket, drain_file: Path) -> None:
    made = made_of(example, client, drain_file, timeout=8)
    _, said = made.prepare(ends="failed")
    port = client.getpeername()[1]
    assert said == f"1 connections to port {port}.\n1 connections are still open.\n"


def test_draining_continues_while_another_event_is_coming(
    example: ExampleFactory, client: socket.socket, drain_file: Path
) -> None:
    made = made_of(example, client, drain_file, timeout=15)
    client.close()
    first, _ = made.prepare()
    second, _ = made.prepare()
    assert made.recover(first) == f"Still draining, because of {second}.\n"
    assert drain_file.exists()
    assert made.recover(second) == "Connections are taken again.\n"
    assert not drain_file.exists()
