"""Request metrics: requests are counted by route, method and class of status, never by values in an address."""

from __future__ import annotations

import re

import pytest
import requests

from tests.gateway_process import Gateway

pytestmark = [pytest.mark.flow]

NAME = "drydock_http_requests_total"


def series(gateway: Gateway) -> dict[str, float]:
    """Every number of requests by its labels."""
    text = requests.get(f"{gateway.url}/metrics", timeout=10).text
    lines = [line for line in text.splitlines() if line.startswith(f"{NAME}{{")]
    return {line.rpartition(" ")[0].removeprefix(NAME): float(line.rpartition(" ")[2]) for line in lines}


def test_guessed_addresses_share_one_series(gateway: Gateway) -> None:
    # Other tests ask the same server.
    before = series(gateway)
    for number in range(20):
        for method, path in (
            ("GET", f"api/v1/events/guess-{number}/?q=secret-{number}"),
            ("GET", f"nothing-{number}"),
            (f"HOSTILE{number}", f"nothing-{number}"),
        ):
            requests.request(method, f"{gateway.url}/{path}", allow_redirects=False, timeout=10)
    found = series(gateway)
    assert not [name for name in found if "guess-" in name or "nothing" in name or "secret" in name or "HOST" in name]
    event = '{method="GET",route="/api/v1/events/<str:event_id>/",status="4xx"}'
    assert found[event] - before.get(event, 0) == 20
    unmatched = [name for name in found if 'route="unmatched"' in name and found[name] > before.get(name, 0)]
    assert 2 <= len(unmatched) <= 4
    assert sum(found[name] - before.get(name, 0) for name in unmatched) == 40


def test_agents_and_probes_are_counted_too(gateway: Gateway) -> None:
    before = series(gateway)
    agent = gateway.agent()
    agent.post(agent.document())
    agent.orders()
    requests.get(f"{gateway.url}/healthz", timeout=10)
    requests.get(f"{gateway.url}/agent/v1/orders", timeout=10)
    found = series(gateway)

    def more(labels: str) -> float:
        return found[labels] - before.get(labels, 0.0)

    assert more('{method="POST",route="/agent/v1/reports",status="2xx"}') == 1
    assert more('{method="GET",route="/agent/v1/orders",status="2xx"}') == 1
    assert more('{method="GET",route="/agent/v1/orders",status="4xx"}') == 1
    assert more('{method="GET",route="/healthz",status="2xx"}') == 1


def test_a_route_without_an_error_has_had_0_of_them(gateway: Gateway) -> None:
    requests.get(f"{gateway.url}/healthz", timeout=10)
    assert series(gateway)['{method="GET",route="/healthz",status="5xx"}'] == 0


def test_a_histogram_tells_how_long_they_took(gateway: Gateway) -> None:
    requests.get(f"{gateway.url}/healthz", timeout=10)
    text = requests.get(f"{gateway.url}/metrics", timeout=10).text
    assert re.search(r'drydock_http_request_seconds_bucket\{le="0.1",method="GET",route="/healthz"\} [1-9]', text)
    assert re.search(r'drydock_http_request_seconds_count\{method="GET",route="/healthz"\} [1-9]', text)
