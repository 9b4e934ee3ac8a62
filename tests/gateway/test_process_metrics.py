"""`/metrics`: Celery's tasks, counted on Redis, and requests by route, method and class of status."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import requests
from celery import current_app, signals
from django.conf import settings
from prometheus_client import CollectorRegistry, generate_latest

from fleet.domain.clock import EPOCH
from fleet.domain.gauges import CELERY_HASH
from fleet.embedded import Urls
from fleet.gateway import metrics
from fleet.gateway.metrics import Collected
from fleet.relay import counts
from fleet.relay.counts import Counts
from fleet.settings import broker
from tests.gateway_process import Gateway
from tests.processes import free_port


@pytest.fixture
def line(servers: Urls) -> Iterator[redis.Redis]:
    """Redis as the gateway of these tests has it, without what others counted."""
    with redis.Redis.from_url(servers.redis) as client:
        client.delete(CELERY_HASH, settings.CELERY_TASK_DEFAULT_QUEUE)
        yield client
        client.delete(CELERY_HASH, settings.CELERY_TASK_DEFAULT_QUEUE)


def shown() -> str:
    registry = CollectorRegistry()
    registry.register(Collected(metrics.measure()))
    return generate_latest(registry).decode()


def test_tasks_are_counters_by_name_and_outcome(line: redis.Redis) -> None:
    mine = Counts()
    for _ in range(3):
        mine.ended("fleet.relay.tasks.advance", "succeeded", 0.5)
    mine.ended("fleet.relay.tasks.advance", "failed", 0.5)
    mine.sent(time.time() - 7)
    mine.flush(line)
    mine.ended("fleet.relay.tasks.advance", "succeeded", 0.25)
    mine.flush(line)
    said = shown()
    assert 'drydock_celery_tasks_total{outcome="succeeded",task="fleet.relay.tasks.advance"} 4.0' in said
    assert 'drydock_celery_tasks_total{outcome="failed",task="fleet.relay.tasks.advance"} 1.0' in said
    assert 'drydock_celery_task_seconds_total{task="fleet.relay.tasks.advance"} 2.25' in said
    assert "# TYPE drydock_celery_tasks_total counter" in said
    age = next(row for row in said.splitlines() if row.startswith("drydock_celery_beat_age_seconds "))
    assert 7 <= float(age.split()[1]) < 3600
    assert line.ttl(CELERY_HASH) > 0


def test_a_task_that_has_not_failed_yet_has_failed_0_times_and_names_have_an_end() -> None:
    counted, *_ = metrics.read({b"count succeeded a": b"3", b"count retried b": b"1"}, EPOCH)
    assert counted.values["a", "succeeded"] == 3 and counted.values["b", "retried"] == 1
    assert counted.values["a", "failed"] == counted.values["b", "failed"] == counted.values["b", "dropped"] == 0
    many = {f"seconds task{number}".encode(): b"1" for number in range(100_000)}
    assert sum(len(sample.values) for sample in metrics.read(many, EPOCH)) <= metrics.MOST_FIELDS


def test_what_waits_for_a_worker_is_counted(line: redis.Redis) -> None:
    assert "drydock_celery_queue_length 0.0" in shown()
    with current_app.connection_for_write(broker(settings.REDIS_URL)) as connection:
        current_app.send_task("fleet.relay.tasks.seal", connection=connection)
    assert "drydock_celery_queue_length 1.0" in shown()


def test_redis_outage_keeps_the_numbers_and_is_visible_in_a_scrape(line: redis.Redis, settings: Any) -> None:
    mine = Counts()
    mine.ended("a", "succeeded", 1.0)
    away = redis.Redis.from_url(f"redis://127.0.0.1:{free_port()}")
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            mine.flush(away)
    mine.flush(line)
    assert line.hgetall(CELERY_HASH) == {b"count succeeded a": b"1", b"seconds a": b"1"}
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}"
    assert "drydock_redis_up 0.0" in shown()
    assert "drydock_celery" not in shown()


FIELDS = ("", "count", "count succeeded", "count won task", "count succeeded a b", "seconds", "beat x", "\xff", "x y")


def test_what_cannot_be_read_creates_no_series() -> None:
    pairs = [(field, "1") for field in FIELDS] + [("seconds a", value) for value in ("nan", "inf", "-1", "x", "")]
    for field, value in pairs:
        read = metrics.read({field.encode("latin-1"): value.encode()}, EPOCH)
        assert not any(sample.values for sample in read), (field, value)


def test_each_end_of_a_task_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(counts.counts, "ended", lambda task, outcome, _: found.append((task, outcome)))

    class Request:
        task = "a"

    class Task:
        name, request = "a", Request

    for state in ("SUCCESS", "FAILURE", "RETRY", "REJECTED", None):
        signals.task_prerun.send(sender=Task, task_id="1", task=Task)
        signals.task_postrun.send(sender=Task, task_id="1", task=Task, state=state)
    signals.task_revoked.send(sender=Task, request=Request, terminated=False, signum=None, expired=True)
    signals.task_unknown.send(sender=None, name="<script>", id="1", message=None, exc=None)
    outcomes = ["succeeded", "failed", "retried", "dropped", "dropped", "dropped"]
    assert found == [*(("a", outcome) for outcome in outcomes), ("unknown", "dropped")]
    assert counts._began == {}


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

    # A route without an error has had 0 of them. A histogram tells how long they took.
    assert found['{method="GET",route="/healthz",status="5xx"}'] == 0
    text = requests.get(f"{gateway.url}/metrics", timeout=10).text
    assert re.search(r'drydock_http_request_seconds_bucket\{le="0.1",method="GET",route="/healthz"\} [1-9]', text)
    assert re.search(r'drydock_http_request_seconds_count\{method="GET",route="/healthz"\} [1-9]', text)
