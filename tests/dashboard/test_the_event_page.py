"""Event page: it shows the affected machines, the observing machines and Azure's own words."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from drydock_agent import wire

from fleet.domain.approvals.conditions import When
from fleet.domain.states import EndedAs, EventStatus
from fleet.models import ScheduledEvent
from fleet.notifications.text import _how_it_was
from fleet.operations.approvals.conditions import withdraw
from fleet.projections.desk import queue
from fleet.projections.events.detail import event_detail
from fleet.wording.card import card_words
from fleet.wording.events import NOTHING_LOST, outcome_of
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import acts, codes, marks, states, text_of
from tests.factories import EVENT, Fleet, listing, seconds


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


# Decisions: each order, Azure's answers, what stays up, and what can be undone.


OTHER = "0A1B2C3D-0000-4000-8000-00000000000F"


def test_machines_that_another_event_has_taken_do_not_stay_up(fleet: Fleet, operator: Client) -> None:
    fleet.enrol_set(6)
    reboot = listing(event_type="Reboot", resources=("vm1",), status="Started")
    fleet.all_say(reboot, listing(OTHER, resources=("vm2",), not_before=fleet.now + seconds(900)))
    (waiting,) = queue.decision_queue(now=fleet.now).waiting
    assert (waiting.blast.stay_up, waiting.blast.total) == (4, 6)
    # It takes nothing from itself twice.
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None and detail.blast.stay_up == 5
    # The other open event is linked.
    assert f'href="/events/{factories.EVENT}/"' in operator.get(f"/events/{OTHER}/").content.decode()


@pytest.mark.parametrize(
    ("left", "kind", "offered"), [(300, "Freeze", True), (61, "Freeze", False), (50, "Preempt", False)]
)
def test_undoing_is_promised_only_where_the_backend_keeps_the_promise(
    fleet: Fleet, operator: Client, settings: Any, left: int, kind: str, offered: bool
) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3.0
    fleet.enrol_set()
    fleet.all_say(listing(event_type=kind, resources=("vm1",), not_before=fleet.now + seconds(left)))
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert (detail.card.undo.seconds > 0) is offered
    assert detail.card.undo.in_a_hurry is not offered
    reasons = {"lost-for-good": "gone anyway"} if kind == "Preempt" else {}
    until = detail.card.undo.offered_until
    if until is not None:
        # Any click until then can be undone, and any that takes a second on its way.
        fleet.now = until + seconds(1)
        fleet.heard()
    approval = fleet.approve(when=When.UNDO, overrides=reasons)
    assert (approval.state == "WAITING") is (left > 60)


def test_each_order_is_listed_with_its_path_and_the_next_machine(fleet: Fleet, operator: Client, settings: Any) -> None:
    # So long that the moment is still ahead on a busy machine, too.
    settings.ORDER_ANSWER_SECONDS = 300
    factories.announced(fleet)
    approval = fleet.approve()
    fleet.delivered(factories.open_order(approval))
    page = operator.get(f"/events/{factories.EVENT}/")
    shown = text_of(page)
    at = fleet.now + timedelta(seconds=300)
    assert "next-asked" in codes(page) and f"{at:%H:%M:%S}" in shown
    assert "DELIVERED" in states(page) and "celery" in shown
    assert 'id="by-hand"' not in page.content.decode()


def test_azures_words_are_escaped_and_folded_when_they_are_long(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet)
    approval = fleet.approve()
    order = factories.open_order(approval)
    order.azure_body = ""
    fleet.receipt(order, status=400)
    order.refresh_from_db()
    order.azure_body = '<script>alert("1")</script>' + "x" * 200
    order.save()
    page = operator.get(f"/events/{factories.EVENT}/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert f"<summary>{len(order.azure_body)} characters</summary>" in page


def test_refusal_of_an_agent_is_shown(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet)
    approval = fleet.approve()
    fleet.receipt(factories.open_order(approval), outcome="refused", status=None, reason="bad-signature")
    assert "order-refused" in codes(operator.get(f"/events/{factories.EVENT}/"))


def test_the_card_says_what_happens_without_a_decision_once_it_cannot_be_undone(fleet: Fleet, settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3
    factories.announced(fleet)
    for when, said in ((When.UNDO, ""), (When.NOW, "Azure starts the event after")):
        approval = fleet.approve(factories.EVENT, when=when)
        detail = event_detail(event_id=factories.EVENT, now=fleet.now)
        assert detail is not None
        assert card_words(detail.card, API).without_a_decision.startswith(said)
        if when is When.UNDO:
            assert card_words(detail.card, API).without_a_decision == ""
            withdraw(approval_id=approval.pk, actor=factories.acting(factories.operator(), why=""), now=fleet.now)


# Cancelled events: no page, notification, report or API answer states that one affected a machine.


PLACES = (
    "/events/{}/",
    "/events/{}/export.json",
    "/reports/events/{}/",
    "/reports/events/{}/report.md",
    "/reports/events/{}/report.json",
    "/api/v1/events/{}/",
)
# What would be claimed of a Redeploy that happened.
CLAIMS = ("Memory and ephemeral disks are lost", "were affected</h2>", "Affected machines</h2>")


def cancelled(fleet: Fleet, **fields: Any) -> ScheduledEvent:
    return factories.freeze_cancelled(fleet, event_type="Redeploy", resources=("vm1",), **fields)


def test_a_cancelled_event_hit_no_machine_and_lost_nothing(fleet: Fleet, operator: Client) -> None:
    event = cancelled(fleet)
    assert event.ended_as == EndedAs.CANCELLED.value
    for place in PLACES:
        answer = operator.get(place.format(event.event_id))
        assert answer.status_code == 200, place
        assert not [claim for claim in CLAIMS if claim in answer.content.decode()], place
    assert "blast-radius" not in codes(operator.get(f"/events/{EVENT}/"))
    assert operator.get(f"/api/v1/events/{EVENT}/").json()["lost"] == ""


def test_card_and_message_state_the_cancellation(fleet: Fleet) -> None:
    event = cancelled(fleet)
    detail = event_detail(event_id=event.event_id, now=fleet.now)
    assert detail is not None
    words = card_words(detail.card, API)
    assert (words.is_lossy, words.stays) == (False, "")
    assert any(NOTHING_LOST in line for line in (words.effect, *_how_it_was(detail.event, API)))


def test_an_approval_that_azure_accepted_did_not_start_what_was_cancelled(fleet: Fleet) -> None:
    factories.accepted(fleet)
    fleet.later(10)
    fleet.all_say()
    detail = event_detail(event_id=EVENT, now=fleet.now)
    assert detail is not None and detail.event.ended_as is EndedAs.CANCELLED
    assert detail.event.approval is not None
    (step,) = [step for step in detail.event.approval.steps if getattr(step.label, "code", "") == "step-cancelled"]
    assert step.state == "failed"
    assert "step-started" not in {getattr(step.label, "code", "") for step in detail.event.approval.steps}


def test_what_was_not_seen_to_happen_is_not_told_as_if_it_had(fleet: Fleet) -> None:
    event = factories.announced(fleet)
    for ended_as, started, outcome in (
        (EndedAs.CANCELLED, False, "cancelled"),
        (EndedAs.CANCELLED_OR_MISSED, False, "maybe"),
        (EndedAs.UNKNOWN, False, "unseen"),
        (EndedAs.UNKNOWN, True, "ran"),
        (EndedAs.COMPLETED, True, "ran"),
        (EndedAs.MACHINE_DELETED, False, "deleted"),
    ):
        ScheduledEvent.objects.filter(pk=event.pk).update(
            status=EventStatus.ENDED.value, ended_as=ended_as.value, certainty="inferred", ended_at=fleet.now,
            started_at=fleet.now - seconds(5) if started else None,
        )  # fmt: skip
        detail = event_detail(event_id=EVENT, now=fleet.now)
        assert detail is not None
        assert outcome_of(detail.event).value == outcome, (ended_as, started)
