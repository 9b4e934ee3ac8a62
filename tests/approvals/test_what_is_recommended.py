"""Recommendations: the advice and its reasons follow from guards, earlier events and other open events."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from fleet.domain.approvals.guards import EventFacts, HoldFacts, OtherEvent, WindowFacts, guards
from fleet.domain.intake import Prepared
from fleet.domain.recommendation import Advised, Experience, as_rule, decide_by, recommend
from fleet.domain.states import EventStatus
from fleet.models import Approval, ScheduledEvent
from fleet.models.facts.decisions import NEWEST, experiences
from fleet.projections.events.detail import event_detail
from fleet.wording.card import card_words
from fleet.wording.say import say
from fleet.wording.times import API
from tests import factories, facts
from tests.factories import NOW, Fleet, seconds
from tests.facts import calm

SEEN_OFTEN = Experience(count=12, median_seconds=4.2, cancelled=0, relay_seconds=5.0)


machine = partial(facts.machine, prepared=Prepared.NOTHING)
FACTS = calm(machines=(machine(1), machine(2), machine(3)))


def said(event: EventFacts, experience: Experience = SEEN_OFTEN) -> str:
    found = recommend(event, experience, now=NOW)
    return say(found.sentence, API) if found else ""


def test_unguarded_event_is_recommended_with_reasons() -> None:
    assert said(FACTS) == (
        "Start now: 12 earlier Freezes in this set, which Azure listed as Started for 4 s (median), nothing else open "
        "in the service shop."
    )


def test_of_the_only_machine_of_a_set_it_says_why_a_pause_need_not_wait() -> None:
    alone = replace(FACTS, machines=(machine(1),))
    assert "waiting would not spare the set's only machine the pause" in said(alone)
    assert "only machine" not in said(FACTS)
    (guard,) = [guard for guard in guards(alone, now=NOW) if guard.code == "last-live-machines"]
    assert (guard.sentence.values["pauses"], guard.sentence.values["only"]) == (True, True)


def test_missing_history_is_stated() -> None:
    assert "no earlier Freeze of this set" in said(FACTS, Experience())
    assert "1 earlier Freeze in this set" in said(FACTS, Experience(count=1, median_seconds=3.0))


@pytest.mark.parametrize(
    ("fields", "advised"),
    [
        ({"event_type": "Redeploy"}, Advised.LOOK),
        ({"event_type": "Terminate"}, Advised.LOOK),
        ({"event_type": "Terminate", "source": "User"}, Advised.START_NOW),
        ({"event_type": "Holiday"}, Advised.LOOK),
        ({"not_before": NOW + timedelta(days=3)}, Advised.REDEPLOY),
        ({"machines": (machine(1, lists_it=False),)}, Advised.BY_HAND),
        ({"machines": (machine(1, prepared=Prepared.PREPARING), machine(2))}, Advised.WHEN_PREPARED),
        ({"machines": (machine(1, prepared=Prepared.FAILED), machine(2))}, Advised.LOOK),
        ({"machines": (machine(2),)}, Advised.LOOK),
        ({"machines": (machine(1),), "event_type": "Reboot"}, Advised.LOOK),
        ({"machines": (machine(1),)}, Advised.START_NOW),
        ({"machines": (machine(1),), "event_type": "Reboot", "source": "User"}, Advised.START_NOW),
        ({"event_type": "Reboot", "source": "User"}, Advised.START_NOW),
        ({"resources": ("vm1", "vm2", "vm3"), "event_type": "Reboot"}, Advised.PROPOSE),
        ({"second_person": True}, Advised.PROPOSE),
        ({"others": (OtherEvent("O", 1, "web", in_flight=True),)}, Advised.WAIT),
        ({"others": (OtherEvent("O", 2, "db", in_flight=True),)}, Advised.WAIT),
        ({"others": (OtherEvent("O", 2, "db", in_flight=False),)}, Advised.START_NOW),
        ({"hold": HoldFacts("otto", NOW, "The sale ends at midnight.")}, Advised.LEAVE),
        ({"windows": (WindowFacts("Sale", "No changes to the shop."),)}, Advised.LOOK),
    ],
)
def test_guards_determine_the_recommendation(fields: dict[str, Any], advised: Advised) -> None:
    found = recommend(replace(FACTS, **fields), SEEN_OFTEN, now=NOW)
    assert found.advised is advised
    assert all(say(reason, API) for reason in found.reasons)


@pytest.mark.parametrize("fields", [{"status": EventStatus.STARTED}, {"not_before": NOW}])
def test_where_nothing_is_left_to_decide_nothing_is_advised(fields: dict[str, Any]) -> None:
    assert recommend(replace(FACTS, **fields), SEEN_OFTEN, now=NOW) is None


def test_decide_by_leaves_the_way_to_azure_its_time() -> None:
    by = decide_by(NOW + seconds(900), relay=seconds(5), undo=seconds(3))
    assert by == NOW + seconds(892)
    assert decide_by(None, relay=seconds(5), undo=seconds(3)) is None


def test_advice_can_be_stated_as_a_rule_that_means_this_place_only() -> None:
    advice = recommend(FACTS, SEEN_OFTEN, now=NOW)
    assert as_rule(FACTS, advice) == {
        "action": "approve_now",
        "event_types": ["Freeze"],
        "sources": ["Platform"],
        "service": "shop",
        "max_duration_seconds": 5,
    }
    for fields in ({"set_service": "sh*p"}, {"drill": True}, {"set_kind": "provisional"}):
        assert as_rule(replace(FACTS, **fields), advice) == {}
    assert as_rule(FACTS, recommend(replace(FACTS, event_type="Redeploy"), SEEN_OFTEN, now=NOW)) == {}


@pytest.mark.django_db
def test_the_history_of_the_set_is_counted_and_its_way_to_azure_measured(fleet: Fleet) -> None:
    fleet.enrol_set()
    for number in range(3):
        event = f"0000000{number}-0000-4000-8000-000000000000"
        factories.freeze_completed(fleet, event_id=event)
        fleet.later(60)
    Approval.objects.update(accepted_at=NOW, granted_at=NOW - seconds(7))
    set_id = factories.the_set().pk
    found = experiences([set_id]).of(set_id, "Freeze")
    assert (found.count, found.cancelled, found.relay_seconds) == (3, 0, 7.0)
    assert found.median_seconds > 0
    # The way to Azure is the same for every type; the rest is not.
    other = experiences([set_id]).of(set_id, "Reboot")
    assert (other.count, other.median_seconds, other.relay_seconds) == (0, None, 7.0)


@pytest.mark.django_db
def test_only_the_newest_of_a_set_are_looked_back_on(fleet: Fleet) -> None:
    first = factories.freeze_completed(fleet)
    rows = [
        ScheduledEvent(
            event_id=f"OLD-{number}", availability_set=first.availability_set, created_at=NOW, status="ENDED",
            event_type="Freeze", first_seen_at=NOW - seconds(100 + number), started_at=NOW, ended_at=NOW,
            ended_as="completed",
        )
        for number in range(NEWEST + 20)
    ]  # fmt: skip
    ScheduledEvent.objects.bulk_create(rows)
    found = experiences([first.availability_set_id]).of(first.availability_set_id, "Freeze")
    assert found.count == NEWEST


@pytest.mark.django_db
def test_card_has_one_line_for_each_fact(fleet: Fleet) -> None:
    event = factories.announced(fleet, event_type="Reboot")
    found = event_detail(event_id=event.event_id, now=fleet.now)
    lines = card_words(found.card, API).lines
    assert lines[0] == "Reboot of vm1, vm2"
    told = "\n".join(lines)
    for part in (
        "Memory is lost",
        "In web: 4 of 6 machines stay live; 2 affected.",
        "NotBefore 2022-04-11 22:27:00 UTC",
        "Decide by 2022-04-11 22:26:",
        "Recommendation: Approve when prepared.",
        "Without a decision: Azure starts the event after",
        "Unclaimed.",
    ):
        assert part in told
