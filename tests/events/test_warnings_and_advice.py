"""Event notices: warnings about contradictions, advice, and the outcome if no operator acts."""

from datetime import datetime, timedelta

import pytest

from fleet.domain.event_types import expected_notice, is_notice_short
from fleet.domain.events import advice, default_outcome
from fleet.domain.states import EventStatus
from fleet.models import Machine, ScheduledEvent
from tests.factories import NOW, Fleet, announced, listing, seconds, the_event
from tests.words import code_of, sentence, sentences

SOON, DAYS_AHEAD = NOW + timedelta(minutes=15), NOW + timedelta(days=5)


@pytest.mark.django_db
def test_resources_of_several_or_unknown_update_domains_cause_a_warning(fleet: Fleet) -> None:
    event = announced(fleet, resources=("vm1", "vm2"))
    assert [warning["code"] for warning in event.warnings] == ["spans-update-domains"]
    assert announced(fleet, resources=("vm1", "vm3"), event_id="ONE-DOMAIN").warnings == []
    Machine.objects.filter(resource_name="vm3").update(update_domain=None)
    event = announced(fleet, resources=("vm1", "vm3"), event_id="UNKNOWN-DOMAIN")
    assert [warning["code"] for warning in event.warnings] == ["spans-update-domains"]
    Machine.objects.update(update_domain=None)
    assert announced(fleet, resources=("vm1", "vm3"), event_id="NO-DOMAIN").warnings == []


@pytest.mark.django_db
def test_unknown_and_missing_resource_names_cause_warnings(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing("A", resources=("vm1", "stranger")), listing("B", resources=()))
    assert sentences(the_event("A").warnings) == ["No agent of this set is known for stranger."]
    assert sentences(the_event("B").warnings) == ["Azure names no machine in Resources."]


@pytest.mark.django_db
def test_a_warning_goes_away_with_its_reason_and_names_are_compared_without_case_and_the_old_underscore(
    fleet: Fleet,
) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(resources=("_VM1", "vm3")))
    assert sentences(the_event().warnings) == ["No agent of this set is known for vm3."]
    fleet.enrol("vm3")
    fleet.later(1)
    fleet.all_say(listing(resources=("_VM1", "vm3")))
    assert (the_event().resources, the_event().warnings) == (["VM1", "vm3"], [])


@pytest.mark.parametrize(
    ("status", "source", "not_before", "code"),
    [
        (EventStatus.SCHEDULED, "User", SOON, "advice-own-event"),
        (EventStatus.SCHEDULED, "Platform", DAYS_AHEAD, "advice-hardware-fails"),
        (EventStatus.SCHEDULED, "Platform", SOON, ""),
        (EventStatus.STARTED, "User", SOON, ""),
        (EventStatus.ENDED, "User", SOON, ""),
    ],
)
def test_advice_is_given_for_own_events_and_for_events_days_ahead(
    status: EventStatus, source: str, not_before: datetime, code: str
) -> None:
    given = advice(ScheduledEvent(status=status, source=source, not_before=not_before), now=NOW)
    assert (code_of(given) if given else "") == code


@pytest.mark.parametrize(
    ("status", "not_before", "watched", "code"),
    [
        (EventStatus.SCHEDULED, SOON, True, "starts-after"),
        (EventStatus.SCHEDULED, SOON, False, "starts-after"),
        (EventStatus.SCHEDULED, NOW - seconds(1), True, "starts-overdue"),
        (EventStatus.SCHEDULED, None, True, "starts-any-moment"),
        (EventStatus.STARTED, None, True, "event-runs"),
        (EventStatus.ENDED, None, True, "event-over"),
    ],
)
def test_outcome_without_action_never_suggests_postponing(
    status: EventStatus, not_before: datetime | None, watched: bool, code: str
) -> None:
    outcome = default_outcome(ScheduledEvent(status=status, not_before=not_before, watched=watched), now=NOW)
    assert (outcome.code, outcome.values.get("watched", True)) == (code, watched)
    assert "postpone" not in sentence(outcome)


# Declarations of event types: the notice that Microsoft documents.


@pytest.mark.parametrize(
    ("event_type", "seconds", "is_short"),
    [
        ("Freeze", 900, False),
        # One poll a second, whole seconds at Azure, an answer that took its time.
        ("Freeze", 896, False),
        ("Freeze", 319, True),
        ("Redeploy", 600, False),
        ("Redeploy", 590, True),
        ("Terminate", 300, False),
        ("Preempt", 26, False),
        ("Preempt", 12, True),
        ("Freeze", None, False),
        ("Relocate", 1, False),
    ],
)
def test_notice_is_short_only_beyond_the_tolerance_of_polls(
    event_type: str, seconds: int | None, is_short: bool
) -> None:
    assert is_notice_short(expected_notice(event_type, None), seconds) is is_short


@pytest.mark.parametrize(
    ("event_type", "configured", "expected"),
    [("Terminate", 900, 900), ("Terminate", None, 300), ("Redeploy", 900, 600), ("Relocate", 900, None)],
)
def test_a_deletion_is_expected_with_the_notice_of_its_scale_set(
    event_type: str, configured: int | None, expected: int | None
) -> None:
    assert expected_notice(event_type, configured) == expected
