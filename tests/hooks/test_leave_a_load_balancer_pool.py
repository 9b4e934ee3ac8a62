"""Leaving a load balancer's pool and coming back, with a small server that answers as HAProxy's runtime API does."""

import socketserver
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.conftest import ExampleFactory
from tests.receivers import in_a_thread


class Pool:
    """One server of one backend. Each look at the sessions of a draining server finds one fewer."""

    def __init__(self) -> None:
        self.state = "ready"
        self.sessions = 3

    def answer(self, command: str) -> str:
        words = command.split()
        if words[:2] == ["set", "server"]:
            if words[2] != "web/vm1":
                return "No such server.\n\n"
            self.state = words[4]
            return "\n"
        if words == ["show", "stat"]:
            if self.state == "drain" and self.sessions:
                self.sessions -= 1
            rows = ["# pxname,svname,qcur,scur", "web,FRONTEND,,9", "web,vm2,0,7", f"web,vm1,0,{self.sessions}"]
            return "\n".join(rows) + "\n\n"
        return "Unknown command.\n"


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(self.server.pool.answer(self.rfile.readline().decode()).encode())  # type: ignore[attr-defined]


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture(params=["tcp", "socket"])
def address(request: pytest.FixtureRequest, pool: Pool, tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "admin.sock")
    server: socketserver.BaseServer
    if request.param == "tcp":
        server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
        path = f"127.0.0.1:{server.server_address[1]}"
    else:
        server = socketserver.UnixStreamServer(path, Handler)
    server.pool = pool  # type: ignore[attr-defined]
    with in_a_thread(server):
        yield path


def test_the_machine_leaves_serves_its_last_sessions_and_comes_back(
    example: ExampleFactory, pool: Pool, address: str
) -> None:
    made = example("leave-a-load-balancer-pool")
    made.set(HAPROXY=address, HAPROXY_SERVER="web/vm1")
    first, said = made.prepare()
    assert (said, pool.state, pool.sessions) == ("web/vm1 is out of the pool.\n", "drain", 0)
    second, _ = made.prepare("Freeze")
    assert made.recover(first) == f"web/vm1 stays out of the pool, because of {second}.\n"
    assert pool.state == "drain"
    assert made.recover(second) == "web/vm1 is in the pool again.\n"
    assert pool.state == "ready"


def test_a_refusal_is_a_failure_in_words(example: ExampleFactory, address: str) -> None:
    made = example("leave-a-load-balancer-pool")
    made.set(HAPROXY=address, HAPROXY_SERVER="web/vm9")
    _, said = made.prepare(ends="failed")
    assert said == "HAProxy refused: No such server.\n"


@pytest.mark.real_time
def test_sessions_that_stay_are_a_failure_in_words(example: ExampleFactory, pool: Pool, address: str) -> None:
    pool.sessions = 1000
    made = example("leave-a-load-balancer-pool", timeout=4)
    made.set(HAPROXY=address, HAPROXY_SERVER="web/vm1")
    _, said = made.prepare(ends="failed")
    assert said.startswith("web/vm1 takes no new client, and still serves 9")
