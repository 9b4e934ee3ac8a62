"""Failing over a primary, with a small server that answers as a node's REST API does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hooks.conftest import Example, ExampleFactory
from tests.receivers import Handler, serving


class Node:
    """The API of one node. A switchover that was taken shows in the role after two more looks."""

    def __init__(self) -> None:
        self.url = ""
        self.role = "master"
        self.healthy = 2
        self.looks_until_replica = -1
        self.switchovers: list[tuple[dict[str, Any], str]] = []


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()

    class Here(Handler):
        def take(self) -> None:
            if self.command == "GET":
                if node.looks_until_replica == 0:
                    node.role = "replica"
                node.looks_until_replica -= 1
                content = {"state": "running", "role": node.role, "patroni": {"name": "pg1", "scope": "shop"}}
                self.answer(200 if self.path == "/patroni" else 404, json.dumps(content).encode())
                return
            node.switchovers.append((json.loads(self.body()), self.headers.get("Authorization", "")))
            if node.healthy < 2:
                self.answer(412, b"switchover is not possible: no good candidates have been found\n")
            else:
                node.looks_until_replica = 2
                self.answer(200, b'Successfully switched over to "pg2"')

    with serving(Here) as node.url:
        yield node


@pytest.fixture
def made(example: ExampleFactory, node: Node) -> Example:
    made = example("fail-over-a-primary")
    made.set(PATRONI_URL=node.url, http_proxy="http://127.0.0.1:9")
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
    _, said = made.prepare(ends="failed")
    assert said == "Patroni refused: 412 switchover is not possible: no good candidates have been found\n"
