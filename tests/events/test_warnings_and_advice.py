"""Event notices: warnings about contradictions, advice, and the outcome if no operator acts."""

from datetime import timedelta

import pytest

from fleet.domain.events import advice, default_outcome
from fleet.domain.states import EventStatus
from fleet.models import Machine
from tests.factories import NOW, Fleet, announced, listing, seconds, the_event
from tests.words import sentence, sentences

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
def test_names_are_compared_without_case_and_the_old_underscore(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(resources=("_VM1",)))
    assert (the_event().resources, the_event().warnings) == (["VM1"], [])


@pytest.mark.django_db
def test_a_warning_goes_away_with_its_reason(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(resources=("vm1", "vm3")))
    assert the_event().warnings
    fleet.enrol("vm3")
    fleet.later(1)
    fleet.all_say(listing(resources=("vm1", "vm3")))
    assert the_event().warnings == []


def test_a_users_event_says_why_it_waits() -> None:
    text = sentence(advice(status=EventStatus.SCHEDULED, source="User", not_before=SOON, now=NOW))
    assert "waits for an approval" in text
    assert "approving such events at once" in text


def test_an_event_days_ahead_carries_the_advice_to_redeploy() -> None:
    text = sentence(advice(status=EventStatus.SCHEDULED, source="Platform", not_before=DAYS_AHEAD, now=NOW))
    assert "redeploying the machine yourself" in text


@pytest.mark.parametrize(
    ("status", "source"),
    [(EventStatus.SCHEDULED, "Platform"), (EventStatus.STARTED, "User"), (EventStatus.ENDED, "User")],
)
def test_there_is_no_advice_where_there_is_nothing_special_to_say(status: EventStatus, source: str) -> None:
    assert advice(status=status, source=source, not_before=SOON, now=NOW) == ""


@pytest.mark.parametrize(
    ("status", "not_before", "watched", "words"),
    [
        (EventStatus.SCHEDULED, SOON, True, "Azure starts the event after 2022-04-11 22:27:00 UTC."),
        (EventStatus.SCHEDULED, SOON, False, "No live agent lists the event"),
        (EventStatus.SCHEDULED, DAYS_AHEAD, True, "2022-04-16 22:12:00 UTC"),
        (EventStatus.SCHEDULED, NOW - seconds(1), True, "at any moment"),
        (EventStatus.SCHEDULED, None, True, "stated no NotBefore"),
        (EventStatus.STARTED, None, True, "further, shorter impacts"),
        (EventStatus.ENDED, None, True, "over"),
    ],
)
def test_outcome_without_action_never_suggests_postponing(
    status: EventStatus, not_before: object, watched: bool, words: str
) -> None:
    reason = default_outcome(status=status, not_before=not_before, watched=watched, now=NOW)  # type: ignore[arg-type]
    text = sentence(reason)
    assert words in text
    assert "postpone" not in text
