"""Cancelled events: no page, notification, report or API answer states that one affected a machine."""

from typing import Any

from django.test import Client

from fleet.domain.states import EndedAs, EventStatus
from fleet.models import ScheduledEvent
from fleet.notifications.text import _how_it_was
from fleet.projections.events.detail import event_detail
from fleet.wording.card import card_words
from fleet.wording.events import NOTHING_LOST, outcome_of
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import codes
from tests.factories import EVENT, Fleet, seconds

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
