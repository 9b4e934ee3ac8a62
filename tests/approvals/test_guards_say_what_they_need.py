"""Guards: each applies under its condition, and states its reason and what it requires."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from fleet.domain.approvals import guards as judging
from fleet.domain.approvals.guards import DecisionFacts, Guard, HoldFacts, Need, OtherEvent, guards
from fleet.domain.intake import Prepared
from fleet.domain.recommendation import Advised, Experience, as_rule, decide_by, recommend
from fleet.domain.states import EventStatus, Presence
from fleet.models import Approval, ScheduledEvent
from fleet.models.facts.decisions import NEWEST, experiences
from fleet.projections.events.detail import event_detail
from fleet.wording.card import card_words
from fleet.wording.say import say
from fleet.wording.times import API
from tests import factories, words
from tests.factories import NOW, Fleet, seconds
from tests.facts import calm, machine

BLOCKS, REASON, SECOND, NOTE = Need.BLOCKS, Need.REASON, Need.SECOND, Need.NOTE


# Names are compared without case.
CALM = calm(version=3, resources=("VM1",))


def test_a_calm_event_has_nothing_against_it() -> None:
    assert guards(CALM, now=NOW, expected_version=3) == []


def other(set_id: int, *, in_flight: bool = True) -> OtherEvent:
    return OtherEvent(event_id="X", set_id=set_id, set_name="db", in_flight=in_flight)


def with_first(**fields: Any) -> tuple[judging.MachineFacts, ...]:
    return (machine(1, **fields), *CALM.machines[1:])


CASES: list[tuple[dict[str, Any], str, Need]] = [
    ({"decision": DecisionFacts(1, "GRANTED", "olga", NOW)}, "already-decided", BLOCKS),
    ({"stop": judging.StopFacts(by="anna", at=NOW, why="it runs wild")}, "all-stopped", BLOCKS),
    ({"decision": DecisionFacts(1, "PROPOSED", "olga", NOW)}, "already-decided", BLOCKS),
    ({"decision": DecisionFacts(1, "WAITING", "olga", NOW)}, "already-decided", BLOCKS),
    ({"status": EventStatus.ENDED}, "event-not-open", BLOCKS),
    ({"status": EventStatus.STARTED}, "event-not-open", BLOCKS),
    ({"event_type": "SpotRebalanceRecommendation"}, "advice-only", BLOCKS),
    ({"not_before": NOW}, "too-late", BLOCKS),
    ({"version": 4}, "version-changed", BLOCKS),
    ({"machines": (machine(1, Presence.LATE), machine(2, Presence.SILENT))}, "no-live-machine", BLOCKS),
    ({"others": (other(1),)}, "set-in-flight", BLOCKS),
    ({"others": (other(1), other(1))}, "set-in-flight", BLOCKS),
    ({"others": (other(2),)}, "service-in-flight", REASON),
    ({"hold": HoldFacts("olga", NOW, "sale")}, "held", REASON),
    ({"windows": (judging.WindowFacts("nights", "no operator is here"),)}, "no-approval-window", REASON),
    ({"event_type": "Redeploy"}, "lost-for-good", REASON),
    ({"event_type": "Preempt"}, "lost-for-good", REASON),
    ({"event_type": "Terminate"}, "lost-for-good", REASON),
    ({"machines": with_first(prepared=Prepared.FAILED, failed_hook="10-drain")}, "hook-failed", REASON),
    ({"machines": with_first(prepared=Prepared.PREPARING)}, "not-prepared", REASON),
    ({"machines": with_first(prepared=Prepared.PLANNED)}, "not-prepared", REASON),
    ({"step_up": True}, "set-wants-step-up", Need.STEP_UP),
    ({"second_person": True}, "set-wants-second", SECOND),
    ({"event_type": "Reboot", "resources": ("vm1", "vm2", "vm3")}, "last-live-machines", SECOND),
    ({"event_type": "Freeze", "resources": ("vm1", "vm2", "vm3")}, "last-live-machines", NOTE),
    ({"event_type": "Reboot", "machines": (machine(1),)}, "last-live-machines", NOTE),
    ({"event_type": "Teleport"}, "event-type-unknown", NOTE),
    ({"other_open": ("X",), "others": (other(1, in_flight=False),)}, "other-open-event", NOTE),
    ({"other_open": ("X", "Y")}, "other-open-event", NOTE),
    ({"set_kind": "provisional"}, "unnamed-set", NOTE),
]


@pytest.mark.parametrize("event_type", ["Preempt", "Terminate"])
@pytest.mark.parametrize("of_set", [1, 2])
def test_no_event_in_flight_stands_against_one_that_cannot_be_avoided(event_type: str, of_set: int) -> None:
    found = guards(replace(CALM, event_type=event_type, others=(other(of_set),)), now=NOW, expected_version=3)
    assert [guard.code for guard in found] == ["lost-for-good"]


@pytest.mark.parametrize(("changed", "code", "needs"), CASES)
def test_each_guard_applies_alone_and_states_what_it_needs(changed: dict[str, Any], code: str, needs: Need) -> None:
    found = guards(replace(CALM, **changed), now=NOW, expected_version=3)
    assert [(guard.code, guard.needs) for guard in found if guard.code != "event-not-open" or code == guard.code] == [
        (code, needs)
    ]
    assert all(words.sentence(guard.sentence) for guard in found)


def all_guards() -> dict[str, set[Need]]:
    found: dict[str, set[Need]] = {}
    for _, code, needs in CASES:
        found.setdefault(code, set()).add(needs)
    return found


def test_only_another_event_of_the_set_can_be_overridden_and_only_with_a_reason() -> None:
    everything = [
        guard for changed, *_ in CASES for guard in guards(replace(CALM, **changed), now=NOW, expected_version=3)
    ]
    assert {guard.code for guard in everything if guard.overridable} == {"set-in-flight"}
    assert all(guard.takes_reason for guard in everything if guard.overridable)


def test_a_rule_may_accept_what_takes_a_reason_but_no_hold_and_nothing_that_blocks() -> None:
    takes = {code for code, needs in all_guards().items() if Need.REASON in needs}
    assert set(judging.ACCEPTABLE) == takes - {"held"}


def test_guards_are_ordered_by_blocks_second_person_reasons_and_notes() -> None:
    facts = replace(
        CALM,
        event_type="Redeploy",
        second_person=True,
        other_open=("X",),
        others=(other(1),),
        hold=HoldFacts("olga", NOW, "sale"),
    )
    found: list[Guard] = guards(facts, now=NOW, expected_version=1)
    assert [guard.code for guard in found] == [
        "version-changed",
        "set-in-flight",
        "set-wants-second",
        "held",
        "lost-for-good",
        "other-open-event",
    ]


def test_a_machine_that_is_hit_and_not_live_does_not_make_the_others_the_last() -> None:
    machines = (machine(1), machine(2, Presence.SILENT), machine(3))
    facts = replace(CALM, event_type="Reboot", resources=("vm1", "vm2"), machines=machines)
    assert guards(facts, now=NOW) == []
    last = replace(facts, resources=("vm1", "vm3"))
    assert [guard.code for guard in guards(last, now=NOW)] == ["last-live-machines"]


# Recommendations: the advice and its reasons follow from guards, earlier events and other open events.


SEEN_OFTEN = Experience(count=12, median_seconds=4.2, cancelled=0, relay_seconds=5.0)
without_hooks = partial(machine, prepared=Prepared.NOTHING)
FACTS = calm(machines=(without_hooks(1), without_hooks(2), without_hooks(3)))


def said(event: judging.EventFacts, experience: Experience = SEEN_OFTEN) -> str:
    found = recommend(event, experience, now=NOW)
    return say(found.sentence, API) if found else ""


def test_unguarded_event_is_recommended_with_reasons() -> None:
    assert said(FACTS) == (
        "Start now: 12 earlier Freezes in this set, which Azure listed as Started for 4 s (median), nothing else open "
        "in the service shop."
    )


def test_of_the_only_machine_of_a_set_it_says_why_a_pause_need_not_wait() -> None:
    alone = replace(FACTS, machines=(without_hooks(1),))
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
        ({"machines": (without_hooks(1, lists_it=False),)}, Advised.BY_HAND),
        ({"machines": (without_hooks(1, prepared=Prepared.PREPARING), without_hooks(2))}, Advised.WHEN_PREPARED),
        ({"machines": (without_hooks(1, prepared=Prepared.FAILED), without_hooks(2))}, Advised.LOOK),
        ({"machines": (without_hooks(2),)}, Advised.LOOK),
        ({"machines": (without_hooks(1),), "event_type": "Reboot"}, Advised.LOOK),
        ({"machines": (without_hooks(1),)}, Advised.START_NOW),
        ({"machines": (without_hooks(1),), "event_type": "Reboot", "source": "User"}, Advised.START_NOW),
        ({"event_type": "Reboot", "source": "User"}, Advised.START_NOW),
        ({"resources": ("vm1", "vm2", "vm3"), "event_type": "Reboot"}, Advised.PROPOSE),
        ({"second_person": True}, Advised.PROPOSE),
        ({"others": (OtherEvent("O", 1, "web", in_flight=True),)}, Advised.WAIT),
        ({"others": (OtherEvent("O", 2, "db", in_flight=True),)}, Advised.WAIT),
        ({"others": (OtherEvent("O", 2, "db", in_flight=False),)}, Advised.START_NOW),
        ({"hold": HoldFacts("otto", NOW, "The sale ends at midnight.")}, Advised.LEAVE),
        ({"windows": (judging.WindowFacts("Sale", "No changes to the shop."),)}, Advised.LOOK),
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
