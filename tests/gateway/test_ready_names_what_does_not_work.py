"""`/readyz` of a running gateway: it names each fault, and recovers as soon as the fault ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import redis
import requests

from fleet.embedded import Urls
from fleet.models import LastRun
from fleet.notifications.router import NAME as ROUTER
from fleet.projections.desk import readiness
from tests.gateway_process import Gateway
from tests.processes import wait_for


def ready(gateway: Gateway) -> tuple[int, dict[str, Any]]:
    said = requests.get(f"{gateway.url}/readyz", timeout=10)
    return said.status_code, said.json()


def becomes(gateway: Gateway, code: int, /, **fields: Any) -> None:
    def is_so() -> bool:
        found, said = ready(gateway)
        return found == code and all(said.get(name) == value for name, value in fields.items())

    wait_for(is_so, seconds=30, what=f"{code} with {fields}", every=0.2)


@contextmanager
def session(servers: Urls) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(servers.database) as connection:
        yield connection
        connection.rollback()


@pytest.mark.flow
@pytest.mark.real_time
@pytest.mark.parametrize("table", ["fleet_scheduledevent", "fleet_sighting", "fleet_approval", "fleet_machine"])
def test_a_locked_table_is_named(gateway: Gateway, servers: Urls, table: str) -> None:
    with session(servers) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        becomes(gateway, 503, database="locked", tables_locked=[table])
        assert requests.get(f"{gateway.url}/healthz", timeout=10).status_code == 200
    becomes(gateway, 200, database="ok", tables_locked=None)


@pytest.mark.flow
@pytest.mark.real_time
def test_a_timeline_without_its_newest_partition_is_named(gateway: Gateway, servers: Urls) -> None:
    with psycopg.connect(servers.database, autocommit=True) as other:
        name, bounds = other.execute(
            "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class WHERE relkind = 'r'"
            " AND pg_get_expr(relpartbound, oid) LIKE '%(MAXVALUE)' AND relname LIKE 'fleet_entry%'"
        ).fetchone() or ("", "")
        other.execute(f"ALTER TABLE fleet_entry DETACH PARTITION {name}")
        try:
            becomes(gateway, 503, database="full", partitions_missing=["fleet_entry"])
        finally:
            other.execute(f"ALTER TABLE fleet_entry ATTACH PARTITION {name} {bounds}")
    becomes(gateway, 200, database="ok", partitions_missing=None)


@pytest.mark.flow
@pytest.mark.real_time
def test_a_redis_that_refuses_writes_is_named(gateway: Gateway, servers: Urls) -> None:
    with redis.Redis.from_url(servers.redis) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        try:
            becomes(gateway, 200, status="degraded", redis="refuses writes")
            wait_for(lambda: gateway.metric("drydock_redis_up") == 0, seconds=30, what="the gauge says so", every=1)
        finally:
            client.config_set("maxmemory", 0)
    becomes(gateway, 200, redis="ok")


@pytest.mark.django_db
def test_what_has_not_run_for_too_long_is_named() -> None:
    now = datetime.now(UTC)
    assert readiness.stalled(now=now) == ("reconciling", "routing")
    for name in (LastRun.RECONCILE, ROUTER):
        LastRun.objects.create(name=name, ran_at=now, via="beat")
    assert readiness.stalled(now=now) == ()
    assert readiness.stalled(now=now + timedelta(seconds=30)) == ("reconciling",)
    assert readiness.stalled(now=now + timedelta(seconds=90)) == ("reconciling", "routing")
    # A time in the future proves nothing.
    assert readiness.stalled(now=now - timedelta(minutes=10)) == ("reconciling", "routing")


@pytest.mark.django_db
def test_every_table_has_room_and_can_be_read() -> None:
    assert (readiness.tables_without_room(), readiness.locked_tables()) == ((), ())
