"""Limits and refusals: each is a problem of the API's list; other routes are Django's."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from drydock_agent import wire

from fleet.gateway.django_pages import BODY_BYTES
from fleet.models import Observation
from fleet.wording.problems import PROBLEMS
from tests.access import table
from tests.gateway.access_calls import COLUMNS, GatewayCaller, calls
from tests.gateway_process import Gateway, running_gateway
from tests.processes import wait_for


def problem(answer: requests.Response) -> tuple[int, str]:
    """Status and type of a problem, which has to be a whole one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["title"]
    assert said["detail"].endswith(".")
    return answer.status_code, said["type"]


def send(gateway: Gateway, body: bytes, *, credential: str = "", path: str = wire.REPORTS_PATH) -> requests.Response:
    headers = {"Authorization": f"Bearer {credential}"} if credential else {}
    return requests.post(gateway.url + path, data=body, headers=headers, timeout=20)


@pytest.mark.parametrize("path", [wire.ORDERS_PATH, "/api/v1/sets/", "/stream", "/"])
def test_two_authorization_headers_are_a_400(gateway: Gateway, path: str) -> None:
    parts = urlsplit(gateway.url)
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=20)) as connection:
        connection.putrequest("GET", path)
        for value in ("Bearer dd_one", "Bearer dd_other"):
            connection.putheader("Authorization", value)
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_too_many_bytes_or_reports_are_a_413(gateway: Gateway) -> None:
    agent = gateway.agent()
    body = b" " * (wire.MAX_REQUEST_BYTES + 1)
    assert problem(send(gateway, body, credential=agent.credential)) == (413, "too-large")
    pieces = (b" " * 1024 * 1024 for _ in range(5))
    url = gateway.url + wire.REPORTS_PATH
    assert problem(requests.post(url, data=pieces, headers=agent.headers, timeout=20)) == (413, "too-large")
    batch = [agent.document() for _ in range(wire.MAX_REPORTS + 1)]
    assert problem(agent.post(*batch)) == (413, "too-large")
    assert agent.post(*batch[: wire.MAX_REPORTS]).json()["acknowledged"] == wire.MAX_REPORTS


UNREADABLE = [
    *(b"", b"{", b"\xff\xfe", b"[]", b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"spool": "s"}'),
    b'{"spool": "s", "sent_at": "yesterday"}',
    b'{"spool": "", "sent_at": "2026-01-01T00:00:00Z"}',
    b'{"spool": "s", "sent_at": "0001-01-01T00:00:00+14:00"}',
    *(
        b'{"spool": "s", "sent_at": "2026-01-01T00:00:00Z", ' + rest + b"}"
        for rest in (
            b'"reports": [{"kind": "document"}]',
            b'"reports": [{"seq": 0}]',
            b'"reports": [{"seq": 9223372036854775808}]',
            b'"reports": [{"seq": 2}, {"seq": 1}]',
            b'"held": ["7"]',
        )
    ),
]


def test_what_cannot_be_read_is_a_422(gateway: Gateway) -> None:
    agent = gateway.agent()
    for body in UNREADABLE:
        assert problem(send(gateway, body, credential=agent.credential)) == (422, "validation"), body
    assert problem(send(gateway, b'{"machine_id": "m"}', path=wire.ENROL_PATH)) == (422, "validation")


