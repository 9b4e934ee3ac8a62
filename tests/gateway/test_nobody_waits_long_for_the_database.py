"""A row or a table that somebody keeps locked holds up whoever wants it, for two seconds, and nobody else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from fleet.domain.patience import ROLES
from fleet.embedded import Urls
from tests.factories import listing, operator
from tests.gateway.test_streams import token_of
from tests.gateway_process import Gateway

pytestmark = [pytest.mark.flow, pytest.mark.real_time]
EVENT = "10CCED00-0000-4000-8000-000000000001"


def test_a_decision_about_a_locked_event_is_told_to_try_again(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent(availability_set="availability_set:locked")
    agent.post(agent.document(events=(listing(EVENT, resources=["vm"]),))).raise_for_status()
    otto = operator()
    headers = {"Authorization": f"Bearer {token_of(otto, 'approve')}"}
    reader = {"Authorization": f"Bearer {token_of(otto, 'read')}"}

    def claim() -> requests.Response:
        return requests.post(f"{gateway.url}/api/v1/events/{EVENT}/claims/", json={}, headers=headers, timeout=30)

    with psycopg.connect(servers.database) as other, ThreadPoolExecutor() as pool:
        other.execute("SELECT 1 FROM fleet_scheduledevent WHERE event_id = %s FOR UPDATE", [EVENT])
        began = time.monotonic()
        waiting = pool.submit(claim)
        assert requests.get(f"{gateway.url}/api/v1/events/", headers=reader, timeout=10).status_code == 200
        answer = waiting.result()
        assert ROLES["pages"].lock - 0.1 < time.monotonic() - began < 10
        assert (answer.status_code, answer.json()["type"], answer.headers["Retry-After"]) == (503, "busy", "2")
        assert "Somebody else is changing the same thing right now. Nothing was done." in answer.json()["detail"]
    assert claim().status_code in (200, 201)


def test_a_page_says_try_again_instead_of_failing(gateway: Gateway, servers: Urls) -> None:
    page = requests.get(f"{gateway.url}/accounts/login/", timeout=10)
    fields = {"username": "nobody", "password": "guess", "csrfmiddlewaretoken": page.cookies["drydock_csrf"]}

    def log_in() -> requests.Response:
        return requests.post(f"{gateway.url}/accounts/login/", data=fields, cookies=page.cookies, timeout=30)

    with psycopg.connect(servers.database) as other:
        other.execute("LOCK TABLE fleet_loginattempts IN ACCESS EXCLUSIVE MODE")
        answer = log_in()
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "2"
        assert "Try again in a moment" in answer.text
    assert log_in().status_code == 200
