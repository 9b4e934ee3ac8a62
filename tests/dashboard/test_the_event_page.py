"""Event page: it shows the affected machines, the observing machines and Azure's own words."""

import json
import re
from datetime import UTC, datetime, timedelta

from django.test import Client
from drydock_agent import wire

from fleet.projections.events.detail import event_detail
from tests import factories
from tests.dashboard.conftest import acts, codes, marks, states, text_of


def test_page_names_affected_machines_the_next_agent_and_the_guards(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set()
    other = "0A1B2C3D-0000-4000-8000-000000000009"
    event = factories.announced(fleet, event_type="Redeploy", resources=("vm2", "VM1", "vm99"))
    fleet.all_say(
        factories.listing(event_type="Redeploy", resources=("vm2", "VM1", "vm99"), not_before=event.not_before),
        factories.listing(other, resources=("vm5",), not_before=fleet.now + timedelta(minutes=30)),
    )
    page = operator.get(f"/events/{event.event_id.lower()}/")
    assert [key for key in marks(page, "data-key") if key.startswith("hit-")] == ["hit-vm2", "hit-VM1", "hit-vm99"]
    assert {"blast-radius", "seen-by", "other-open-event"} <= set(codes(page))
    assert 'name="reason-lost-for-good"' in page.content.decode()
    asked = page.content.decode().split('class="asked"')[1]
    assert re.findall(r">(vm\d)</a>", asked)[:3] == ["vm2", "vm1", "vm3"]
    # The other open event has a link of its own.
    assert f'href="/events/{other}/"' in page.content.decode()


def test_where_one_machine_alone_lists_the_event_the_page_says_that_only_it_can_ask(
    fleet: factories.Fleet, operator: Client
) -> None:
    fleet.enrol_set(3)
    fleet.later(1)
    fleet.say("vm1", factories.listing(resources=("vm1",)))
    assert "only-one-can-ask" in codes(operator.get(f"/events/{factories.EVENT}/"))
    fleet.say("vm2", factories.listing(resources=("vm1",)))
    assert "only-one-can-ask" not in codes(operator.get(f"/events/{factories.EVENT}/"))


def test_without_a_live_machine_the_button_is_off_and_says_why(fleet: factories.Fleet, operator: Client) -> None:
    fleet.now = datetime.now(UTC) - timedelta(minutes=5)
    event = factories.announced(fleet, not_before=fleet.now + timedelta(minutes=15))
    page = operator.get(f"/events/{event.event_id}/")
    assert "no-live-machine" in codes(page)
    # The page lists the manual steps, to be copied.
    assert "by-hand-nobody-lists-it" in codes(page)
    assert "curl --silent" in text_of(page) and "Invoke-RestMethod" in text_of(page)
    assert 'data-copy="by-hand-linux"' in page.content.decode()
    assert "disabled" in page.content.decode().split("btn btn-primary approve")[1].partition(">")[0]


def test_a_whole_round_can_be_read_afterwards(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.freeze_completed(fleet)
    page = operator.get(f"/events/{event.event_id}/")
    assert {"ENDED", "completed", "CONFIRMED"} <= set(states(page))
    assert {"step-decided", "step-sent", "step-answered", "step-started", "step-gone"} <= set(codes(page))
    assert "approve" not in acts(page)
    # How long it was Started, and how fast the approval worked.
    found = event_detail(event_id=event.event_id, now=fleet.now)
    assert found is not None
    assert (found.event.approval_to_start_seconds, found.event.started_seconds) == (10.0, 60.0)
    assert page.content.decode().count('class="tone-fill-busy"') == 6


def test_each_body_is_shown_once_with_its_readers_and_what_changed(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.freeze_completed(fleet)
    page = operator.get(f"/events/{event.event_id}/documents/")
    body = page.content.decode()
    # Scheduled, Started, and the one that no longer lists it; what was read before the event is not its business.
    assert body.count('<article class="document"') == 3
    shown = text_of(page)
    assert '- "EventStatus": "Scheduled",' in shown
    assert '+ "EventStatus": "Started",' in shown
    first = body.split('<article class="document"')[1]
    assert all(f">vm{number}</a>" in first for number in range(1, 7))
    part = operator.get(f"/events/{event.event_id}/?part=documents", headers={"HX-Request": "true"})
    assert part.content.decode().count('<article class="document"') == 3


def test_the_export_holds_event_timeline_and_documents(fleet: factories.Fleet, viewer: Client) -> None:
    event = factories.freeze_completed(fleet)
    answer = viewer.get(f"/events/{event.event_id}/export.json")
    assert answer["Content-Disposition"] == f'attachment; filename="{event.event_id}.json"'
    whole = json.loads(answer.content)
    assert whole["event"]["event"]["ended_as"] == "completed"
    assert len(whole["event"]["sightings"]) == 6
    assert whole["event"]["approvals"][0]["orders"][0]["azure_status"] == 200
    assert {"event_seen", "approval_granted", "event_started", "event_ended"} <= {
        row["kind"] for row in whole["timeline"]
    }
    assert len(whole["documents"]) == 3
    assert whole["event"]["event"]["first_seen_at"].endswith("Z")


def test_an_overdue_step_is_marked(fleet: factories.Fleet, operator: Client) -> None:
    fleet.now = datetime.now(UTC) - timedelta(seconds=31)
    event = factories.announced(fleet)
    fleet.approve(event.event_id)
    assert "overdue" in states(operator.get(f"/events/{event.event_id}/"))


def test_waiting_for_other_tenants_is_not_overdue(fleet: factories.Fleet, operator: Client) -> None:
    fleet.now = datetime.now(UTC) - timedelta(minutes=5)
    approval = factories.accepted(fleet)
    shown = operator.get(f"/events/{approval.event.event_id}/")
    assert "overdue" not in states(shown)
    assert "step-others-agree" in codes(shown)


def test_a_planned_prepare_is_shown_with_its_time_until_the_event_starts(
    fleet: factories.Fleet, operator: Client
) -> None:
    event = factories.announced(fleet, not_before=fleet.now + timedelta(days=7))
    agent, planned_at = fleet.agents["vm1"], fleet.now + timedelta(days=6, hours=23)
    data = wire.HookData(
        event_id=event.event_id, phase="prepare", step="plan", outcome="planned", planned_at=planned_at
    )
    fleet.record(agent.delivery(agent.report(data, kind=wire.HOOK, at=fleet.now)))
    pages = [f"/events/{event.event_id}/", f"/machines/{agent.machine.pk}/"]
    for path in pages:
        page = operator.get(path)
        assert "planned" in states(page)
        assert planned_at.strftime("%Y-%m-%dT%H:%M") in page.content.decode()
    # Asked for by the approval that is sent now, and by no other.
    assert operator.get(pages[0]).content.decode().count('name="reason-not-prepared"') == 1
    fleet.all_say(factories.listing(status="Started", resources=("vm1", "vm2")))
    assert all("planned" not in states(operator.get(path)) for path in pages)


def test_each_sighting_tells_its_delay_behind_the_first(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set(2)
    event_listing = factories.listing(not_before=fleet.now + timedelta(minutes=15))
    fleet.say("vm1", event_listing)
    fleet.later(2.5)
    fleet.say("vm2", event_listing)
    found = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert found is not None
    assert [row.delay_seconds for row in found.sightings] == [0.0, 2.5]
    assert "+2.5 s" in text_of(operator.get(f"/events/{factories.EVENT}/"))