@pytest.fixture(scope="module")
def limited(one_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with low limits on the same servers."""
    low = {"AGENT_CALLS_PER_MINUTE": "60", "INGEST_QUEUE_REPORTS": "20"}
    with running_gateway(one_gateway.urls, tmp_path_factory.mktemp("log"), environment=low) as running:
        yield running


@pytest.mark.real_time
def test_throttled_machine_gets_a_retry_time(gateway: Gateway, limited: Gateway) -> None:
    busy, calm = limited.agent(), limited.agent()
    for call in (busy.post, busy.orders):
        throttled = next(answer for answer in (call() for _ in range(400)) if answer.status_code != 200)
        assert problem(throttled) == (429, "throttled")
        assert 1 <= int(throttled.headers["retry-after"]) <= 60
        assert calm.post().status_code == 200
        time.sleep(1.1)
        assert busy.post().status_code == 200


@pytest.mark.real_time
def test_under_pressure_batches_are_sent_away_and_nothing_taken_is_lost(gateway: Gateway, limited: Gateway) -> None:
    before = limited.metric("drydock_shed_total", why="queue")
    agents = [limited.agent() for _ in range(16)]
    with psycopg.connect(gateway.urls.database) as lock, ThreadPoolExecutor(16) as pool:
        lock.execute("LOCK TABLE fleet_spool IN SHARE ROW EXCLUSIVE MODE")
        calls = []
        for agent in agents:
            batch = [agent.document(incarnation=number) for number in range(5)]
            calls.append(pool.submit(agent.post, *batch))
        wait_for(lambda: any(call.done() for call in calls), seconds=20, what="a call is refused")
        lock.rollback()
        answers = [call.result(30) for call in calls]
    sent_away = [answer for answer in answers if answer.status_code == 503]
    assert sent_away
    assert all(problem(answer) == (503, "busy") for answer in sent_away)
    assert all(1 <= int(answer.headers["retry-after"]) <= 5 for answer in sent_away)
    assert limited.metric("drydock_shed_total", why="queue") - before == len(sent_away)
    taken = [agent for agent, answer in zip(agents, answers, strict=True) if answer.status_code == 200]
    assert taken
    for agent, answer in zip(agents, answers, strict=True):
        count = Observation.objects.filter(machine__vm_id=agent.vm_id).count()
        assert count == (5 if answer.status_code == 200 else 0)


def test_texts_of_an_enrolment_may_hold_anything(gateway: Gateway) -> None:
    agent = gateway.agent(resource_name="web\x001", instance={"name": "w\x00", "tags": "a:b", "osType": 7})
    assert agent.post().status_code == 200


def test_who_waits_for_admission_is_answered_202_and_an_agent_of_the_release_before_503(gateway: Gateway) -> None:
    agent = gateway.agent()
    body = {"join_token": gateway.join_token, "machine_id": agent.vm_id}
    waits = requests.post(f"{gateway.url}/agent/v1/enrol", json={**body, "ask": "me"}, timeout=10)
    assert (waits.status_code, waits.json()["admission"], waits.json()["retry_after"]) == (202, "pending", 30.0)
    old = requests.post(f"{gateway.url}/agent/v1/enrol", json=body, timeout=10)
    assert (old.status_code, old.json()["type"], old.headers["Retry-After"]) == (503, "admission-pending", "30")
    assert agent.post().status_code == 200


def test_what_the_gateway_refuses_below_api_is_a_problem_of_the_same_list(gateway: Gateway) -> None:
    assert problem(requests.get(gateway.url + "/agent/v1/nothing", timeout=5)) == (404, "not-found")
    assert problem(requests.get(gateway.url + wire.ORDERS_PATH, timeout=5)) == (401, "not-authenticated")
    stranger = b'{"join_token": "join_no_thing", "machine_id": "m"}'
    assert problem(send(gateway, stranger, path=wire.ENROL_PATH)) == (403, "join-token-refused")
    answer = requests.post(gateway.url + "/api/v1/stream", timeout=5)
    assert problem(answer) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"
    assert answer.json()["title"] == PROBLEMS["method-not-allowed"].title
    large = requests.post(gateway.url + "/api/v1/events/", data=b" " * (BODY_BYTES + 1), timeout=5)
    assert problem(large) == (413, "too-large")
    for place in ("/api/v1/events/%ff/", "/api/v1/events/%00/", "/api/v1/%ed%a0%80", "/api/v1/events/?type=\xff"):
        assert problem(requests.get(gateway.url + place, timeout=5))[0] in (401, 404), place
    assert problem(requests.get(gateway.url + "/api/v1/me/", headers={"Host": "evil.example"}, timeout=5))[0] == 400
    # Elsewhere Django answers.
    page = requests.get(gateway.url + "/?q=%FF\xe9", timeout=10, allow_redirects=False)
    assert (page.status_code, "/login" in page.headers["location"]) == (302, True)


def test_the_table_has_every_route_of_the_gateway_and_no_other() -> None:
    assert set(table.read("gateway")) == set(calls()), table.STALE


def test_the_gateway_answers_each_caller_as_its_table_says(gateway: Gateway) -> None:
    caller = GatewayCaller(gateway)
    wrong = []
    for call, cells in table.read("gateway").items():
        assert tuple(cells) == tuple(COLUMNS), table.STALE
        found = {column: caller.cell(*call, column) for column in cells}
        wrong += [
            f"{call} for {name}: {found[name]}, not {cells[name]}" for name in cells if found[name] != cells[name]
        ]
    assert wrong == [], table.STALE
