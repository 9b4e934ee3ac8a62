"""Caches, their maintenance and every line heard, through the API."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.api.conftest import Caller
from tests.caches.walking import EXAMPLE, HOST, Listeners, clock, line, the_cache, the_maintenance
from tests.factories import seconds

SESSIONS = "sessions.redis.cache.windows.net"


@pytest.fixture
def listeners(db: None) -> Listeners:
    walker = Listeners(now=datetime.now(UTC) - timedelta(minutes=5))
    for name in ("vm1", "vm2"):
        walker.enrol(name)
    return walker


@pytest.fixture
def played(listeners: Listeners) -> Listeners:
    """The documented sequence on one cache, and a line of another."""
    listeners.cover("vm1", "subscribed", tier="standard")
    listeners.cover("vm2", "refused", reason="NOPERM")
    for at, raw in EXAMPLE:
        listeners.hear("vm1", raw, at=clock(at))
        listeners.hear("vm2", raw, at=clock(at) + seconds(1))
    listeners.hear("vm1", line("NodeMaintenanceStart", port=15002), at=clock("18:00:00"), host=SESSIONS)
    listeners.now = datetime.now(UTC)
    listeners.heard()
    return listeners


def test_a_cache_tells_its_tier_its_nodes_and_who_listens(played: Listeners, viewer: Caller) -> None:
    shown, other = viewer.get("caches/").json()["results"]
    assert (shown["host"], shown["tier"], shown["divisor"], other["host"]) == (HOST, "standard", 2, SESSIONS)
    assert [(node["ssl_port"], node["is_replica"]) for node in shown["nodes"]] == [(15000, True), (15001, False)]
    assert [(row["machine"]["resource_name"], row["state"], row["reason"]) for row in shown["coverage"]] == [
        ("vm1", "subscribed", ""),
        ("vm2", "refused", "NOPERM"),
    ]


def test_a_maintenance_tells_its_course_and_its_members(played: Listeners, viewer: Caller) -> None:
    (shown,) = viewer.get(f"maintenances/?cache={the_cache().pk}").json()["results"]
    known = {"status": "ENDED", "shard": 0, "node_port": 15000, "partner_port": 15001, "swapped": True}
    known |= {"expected_at": "2021-10-20T16:34:46Z", "ended_at": "2021-10-20T16:37:48Z"}
    assert {name: shown[name] for name in known} == known
    assert [row["raw"] for row in shown["notifications"]] == [raw for _, raw in EXAMPLE]


def test_a_notification_tells_what_the_line_states_and_who_heard_it(played: Listeners, viewer: Caller) -> None:
    answer = viewer.get(f"notifications/?cache={the_cache().pk}&type=nodemaintenancescheduled")
    (shown,) = answer.json()["results"]
    known = {"type": "NodeMaintenanceScheduled", "start_time": "2021-10-20T16:35:57Z", "is_replica": False}
    known |= {"ip_address": "52.158.249.185", "ssl_port": 15000, "non_ssl_port": 13000, "flags": [], "late": True}
    assert {name: shown[name] for name in known} == known
    assert shown["raw"] == EXAMPLE[0][1]
    assert [row["machine"]["resource_name"] for row in shown["reported_by"]] == ["vm1", "vm2"]


def test_what_is_not_stated_is_null_and_flagged(listeners: Listeners, viewer: Caller) -> None:
    listeners.hear("vm1", b"\xff|NotificationType|NodeMaintenancePaused|IsReplica|maybe|SSLPort|0")
    (shown,) = viewer.get("notifications/").json()["results"]
    assert shown["type"] == "NodeMaintenancePaused"
    assert (shown["is_replica"], shown["ssl_port"], shown["ip_address"], shown["start_time"]) == (None,) * 4
    assert shown["raw_base64"]
    assert shown["flags"]


def test_lists_are_filtered_and_walked(played: Listeners, viewer: Caller) -> None:
    def ids(address: str) -> list[int]:
        return [row["id"] for row in viewer.rows(address)]

    whole = ids("notifications/")
    assert len(whole) == 6
    assert ids("notifications/?page_size=2") == whole
    assert ids("notifications/?since=2021-10-20T17:00:00Z") == whole[:1]
    assert ids("notifications/?ordering=first_at") == whole[::-1]
    assert [row["host"] for row in viewer.rows("caches/?page_size=1")] == [HOST, SESSIONS]
    one = f"notifications/?maintenance={the_cache().maintenances.get().pk}"
    both = "maintenances/?status=ENDED&status=END_NOT_SEEN"
    for address, count in ((one, 5), ("maintenances/?status=ENDED", 1), (both, 2), ("caches/?q=SESS", 1)):
        assert len(ids(address)) == count, address


def test_cache_shows_its_active_maintenance(listeners: Listeners, viewer: Caller) -> None:
    listeners.now = datetime.now(UTC)
    listeners.hear("vm1", line("NodeMaintenanceStart"))
    (shown,) = viewer.get("caches/").json()["results"]
    assert (shown["maintenance"]["id"], shown["maintenance"]["status"]) == (the_maintenance().pk, "UNDER_WAY")


def test_caches_and_what_is_heard_of_them_are_narrowed_by_who_listens(played: Listeners, viewer: Caller) -> None:
    hosts = {"set_name=WEB": [HOST], "resource_group=shop&machine_name=vm2": [HOST], "machine_name=vm3": []}
    for query, wanted in {**hosts, "ordering=-host": [SESSIONS, HOST]}.items():
        assert [row["host"] for row in viewer.get(f"caches/?{query}").json()["results"]] == wanted, query
    for address in ("maintenances/?set_name=web", "notifications/?set_name=web", "notifications/?machine_name=vm2"):
        assert {row["cache"]["host"] for row in viewer.get(address).json()["results"]} == {HOST}, address
