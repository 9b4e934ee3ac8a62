"""`/metrics`: the fleet counted from the database and never waited for, Celery's tasks counted on Redis, requests by
route, method and class of status, and every name documented.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import requests
from celery import current_app, signals
from django.conf import settings
from prometheus_client import CollectorRegistry, generate_latest

from fleet.domain import gauges
from fleet.domain.clock import EPOCH
from fleet.domain.gauges import CELERY_HASH, GAUGES, Gauge, Sample
from fleet.embedded import Urls
from fleet.gateway import metrics
from fleet.gateway.metrics import Collected, Figures
from fleet.management import documentation
from fleet.models import Entry, InventoryMachine, PresenceRow, Wave
from fleet.projections.desk import gauges as fleet_gauges
from fleet.relay import counts
from fleet.relay.counts import Counts
from fleet.settings import broker
from tests.caches.walking import Listeners
from tests.factories import Fleet, announced, open_order, operator, seconds, the_set
from tests.gateway_process import Gateway
from tests.loops import in_a_loop
from tests.processes import free_port

DOCS = Path(__file__).parents[2] / "docs" / "admin" / "monitoring.md"


def numbers(fleet: Fleet) -> dict[str, float]:
    """Every number as Prometheus reads it, by its name with labels."""
    registry = CollectorRegistry()
    registry.register(Collected(fleet_gauges.measure(now=fleet.now)))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


@pytest.mark.django_db
def test_an_idle_fleet_and_one_with_an_approval_that_hangs() -> None:
    fleet = Fleet()
    idle = numbers(fleet)
    assert "drydock_next_not_before_seconds" not in idle
    assert (idle["drydock_up"], idle["drydock_events_waiting"], idle["drydock_open_orders"]) == (1, 0, 0)

    announced(fleet, not_before=fleet.now + seconds(901))
    fleet.advance()
    waiting = numbers(fleet)
    assert waiting['drydock_events{status="SCHEDULED"}'] == 1
    assert (waiting["drydock_events_waiting"], waiting["drydock_next_not_before_seconds"]) == (1, 900)
    assert waiting['drydock_machines{presence="live"}'] == 6
    assert waiting["drydock_sweep_age_seconds"] == 0

    approval = fleet.approve()
    fleet.advance()
    fleet.later(2)
    fleet.advance()
    on_its_way = numbers(fleet)
    assert on_its_way["drydock_events_waiting"] == 0
    assert on_its_way['drydock_approvals{state="RELAYING"}'] == 1
    assert (on_its_way["drydock_open_orders"], on_its_way["drydock_oldest_open_order_seconds"]) == (1, 2)
    assert on_its_way["drydock_approvals_overdue"] == 0
    fleet.later(10)
    hangs = numbers(fleet)
    assert hangs["drydock_approvals_overdue"] == 1
    assert (hangs['drydock_steps_overdue{step="sent"}'], hangs['drydock_steps_overdue{step="answered"}']) == (1, 0)
    fleet.delivered(open_order(approval))
    fleet.later(11)
    assert numbers(fleet)['drydock_steps_overdue{step="answered"}'] == 1


@pytest.mark.django_db
def test_what_is_not_sealed_and_waves() -> None:
    fleet = Fleet()
    announced(fleet)
    Wave.objects.create(state="STOPPED", created_by=operator(), via="page", created_at=fleet.now, closed_at=fleet.now)
    recorded = Entry.objects.order_by("xid", "id")[0].recorded_at
    found = {sample.gauge.name: sample.values for sample in fleet_gauges.measure(now=recorded + timedelta(seconds=40))}
    assert found["drydock_unsealed_seconds"] == {(): 40.0}
    fleet.later(60)
    assert numbers(fleet)["drydock_waves_stopped"] == 1
    fleet.later(3600)
    assert numbers(fleet)["drydock_waves_stopped"] == 0


@in_a_loop
async def asked(measure: Callable[[], Sequence[Sample]], times: int = 1) -> list[tuple[Sequence[Sample] | None, float]]:
    """What so many scrapes get one after the other, each with the seconds that it took."""
    figures = Figures(measure, asyncio.get_running_loop())
    figures.loop.start()
    found = []
    for _ in range(times):
        began = time.monotonic()
        found.append((await figures.current(), time.monotonic() - began))
    figures.loop.stop()
    return found


def test_numbers_are_counted_once_for_scrapes_close_together() -> None:
    calls: list[int] = []

    def measure() -> Sequence[Sample]:
        calls.append(1)
        return [Sample(GAUGES[1], {("SCHEDULED",): 1.0})]

    first, second = asked(measure, times=2)
    assert first[0] == second[0] and first[0] is not None
    assert len(calls) == 1


def test_unavailable_or_hanging_database_delays_no_scrape() -> None:
    def away() -> Sequence[Sample]:
        raise OSError("away")

    released = threading.Event()

    def hangs() -> Sequence[Sample]:
        released.wait(30)
        return []

    try:
        for measure in (away, hangs):
            for found, took in asked(measure, times=2):
                assert found is None
                assert took < 10
    finally:
        released.set()
    registry = CollectorRegistry()
    registry.register(Collected(None))
    assert "\ndrydock_up 0.0\n" in generate_latest(registry).decode()


def test_every_metric_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert documentation.metrics() in page
    assert len({gauge.name for gauge in GAUGES}) == len(GAUGES)
    known = set(re.findall(r"`(drydock_\w+)`", documentation.metrics()))
    assert set(re.findall(r"drydock_[a-z_]+", page)) <= known


def values_of(fleet: Fleet, gauge: Gauge) -> dict[Any, float]:
    """What a gauge says, by its one label, or by nothing."""
    found = next(sample for sample in fleet_gauges.measure(now=fleet.now) if sample.gauge is gauge)
    return {labels[0] if labels else None: value for labels, value in found.values.items()}


def listed(fleet: Fleet, name: str, **fields: Any) -> InventoryMachine:
    return InventoryMachine.objects.create(resource_id=f"/{name}", name=name, imported_at=fleet.now, **fields)


@pytest.mark.django_db
def test_clocks_are_quantiles_in_either_direction_and_those_too_far_off_are_counted() -> None:
    fleet = Fleet()
    assert values_of(fleet, gauges.CLOCK_OFFSET) == {}
    assert values_of(fleet, gauges.CLOCKS_OFF) == {None: 0}
    fleet.enrol_set(10)
    fleet.heard()
    for number, row in enumerate(PresenceRow.objects.order_by("pk")):
        PresenceRow.objects.filter(pk=row.pk).update(clock_offset=-60.0 if number == 9 else number / 10)
    assert values_of(fleet, gauges.CLOCK_OFFSET) == {"0.5": 0.4, "0.9": 0.8, "0.99": 60.0, "1": 60.0}
    assert values_of(fleet, gauges.CLOCKS_OFF) == {None: 1}
    # A machine that is silent tells nothing of its clock.
    fleet.later(3600)
    assert values_of(fleet, gauges.CLOCKS_OFF) == {None: 0}


@pytest.mark.django_db
def test_sets_are_watched_whole_partly_or_not() -> None:
    fleet = Fleet()
    assert values_of(fleet, gauges.SETS) == {"full": 0, "partial": 0, "none": 0}
    fleet.enrol_set(2, prefix="a", availability_set="whole")
    fleet.enrol_set(2, prefix="b", availability_set="partly")
    fleet.enrol_set(2, prefix="c", availability_set="not")
    fleet.later(3600)
    fleet.all_say(names=["a1", "a2", "b1"])
    assert values_of(fleet, gauges.SETS) == {"full": 1, "partial": 1, "none": 1}
    # A machine that the inventory lists and that has no agent is not watched, however well the others are.
    listed(fleet, "a3", availability_set=the_set("whole"))
    assert values_of(fleet, gauges.SETS) == {"full": 0, "partial": 2, "none": 1}
    assert values_of(fleet, gauges.WITHOUT_AGENT) == {None: 1}
    # Nor is a set without an agent.
    gone = fleet.enrol("db1", availability_set="db").machine
    type(gone).objects.filter(pk=gone.pk).update(revoked_at=fleet.now)
    for name, machine in (("db1", gone), ("db2", None), ("db3", None)):
        listed(fleet, name, availability_set=the_set("db"), machine=machine)
    assert values_of(fleet, gauges.SETS) == {"full": 0, "partial": 2, "none": 2}
    assert values_of(fleet, gauges.WITHOUT_AGENT) == {None: 4}


@pytest.mark.django_db
def test_a_cache_is_listened_to_by_a_live_machine_or_it_is_not() -> None:
    fleet = Listeners()
    assert values_of(fleet, gauges.CACHES) == {"covered": 0, "uncovered": 0, "unsupported": 0}
    fleet.enrol_set(3)
    fleet.all_say()
    for host, name, state in (("a", "vm1", "subscribed"), ("b", "vm2", "subscribed"), ("c", "vm3", "lost")):
        fleet.cover(name, state, host=f"{host}.redis.cache.windows.net")
    fleet.cover("vm3", "unsupported", host="d.redis.azure.net")
    assert values_of(fleet, gauges.CACHES) == {"covered": 2, "uncovered": 1, "unsupported": 1}
    fleet.later(3600)
    fleet.all_say(names=["vm1"])
    assert values_of(fleet, gauges.CACHES) == {"covered": 1, "uncovered": 2, "unsupported": 1}


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
    reports = gateway.metric("drydock_reports_total")
    agent.post(agent.document())
    assert gateway.metric("drydock_reports_total") == reports + 1
    agent.orders()
    assert requests.get(f"{gateway.url}/healthz", timeout=10).json() == {"status": "ok"}
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
