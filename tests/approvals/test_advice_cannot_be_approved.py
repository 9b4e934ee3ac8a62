"""SpotRebalanceRecommendation is advice: shown, and approved in no way. An unknown type is approved by
a person who was warned, and by a rule only if it names that type exactly.
"""

from collections.abc import Callable

import pytest

from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import TAKE_REASONS, Need, guards
from fleet.domain.event_types import TYPES, is_advice, is_unknown
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts.events import load_facts
from fleet.operations import waves
from fleet.operations.approvals import claims
from fleet.operations.policy import apply
from fleet.projections.events.rows import needs_decision
from tests.approvals.asking import OTHER, Plan, by_rule, codes, hook, refused
from tests.factories import Fleet, acting, after, announced, approver, listing, operator, seconds, the_event
from tests.policy.conftest import made

pytestmark = pytest.mark.django_db
ADVICE = "SpotRebalanceRecommendation"
SPELLED = [ADVICE, ADVICE.lower(), ADVICE.upper()]


@pytest.mark.parametrize("event_type", SPELLED)
def test_no_way_of_deciding_approves_advice(event_type: str, fleet: Fleet) -> None:
    event = announced(fleet, event_type=event_type)
    every = dict.fromkeys((*TAKE_REASONS, "advice-only"), "because")
    ways: list[Callable[[], object]] = [
        fleet.approve,
        lambda: fleet.approve(by=approver(), overrides=every),
        lambda: fleet.approve(by=approver("a2"), overrides=every, when=When.PREPARED),
        lambda: fleet.approve(by=approver("a3"), overrides=every, when=When.UNDO),
        lambda: fleet.approve(by=approver("a4"), overrides=every, when=When.TIME, due_at=fleet.now + seconds(60)),
        lambda: by_rule(fleet, event, Plan(overrides=every)),
    ]
    for way in ways:
        assert "advice-only" in codes(refused(way))
    made(action="approve_now")
    made(action="approve_when_prepared", event_types=[], accepts=[])
    assert apply.decide(now=fleet.now) == 0
    fleet.later(3)
    fleet.advance()
    assert not Approval.objects.exists() and not Order.objects.exists()


def test_a_wave_leaves_advice_out_and_takes_none_that_is_named(fleet: Fleet) -> None:
    event = announced(fleet, event_type=ADVICE)
    due = fleet.now + seconds(900)
    fleet.all_say(
        listing(event_type=ADVICE, resources=["vm1"], not_before=due),
        listing(OTHER, resources=["vm2"], not_before=due),
        listing(OTHER.replace("1", "2"), resources=["vm3"], not_before=due),
    )
    named = refused(lambda: waves.begin(actor=acting(operator()), now=fleet.now, events=[event.event_id, OTHER]))
    assert [one["event_id"] for one in named.details["events"]] == [event.event_id]
    assert not Approval.objects.exists()
    event.availability_set.service = "shop"
    event.availability_set.save()
    wave = waves.begin(actor=acting(operator("o2")), now=fleet.now, service="shop")
    assert event.pk not in set(wave.approvals.values_list("event_id", flat=True))
    assert wave.approvals.count() == 2


def test_advice_is_shown_and_waits_for_no_decision(fleet: Fleet) -> None:
    event = announced(fleet, event_type=ADVICE)
    assert not ScheduledEvent.objects.filter(needs_decision(now=fleet.now)).exists()
    assert (event.status, event.event_type, event.watched) == ("SCHEDULED", ADVICE, True)
    # A user may still claim it.
    claims.claim(event_id=event.event_id, actor=acting(operator()), now=fleet.now)


def test_an_approval_that_waits_goes_nowhere_once_the_event_is_advice(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
    fleet.later(1)
    fleet.all_say(listing(event_type=ADVICE, resources=["vm1", "vm2"]))
    fleet.later(120)
    fleet.all_say(listing(event_type=ADVICE, resources=["vm1", "vm2"]))
    fleet.advance()
    assert after(approval).granted_at is None and not Order.objects.exists()


def test_a_person_approves_an_unknown_type_and_is_warned(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Relocate")
    (facts,) = load_facts([event.pk], now=fleet.now).values()
    assert [(one.code, one.needs) for one in guards(facts, now=fleet.now)] == [("event-type-unknown", Need.NOTE)]
    assert fleet.approve().state == "GRANTED"


def test_a_rule_approves_an_unknown_type_only_if_it_names_it(fleet: Fleet) -> None:
    announced(fleet, event_type="Relocate")
    for named in ([], ["Freeze", "Reboot"], ["relocate"], ["Relocat"]):
        made(event_types=named)
        assert apply.decide(now=fleet.now) == 0
    made(event_types=["Freeze", "Relocate"])
    assert apply.decide(now=fleet.now) == 1


@pytest.mark.parametrize(("event_type", "named"), [("Relocate", []), (ADVICE, [ADVICE])])
def test_rules_that_approve_nothing_may_decide_any_type(fleet: Fleet, event_type: str, named: list[str]) -> None:
    made(action="hold", event_types=named)
    announced(fleet, event_type=event_type)
    assert the_event().holds.filter(ended_at=None).exists() or apply.decide(now=fleet.now) == 1


@pytest.mark.parametrize("name", [*TYPES, "freeze", "PREEMPT"])
def test_a_documented_type_is_known_in_any_case(name: str) -> None:
    assert not is_unknown(name) and not is_advice(name)


@pytest.mark.parametrize(("named", "goes"), [([], False), (["Freeze"], False), (["Freeze", "Relocate"], True)])
def test_what_a_rule_decided_waits_once_the_type_is_one_that_it_does_not_name(
    named: list[str], goes: bool, fleet: Fleet
) -> None:
    made(action="approve_when_prepared", event_types=named)
    event = announced(fleet, resources=("vm1",))
    hook(fleet, "vm1", event.event_id, "begin", "running")
    apply.decide(now=fleet.now)
    assert Approval.objects.get().state == "WAITING"
    fleet.later(1)
    fleet.all_say(listing(event_type="Relocate", resources=["vm1"]))
    hook(fleet, "vm1", event.event_id, "end", "succeeded")
    fleet.later(2)
    fleet.advance()
    apply.decide(now=fleet.now)
    assert Order.objects.exists() is goes
