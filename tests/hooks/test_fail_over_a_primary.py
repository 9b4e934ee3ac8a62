"""Failing over a primary, with a small server that answers as a node's REST API does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.hooks.conftest import Example, ExampleFactory


class Node:
    """The API of one node. A switchover that was taken shows in the role after two more looks."""

    def __init__(self) -> None:
        self.role = "master"
        self.healthy = 2
        self.looks_until_replica = -1
        self.switchovers: list[tuple[dict[str, Any], str]] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if node.looks_until_replica == 0:
                    node.role = "replica"
                node.looks_until_replica -= 1
                content = {"state": "running", "role": node.role, "patroni": {"name": "pg1", "scope": "shop"}}
                self._answer(200 if self.path == "/patroni" else 404, json.dumps(content))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                node.switchovers.append((body, self.headers.get("Authorization", "")))
                if node.healthy < 2:
                    self._answer(412, "switchover is not possible: no good candidates have been found\n")
                else:
                    node.looks_until_replica = 2
                    self._answer(200, 'Successfully switched over to "pg2"')

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    thread = threading.Thread(target=node.server.serve_forever, args=(0.02,))
    thread.start()
    yield node
    node.server.shutdown()
    thread.join()
    node.server.server_close()


@pytest.fixture
def made(example: ExampleFactory, node: Node) -> Example:
    made = example("fail-over-a-primary")
    made.set(PATRONI_URL=f"http://127.0.0.1:{node.server.server_address[1]}", http_proxy="http://127.0.0.1:9")
    return made


def test_the_primary_hands_its_role_over_and_waits_until_it_has(made: Example, node: Node) -> None:
    made.set(PATRONI_USER="admin", PATRONI_PASSWORD="pass")
    _, said = made.prepare()
    assert said == 'Successfully switched over to "pg2"\npg1 is no longer the primary.\n'
    assert node.switchovers == [({"leader": "pg1"}, "Basic YWRtaW46cGFzcw==")]
    assert node.role == "replica"


def test_in_a_drill_the_primary_keeps_its_role(made: Example, node: Node) -> None:
    assert made.rehearse("prepare.d/20-fail-over") == "A drill: pg1 would hand its role over now.\n"
    assert node.switchovers == []


def test_a_replica_has_nothing_to_do(made: Example, node: Node) -> None:
    node.role = "replica"
    _, said = made.prepare()
    assert said == "This node is a replica: nothing to do.\n"
    assert node.switchovers == []


def test_missing_failover_candidate_is_a_failure_with_a_reason(made: Example, node: Node) -> None:
    node.healthy = 1
    _, outcome, said = made.try_to_prepare()
    assert outcome == "failed"
    assert said == "Patroni refused: 412 switchover is not possible: no good candidates have been found\n"
