"""Agent package: the real server serves it next to the agent protocol, whose paths share its prefix."""

from __future__ import annotations

from hashlib import sha256

import requests

from fleet.dashboard.agent_package import package
from tests.gateway_process import Gateway


def test_machine_gets_the_file_of_the_announced_hash(gateway: Gateway) -> None:
    found = package()
    answer = requests.get(f"{gateway.url}/agent/{found.name}", timeout=30)
    assert (answer.status_code, sha256(answer.content).hexdigest()) == (200, found.digest)


def test_a_call_that_the_protocol_does_not_know_is_a_problem(gateway: Gateway) -> None:
    answer = requests.get(f"{gateway.url}/agent/v1/nothing", timeout=30)
    assert (answer.status_code, answer.json()["type"]) == (404, "not-found")
