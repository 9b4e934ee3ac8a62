"""`/readyz`: it names each late or failing part, and recovers as soon as the fault ends."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import psycopg
import pytest
import redis
import requests
from django.db import OperationalError

from fleet.domain.db_timeouts import Connections, name_of, read_names
from fleet.embedded import Urls
from fleet.gateway.probes import ProbeCache, Probes
from fleet.gateway.threads import Threads
from fleet.models import LastRun, QuarantinedRow
from fleet.notifications.router import NAME as ROUTER
from fleet.projections.desk import readiness
from fleet.projections.desk.gauges import quarantined_rows
from tests.gateway_process import Gateway
from tests.loops import in_a_loop
from tests.processes import wait_for

WELL: dict[str, Any] = {"signing": "ok", "era": "ok"}

NO_ROOM = Connections({"web": 2}, 90, 8, 97)


def probes_of(answer: ProbeCache, *, heard: bool = True, seconds: float = 0.0) -> tuple[Probes, list[int]]:
    """Return probes that find this after so long, and a list that grows with each query."""
    queries: list[int] = []

    async def run(_: Any) -> ProbeCache:
        queries.append(1)
        await asyncio.sleep(seconds)
        return answer

    probes: Any = Probes.__new__(Probes)
    probes.threads, probes.agents = Threads(threads=1, queue=1), SimpleNamespace(stopping=False)
    probes.threads.run = run
    probes.wake_ups = SimpleNamespace(heard=heard)
    return probes, queries


@in_a_loop
async def asked(found: ProbeCache, *, redis: bool = True) -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []

    async def send(part: Any) -> None:
        sent.append(part)

    await probes_of(found, heard=redis)[0].readyz(None, send)  # type: ignore[arg-type]
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ({}, "ok", {}),
        ({"late": ("fleet_entry", "fleet_message")}, "degraded", {"partitions_late": ["fleet_entry", "fleet_message"]}),
        # What cannot leave stays: nothing is lost by it.
        ({"notices": {"archive": "store-away"}}, "ok", {"archive": "store-away"}),
        ({"quarantined": {"event": 2}}, "ok", {"quarantined": {"event": 2}}),
        ({"unusable": {"channels_unreadable": 1}}, "degraded", {"channels_unreadable": 1}),
        ({"connections": NO_ROOM}, "degraded", {"connections": {"most": 98, "room": 97}}),
        ({"era": "not begun"}, "degraded", {"era": "not begun"}),
        ({"signing": "unreadable"}, "degraded", {"signing": "unreadable"}),
        ({"redis": "refuses writes"}, "degraded", {"redis": "refuses writes"}),
        ({"stalled": ("reconciling", "routing")}, "degraded", {"stalled": ["reconciling", "routing"]}),
        ({"skew": -600.04}, "degraded", {"clock": {"skew_seconds": -600.0}}),
    ],
)
def test_each_part_has_a_field_of_its_own(found: dict[str, Any], status: str, said: dict[str, Any]) -> None:
    whole = {"status": status, "database": "ok", "redis": "ok", **WELL, **said}
    assert asked(ProbeCache("ok", **(WELL | found))) == (200, whole)


def test_without_its_database_it_is_not_ready() -> None:
    assert asked(ProbeCache("away"))[0] == 503
    status, said = asked(ProbeCache("locked", locked=("fleet_scheduledevent",)))
    assert (status, said["tables_locked"]) == (503, ["fleet_scheduledevent"])
    status, said = asked(ProbeCache("full", full=("fleet_entry",)))
    assert (status, said["partitions_missing"]) == (503, ["fleet_entry"])
    assert asked(ProbeCache("ok", **WELL), redis=False)[1]["status"] == "degraded"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("connection failed: FATAL:  sorry, too many clients already", "no connection free"),
        (
            'FATAL:  remaining connection slots are reserved for roles with the "SUPERUSER" attribute',
            "no connection free",
        ),
        ('FATAL:  too many connections for role "app"', "no connection free"),
        ("connection is bad: Connection refused", "away"),
    ],
)
def test_a_full_server_is_reported_unlike_an_unavailable_one(text: str, found: str) -> None:
    probes: Any = Probes.__new__(Probes)

    def ask() -> None:
        raise OperationalError(text)

    probes._ask = ask
    assert probes._asked() == ProbeCache(found)


@in_a_loop
async def test_however_many_ask_it_is_found_out_once() -> None:
    probes, queries = probes_of(ProbeCache("ok", **WELL), seconds=0.05)

    async def send(_: Any) -> None:
        return

    await asyncio.gather(*(probes.readyz(None, send) for _ in range(200)))  # type: ignore[arg-type]
    await probes.readyz(None, send)  # type: ignore[arg-type]
    assert len(queries) == 1


def ready(gateway: Gateway) -> tuple[int, dict[str, Any]]:
    said = requests.get(f"{gateway.url}/readyz", timeout=10)
    return said.status_code, said.json()


def becomes(gateway: Gateway, code: int, /, **fields: Any) -> None:
    def is_so() -> bool:
        found, said = ready(gateway)
        return found == code and all(said.get(name) == value for name, value in fields.items())

    wait_for(is_so, seconds=30, what=f"{code} with {fields}", every=0.2)


@pytest.mark.real_time
def test_locked_tables_are_named(gateway: Gateway, servers: Urls) -> None:
    tables = ["fleet_approval", "fleet_machine", "fleet_scheduledevent", "fleet_sighting"]
    assert {model._meta.db_table for model in readiness.NEEDED} >= set(tables)
    with psycopg.connect(servers.database) as other:
        other.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        becomes(gateway, 503, database="locked", tables_locked=tables)
        assert requests.get(f"{gateway.url}/healthz", timeout=10).status_code == 200
        other.rollback()
    becomes(gateway, 200, database="ok", tables_locked=None)


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


@pytest.mark.real_time
def test_a_redis_that_refuses_writes_is_named(gateway: Gateway, servers: Urls) -> None:
    with redis.Redis.from_url(servers.redis) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        try:
            becomes(gateway, 200, status="degraded", redis="refuses writes")
            wait_for(lambda: gateway.metric("drydock_redis_up") == 0, seconds=30, what="the gauge shows it", every=1)
        finally:
            client.config_set("maxmemory", 0)
    becomes(gateway, 200, status="ok", database="ok", redis="ok", **WELL)


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
def test_every_table_has_room_and_can_be_read_and_quarantined_rows_are_counted() -> None:
    assert (readiness.tables_without_room(), readiness.locked_tables()) == ((), ())
    at = datetime.now(UTC)
    for what, row_id in (("event", 1), ("event", 2), ("wave", 1)):
        QuarantinedRow.objects.create(what=what, row_id=row_id, since=at, reason="played", next_try_at=at)
    assert quarantined_rows() == {"event": 2, "wave": 1}


def test_processes_say_by_their_names_how_many_they_open_at_most() -> None:
    names = {name_of("web", most=40, process=f"{pid}@one"): 7 for pid in (1, 2, 3)}
    names[name_of("worker", most=20, process="1@two")] = 3
    assert read_names(names, others=5, room=197) == Connections({"web": 3, "worker": 1}, 140, 5, 197)
    # Release 0.1.0, psql, and one that names itself in DATABASE_URL.
    assert read_names({"drydock": 12, "": 1, "of our own": 2}, others=0, room=97).most == 15
    # The host of a long name is cut, and not the number.
    name = name_of("web", most=40, process=f"1@{'a' * 100}")
    assert (len(name), read_names({name: 1}, others=0, room=97).most) == (63, 40)
    assert Connections({"web": 2}, 90, 7, 97).fit and not NO_ROOM.fit


@pytest.mark.real_time
def test_probes_say_where_there_is_no_room(gateway: Gateway, servers: Urls) -> None:
    greedy = name_of("web", most=5000, process="1@elsewhere")
    with psycopg.connect(servers.database, application_name=greedy):
        # An answer may be a second old.
        wait_for(lambda: "connections" in ready(gateway)[1] or None, seconds=10, what="there is no room")
        code, content = ready(gateway)
    assert (code, content["status"]) == (200, "degraded")
    assert content["connections"]["most"] > 5000 > content["connections"]["room"]
    wait_for(lambda: "connections" not in ready(gateway)[1], seconds=10, what="there is room again")
