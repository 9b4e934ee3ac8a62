"""Drills on pages and in the API: users begin, follow and stop one, and every view marks it as a drill."""

from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleet.models import Drill
from fleet.projections import drills
from fleet.projections.desk import queue
from fleet.projections.desk import status_bar as fleet_projection
from tests import factories
from tests.api.conftest import Caller, caller
from tests.dashboard.conftest import logged_in
from tests.drills.walking import Walk, answer, begin, hooks, the_order
from tests.factories import Fleet, after, announced


@pytest.fixture
def api(fleet: Fleet) -> Caller:
    return caller(factories.operator())


def test_the_api_begins_one_and_tells_what_to_do_next(fleet: Fleet, api: Caller) -> None:
    fleet.enrol_set(3)
    set_id = factories.the_set().pk
    made = api.post("drills/", {"set": set_id, "type": "Reboot", "machines": ["vm2"], "comment": "spring"})
    assert made.status_code == 201, made.content
    told = made.json()
    expected = {"event_type": "Reboot", "machines": ["vm2"], "outcome": None}
    assert told["drill"] == told["drill"] | expected and told["next_step"]
    assert [machine["machine"]["resource_name"] for machine in told["machines"]] == ["vm1", "vm2", "vm3"]
    (row,) = api.get("drills/").json()["results"]
    assert row["id"] == told["drill"]["id"]
    event = api.get(f"events/{told['drill']['event_id']}/").json()
    assert event["drill"] is True
    again = api.post("drills/", {"set": set_id, "comment": ""})
    assert (again.status_code, again.json()["type"], again.json()["drill"]) == (409, "drill-open", row["id"])
    stopped = api.delete(f"drills/{row['id']}/", {"comment": "enough"}).json()
    assert (stopped["drill"]["outcome"], "enough" in stopped["next_step"]) == ("stopped", True)


def test_the_api_refuses_with_the_reason(fleet: Fleet, api: Caller) -> None:
    fleet.enrol_set(1)
    set_id = factories.the_set().pk
    assert api.get("drills/99/").json()["type"] == "unknown-drill"
    assert api.post("drills/", {"set": 10_000, "comment": ""}).json()["type"] == "unknown-set"
    event = announced(fleet, resources=("vm1",))
    refused = api.post("drills/", {"set": set_id, "comment": ""})
    said = refused.json()
    assert (refused.status_code, said["type"], said["event"]) == (409, "real-event-open", event.event_id)


def test_lists_tell_drills_from_real_events(fleet: Fleet, api: Caller) -> None:
    walk = Walk(fleet).announced()
    event_id = walk.event.event_id
    assert [row["event_id"] for row in api.get("events/?drill=true").json()["results"]] == [event_id]
    assert api.get("events/?drill=false").json()["results"] == []
    assert [row["drill"] for row in api.get("events/").json()["results"]] == [True]


def test_no_count_of_decisions_counts_a_drill(fleet: Fleet) -> None:
    Walk(fleet).announced()
    found = queue.decision_queue(now=fleet.now)
    assert (found.waiting, found.under_way, found.far_ahead) == ((), (), ())
    assert [item.event.drill for item in found.drills] == [True]
    assert queue.pulse(now=fleet.now) == found.pulse
    assert found.pulse.waiting == 0
    assert fleet_projection.overview(now=fleet.now).last_event_at is None


def test_the_report_has_the_times_of_every_step_and_says_who_was_left_out(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    walk = Walk(fleet)
    answer(fleet, "vm3", the_order(fleet, "vm3", "rehearse"), outcome="refused", reason="not-listed")
    walk.announced("vm1", "vm2")
    event_id = walk.event.event_id
    hooks(fleet, "vm1", event_id, "prepare")
    walk.approved()
    walk.all_say("started").all_say("gone", "over")
    hooks(fleet, "vm1", event_id, "recover")
    walk.reconciled(10)
    found = drills.report(drill_id=walk.drill_id, now=fleet.now)
    assert {"began", "announced", "decided", "sent", "accepted", "started", "ended", "over"} <= steps_of(found)
    assert found.steps[0].seconds is None and all((step.seconds or 0) >= 0 for step in found.steps[1:])
    by_name = {machine.machine.resource_name: machine for machine in found.machines}
    told = {"told", "has-order", "announced", "prepare-ended", "asked", "answered", "started", "gone", "recover-ended"}
    assert told <= steps_of(by_name["vm1"])
    assert "asked" not in steps_of(by_name["vm2"])
    assert [machine.machine.resource_name for machine in found.left_out] == ["vm3"]
    assert by_name["vm3"].left_out.code == "drill-refused"
    assert found.drill.outcome == "completed"


def steps_of(found: Any) -> set[str]:
    """The steps that a report tells, as codes."""
    return {step.label.values["step"] for step in found.steps}


def test_a_report_costs_the_same_for_any_number_of_machines(
    fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    fleet.enrol_set(8)
    walk = Walk(fleet).announced()
    walk.approved()
    with django_assert_num_queries(7):
        drills.report(drill_id=walk.drill_id, now=fleet.now)


def test_the_page_of_a_set_offers_it_to_operators_and_begins_it(fleet: Fleet, browser: Client) -> None:
    fleet.enrol_set(2)
    address = f"/sets/{factories.the_set().pk}/"
    page = browser.get(address).content.decode()
    assert 'id="rehearse"' in page and 'value="vm2"' in page
    assert 'id="rehearse"' not in logged_in(factories.viewer()).get(address).content.decode()
    sent = {"type": "Freeze", "notice_seconds": "60", "duration_seconds": "5", "comment": "x", "machines": ["vm2"]}
    begun = browser.post(f"{address}drill/", sent, follow=True)
    drill = Drill.objects.get()
    assert begun.redirect_chain[-1][0] == f"/drills/{drill.pk}/"
    assert drill.event.resources == ["vm2"]
    assert browser.post(f"{address}drill/", sent).status_code == 409
    assert browser.post(f"{address}drill/", {**sent, "notice_seconds": "1"}).status_code == 422


def test_it_is_marked_on_every_page(fleet: Fleet, browser: Client) -> None:
    walk = Walk(fleet).announced()
    home = walk.event.availability_set_id
    for address in ("/", "/history/", "/sets/", f"/sets/{home}/", f"/machines/{fleet.agents['vm1'].machine.pk}/",
                    f"/events/{walk.event.event_id}/", "/drills/", f"/drills/{walk.drill_id}/"):  # fmt: skip
        page = browser.get(address)
        assert page.status_code == 200, address
        assert 'class="drill-badge"' in page.content.decode(), address
    event = browser.get(f"/events/{walk.event.event_id}/").content.decode()
    assert "<title>DRILL: Freeze" in event
    assert f'href="/drills/{walk.drill_id}/"' in event


def test_the_page_stops_it(fleet: Fleet, browser: Client) -> None:
    drill = begin(fleet)
    assert browser.post(f"/drills/{drill.pk}/stop/").status_code == 302
    assert after(drill).outcome == "stopped"
    assert browser.post(f"/drills/{drill.pk}/stop/").status_code == 409
    assert browser.post("/drills/9999/stop/").status_code == 404
    assert browser.get("/drills/9999/").status_code == 404
