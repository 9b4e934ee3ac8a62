"""API reads: lists and details show the state of the fleet, and pages stay consistent while rows arrive."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.audit.retention import GIGABYTE as G
from tests import factories
from tests.api.conftest import Caller, problem
from tests.archive.shelves import folder
from tests.caches.walking import EXAMPLE, HOST, Listeners, clock, line, the_cache, the_maintenance
from tests.factories import seconds
from tests.rows import MachineFactory


def results(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def test_a_set_and_its_machines_show_their_open_events(fleet: factories.Fleet, viewer: Caller) -> None:
    event = factories.announced(fleet)
    (shown,) = results(viewer.get("sets/"))
    assert shown["presence"] == {"live": 6, "late": 0, "silent": 0, "gone": 0, "expected": 0}
    assert [machine["resource_name"] for machine in shown["machines"]] == [f"vm{number}" for number in range(1, 7)]
    assert [brief["event_id"] for brief in shown["open_events"]] == [event.event_id]
    first, *_, last = results(viewer.get("machines/"))
    assert (first["fault_domain"], first["region"], first["presence"]) == (0, "westeurope", "live")
    hit, spared = (viewer.get(f"machines/{row['id']}/").json() for row in (first, last))
    briefs = [
        [brief["event_id"] for brief in row[name]] for row in (hit, spared) for name in ("hit_by", "other_events")
    ]
    assert briefs == [[event.event_id], [], [], [event.event_id]]


def test_an_event_shows_everything_that_a_decision_needs(fleet: factories.Fleet, viewer: Caller) -> None:
    event = factories.announced(fleet)
    shown = viewer.get(f"events/{event.event_id}/").json()
    known = {"status": "SCHEDULED", "resources": ["vm1", "vm2"], "needs_decision": True, "approval": None}
    assert {name: shown[name] for name in known} == known
    assert 0 < shown["seconds_left"] <= 900
    assert [sighting["says"] for sighting in shown["sightings"]] == ["Scheduled"] * 6
    assert [machine["resource_name"] for machine in shown["asked"]][:2] == ["vm1", "vm2"]
    assert (shown["blast"]["stay_up"], shown["blast"]["total"]) == (4, 6)
    assert shown["blast"]["summary"] and shown["if_nobody_acts"]
    # Whatever the case of its id.
    assert viewer.get(f"events/{event.event_id.lower()}/").json()["event_id"] == event.event_id


def test_an_approval_shows_how_far_it_got(fleet: factories.Fleet, viewer: Caller) -> None:
    approval = factories.accepted(fleet)
    shown = viewer.get(f"approvals/{approval.pk}/").json()
    assert (shown["state"], shown["by"], shown["via"]) == ("ACCEPTED", "otto", "page")
    (order,) = shown["orders"]
    assert order["machine"]["resource_name"] == "vm1"
    assert (order["state"], order["delivered_by"], order["azure_status"]) == ("ANSWERED", "celery", 200)
    assert order["seconds_left"] is None
    assert viewer.get(f"events/{approval.event.event_id}/").json()["approval"]["id"] == approval.pk


def test_events_are_filtered(fleet: factories.Fleet, viewer: Caller) -> None:
    fleet.enrol_set(2)
    fleet.enrol_set(1, prefix="worker", availability_set="scale_set:workers")
    due = fleet.now + factories.seconds(900)
    fleet.all_say(factories.listing("A", event_type="Reboot", resources=["vm1"], not_before=due), names=["vm1", "vm2"])
    fleet.all_say(
        factories.listing("B", event_type="Freeze", resources=["worker1"], not_before=due, EventSource="User"),
        names=["worker1"],
    )
    machine = fleet.agents["worker1"].machine
    fleet.approve("A")

    def ids(query: str) -> set[str]:
        return {event["event_id"] for event in results(viewer.get(f"events/?{query}"))}

    assert ids("type=reboot") == {"A"}
    assert ids("source=user") == {"B"}
    assert ids(f"set={factories.the_set('workers').pk}") == {"B"}
    assert ids(f"machine={machine.pk}") == {"B"}
    assert ids("needs_decision=true") == {"B"}
    assert ids("needs_decision=false") == {"A"}
    assert ids("status=SCHEDULED&status=STARTED") == {"A", "B"}
    assert ids("status=ENDED") == set()
    assert ids("since=2100-01-01T00:00:00Z") == set()
    assert ids("until=2100-01-01T00:00:00Z") == {"A", "B"}


def test_an_empty_fleet_is_an_empty_list(viewer: Caller) -> None:
    for address in ("sets/", "machines/", "events/"):
        assert viewer.get(address).json() == {"next": None, "previous": None, "results": []}


def test_unknown_things_are_problems(viewer: Caller, operator: Caller) -> None:
    for address in ("sets/1/", "caches/1/", "maintenances/1/"):
        problem(viewer.get(address), 404, "not-found")
    problem(viewer.get("machines/1/"), 404, "unknown-machine")
    problem(viewer.get("approvals/1/"), 404, "unknown-approval")
    for address in ("", "timeline/", "documents/"):
        problem(viewer.get(f"events/nobody-saw-this/{address}"), 404, "unknown-event")
    for address, body in (("claims/", {}), ("holds/", {"reason": "x"})):
        problem(operator.post(f"events/nobody-saw-this/{address}", body), 404, "unknown-event")


def test_the_api_tells_sizes(fleet: factories.Fleet, admin: Caller, settings: Any, tmp_path: Path) -> None:
    settings.ARCHIVE_URL, settings.DATABASE_MAX_GIGABYTES = folder(tmp_path).shown(), 100
    settings.RETENTION_DAYS = {**settings.RETENTION_DAYS, "observations": 30, "entries": None}
    factories.announced(fleet)
    told = admin.get("storage/").json()
    assert (told["max_size"], told["max_size_is_configured"]) == (100 * G, True)
    assert told["size"] >= told["other_bytes"] + told["documents"] + sum(kind["size"] for kind in told["kinds"])
    kinds = {kind["kind"]: kind for kind in told["kinds"]}
    shown = {kind: (kinds[kind]["days"], kinds[kind]["parts"]) for kind in ("entries", "observations")}
    assert shown == {"entries": (None, 1), "observations": (30, 1)}
    assert kinds["entries"]["oldest"] is not None
    # An hour of rows is too little to compute daily growth.
    assert kinds["entries"]["daily_rows"] is None
    assert told["next_archived"] == [] and "course" not in told
    assert told["archive"]["destination"] == folder(tmp_path).shown()
    assert (told["archive"]["files"], told["archive"]["fault"]) == (0, "")


def test_rows_that_arrive_between_two_pages_shift_nothing(viewer: Caller) -> None:
    for number in range(1, 5):
        MachineFactory(resource_name=f"vm{number}")
    first = viewer.get("machines/?page_size=2").json()
    for number in (0, 9):
        MachineFactory(resource_name=f"vm{number}")
    second = viewer.get(first["next"]).json()
    assert [row["resource_name"] for row in [*first["results"], *second["results"]]] == ["vm1", "vm2", "vm3", "vm4"]
    assert [row["resource_name"] for row in viewer.get(second["next"]).json()["results"]] == ["vm9"]


def test_events_go_over_from_open_to_ended_ones(fleet: factories.Fleet, viewer: Caller) -> None:
    fleet.enrol_set(2)
    due = fleet.now + factories.seconds(900)
    for number in range(3):
        fleet.later(1)
        fleet.all_say(factories.listing(f"ENDED{number}", not_before=due))
    fleet.later(1)
    fleet.all_say(*[factories.listing(f"OPEN{number}", not_before=due) for number in range(3)])
    order = ["OPEN0", "OPEN1", "OPEN2", "ENDED2", "ENDED1", "ENDED0"]
    for size in (1, 2, 4, 6):
        assert [row["event_id"] for row in viewer.rows(f"events/?page_size={size}")] == order


# Caches, their maintenance and every line heard.


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
