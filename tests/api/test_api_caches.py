"""Caches, their maintenance and every line heard, through the API."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.api.conftest import Caller
from tests.api.test_api_pages import ids, walk
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
    answer = viewer.get("caches/")
    assert [row["host"] for row in answer.json()["results"]] == [HOST, SESSIONS]
    shown = answer.json()["results"][0]
    assert (shown["tier"], shown["service"], shown["divisor"]) == ("standard", "", 2)
    assert [(node["ssl_port"], node["is_replica"]) for node in shown["nodes"]] == [(15000, True), (15001, False)]
    assert [(row["machine"]["resource_name"], row["state"], row["reason"]) for row in shown["coverage"]] == [
        ("vm1", "subscribed", ""),
        ("vm2", "refused", "NOPERM"),
    ]
    assert shown["coverage"][0]["since"].endswith("Z")
    one = viewer.get(f"caches/{shown['id']}/")
    assert one.json()["host"] == HOST


def test_a_maintenance_tells_its_course_and_its_members(played: Listeners, viewer: Caller) -> None:
    answer = viewer.get(f"maintenances/?cache={the_cache().pk}")
    (shown,) = answer.json()["results"]
    assert (shown["status"], shown["shard"], shown["node_port"], shown["partner_port"]) == ("ENDED", 0, 15000, 15001)
    assert shown["expected_at"] == "2021-10-20T16:34:46Z"
    assert shown["ended_at"] == "2021-10-20T16:37:48Z"
    assert shown["swapped"] is True
    assert shown["effect"]
    assert [row["raw"] for row in shown["notifications"]] == [raw for _, raw in EXAMPLE]
    one = viewer.get(f"maintenances/{shown['id']}/")
    assert len(one.json()["notifications"]) == 5


def test_a_notification_tells_what_the_line_states_and_who_heard_it(played: Listeners, viewer: Caller) -> None:
    answer = viewer.get(f"notifications/?cache={the_cache().pk}&type=nodemaintenancescheduled")
    (shown,) = answer.json()["results"]
    assert {name: shown[name] for name in ("type", "start_time", "is_replica", "ip_address")} == {
        "type": "NodeMaintenanceScheduled",
        "start_time": "2021-10-20T16:35:57Z",
        "is_replica": False,
        "ip_address": "52.158.249.185",
    }
    assert (shown["ssl_port"], shown["non_ssl_port"], shown["flags"], shown["late"]) == (15000, 13000, [], True)
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
    whole = ids(walk(viewer, "notifications/"))
    assert len(whole) == 6
    assert ids(walk(viewer, "notifications/?page_size=2")) == whole
    assert len(ids(walk(viewer, f"notifications/?maintenance={the_cache().maintenances.get().pk}"))) == 5
    assert ids(walk(viewer, "notifications/?since=2021-10-20T17:00:00Z")) == whole[:1]
    assert len(ids(walk(viewer, "maintenances/?status=ENDED"))) == 1
    assert len(ids(walk(viewer, "maintenances/?status=ENDED&status=END_NOT_SEEN"))) == 2
    assert [row["host"] for page in walk(viewer, "caches/?page_size=1") for row in page] == [HOST, SESSIONS]
    assert len(ids(walk(viewer, "caches/?q=SESS"))) == 1


def test_cache_shows_its_active_maintenance(listeners: Listeners, viewer: Caller) -> None:
    listeners.now = datetime.now(UTC)
    listeners.hear("vm1", line("NodeMaintenanceStart"))
    (shown,) = viewer.get("caches/").json()["results"]
    assert shown["maintenance"]["id"] == the_maintenance().pk
    assert shown["maintenance"]["status"] == "UNDER_WAY"


def test_caches_and_what_is_heard_of_them_are_narrowed_by_who_listens(played: Listeners, viewer: Caller) -> None:
    def hosts(query: str) -> list[str]:
        return [row["host"] for row in viewer.get(f"caches/?{query}").json()["results"]]

    assert hosts("set_name=WEB") == [HOST]
    assert hosts("resource_group=shop&machine_name=vm2") == [HOST]
    assert hosts("machine_name=vm3") == []
    assert hosts("ordering=-host") == [SESSIONS, HOST]
    for address in ("maintenances/", "notifications/"):
        whole = viewer.get(f"{address}").json()["results"]
        found = viewer.get(f"{address}?set_name=web").json()["results"]
        assert 0 < len(found) < len(whole)
        assert {row["cache"]["host"] for row in found} == {HOST}
    heard = viewer.get("notifications/?machine_name=vm2").json()["results"]
    assert {row["cache"]["host"] for row in heard} == {HOST}
    oldest = viewer.get("notifications/?ordering=first_at").json()["results"]
    assert [row["id"] for row in oldest] == [row["id"] for row in viewer.get("notifications/").json()["results"]][::-1]
