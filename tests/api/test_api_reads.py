"""API reads: lists and details show the state of the fleet, and pages stay consistent while rows arrive."""

from pathlib import Path
from typing import Any

from fleet.audit.retention import GIGABYTE as G
from tests import factories
from tests.api.conftest import Caller, problem
from tests.archive.shelves import folder
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
