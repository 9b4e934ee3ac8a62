"""Bulk decisions: one call locks and reads most events at once, and still decides each on its own."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, OperationalError
from django.utils import timezone

from fleet.domain.actor import Actor
from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet, Order, ScheduledEvent
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import LockedFacts, Plan
from tests.approvals.asking import by_rule
from tests.approvals.racing import a_fleet, announce, check, event_ids, thread_group
from tests.factories import Fleet, acting, after, operator, the_event
from tests.holding import as_patient_as, held
from tests.searches import searched

pytestmark = pytest.mark.django_db(transaction=True)
raced = searched("count", share=3, whole=20, variable="RACE_ROUNDS")

SETS = 5


class Calls:
    """Approves several and notes which of them were judged ahead, in the order of the calls."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.ahead: list[tuple[str, bool]] = []
        self.fails: set[str] = set()

    def __call__(self, ids: Sequence[str]) -> list[str]:
        """For each event the state of its approval, the code of the refusal, or `held`."""
        return approve.each(ids, self._act, lambda *_: "held", clock=timezone.now, ahead=True)

    def _act(self, event_id: str, ahead: LockedFacts | None) -> str:
        self.ahead.append((event_id, ahead is not None))
        try:
            made = approve.grant(event_id=event_id, actor=self.actor, now=timezone.now(), ahead=ahead)
        except Refused as error:
            return error.code
        if ahead is not None and event_id in self.fails:
            raise IntegrityError
        return made.state


@pytest.fixture
def fleet() -> Fleet:
    return a_fleet(SETS)


@pytest.fixture
def ids(fleet: Fleet) -> list[str]:
    """An event of each set."""
    found = event_ids(SETS)
    for number, event_id in enumerate(found):
        announce(fleet, f"s{number}a", [event_id])
    return found


@pytest.fixture
def several(fleet: Fleet) -> Calls:
    return Calls(acting(operator()))


def test_each_gets_an_approval_and_an_order_of_its_own_time(ids: list[str], several: Calls) -> None:
    assert several(ids) == ["GRANTED"] * SETS
    assert several.ahead == [(event_id, True) for event_id in ids]
    for event_id in ids:
        check(event_id, orders=1)
    decided = set(Approval.objects.values_list("decided_at", flat=True))
    # An order that was given at the beginning of the call would be as good as over when it is committed.
    assert decided == set(Order.objects.values_list("offered_at", flat=True))
    assert len(decided) == SETS


def test_what_counts_for_a_neighbour_is_seen_by_it(ids: list[str], fleet: Fleet, several: Calls) -> None:
    (other,) = event_ids(1, kind=1)
    announce(fleet, "s0a", [ids[0], other])
    assert several([ids[0], other, ids[1]]) == ["GRANTED", "guarded", "GRANTED"]
    assert several.ahead == [(ids[0], True), (ids[1], True), (other, False)]


def test_one_refusal_stops_nothing_and_no_event_is_unknown_to_the_others(ids: list[str], several: Calls) -> None:
    assert several(ids[:1]) == ["GRANTED"]
    unknown = event_ids(1, kind=9)
    assert several([*ids, *unknown]) == ["already-decided", *["GRANTED"] * (SETS - 1), "unknown-event"]


def test_a_persons_decision_goes_before_a_rules_here_too(ids: list[str], fleet: Fleet, several: Calls) -> None:
    waiting = by_rule(fleet, the_event(ids[1]), Plan(when=When.PREPARED))
    assert several(ids) == ["GRANTED"] * SETS
    assert after(waiting).state == "WITHDRAWN"
    assert several.ahead[-1] == (ids[1], False)


def test_locked_event_is_decided_after_all_others(ids: list[str], several: Calls) -> None:
    with held(the_event(ids[2])), as_patient_as("pages"):
        assert several(ids) == ["GRANTED", "GRANTED", "held", "GRANTED", "GRANTED"]
    assert several.ahead[-1] == (ids[2], False)
    assert several(ids[2:3]) == ["GRANTED"]


def test_what_fails_together_is_done_alone_and_leaves_nothing_behind(ids: list[str], several: Calls) -> None:
    several.fails = {ids[3]}
    assert several(ids) == ["GRANTED"] * SETS
    assert several.ahead[-1] == (ids[3], False)
    check(ids[3], orders=1)


def test_what_cannot_reach_the_database_fails_as_a_whole(ids: list[str]) -> None:
    def act(event_id: str, ahead: LockedFacts | None) -> str:
        raise OperationalError("the server closed the connection")

    with pytest.raises(OperationalError):
        approve.each(ids, act, lambda *_: "held", clock=timezone.now, ahead=True)
    assert not Approval.objects.exists()


@raced
def test_two_people_who_decide_the_same_in_other_orders_decide_each_once(count: int) -> None:
    fleet = a_fleet(SETS)
    people: list[User] = [operator("olga"), operator("otto")]
    with thread_group(2) as racing:
        for kind in range(count):
            ids = event_ids(SETS, kind)
            fleet.now = timezone.now()
            fleet.heard()
            for number, event_id in enumerate(ids):
                announce(fleet, f"s{number}a", [event_id])
            given = (ids, ids[::-1])
            calls = [partial(Calls(acting(person)), order) for person, order in zip(people, given, strict=True)]
            first, second = racing.at_once(*calls)
            assert isinstance(first, list)
            assert isinstance(second, list)
            assert [sorted(pair) for pair in zip(first, second[::-1], strict=True)] == [
                ["GRANTED", "already-decided"]
            ] * SETS
            for event_id in ids:
                check(event_id, orders=1)
            Approval.objects.update(state="LAPSED")
            ScheduledEvent.objects.update(status="ENDED")


# Several operators approve the same events of one service at once, in different orders.


OPERATORS, EVENTS = 5, 14
PLAN = Plan(overrides={"service-in-flight": "all of it tonight"})


def bulk(user: User, ids: list[str]) -> dict[str, object]:
    """What each event is answered: `GRANTED`, the refusal, or `busy`."""
    actor = acting(user)

    def act(event_id: str, ahead: LockedFacts | None) -> object:
        try:
            return approve.grant(event_id=event_id, actor=actor, now=timezone.now(), plan=PLAN, ahead=ahead).state
        except Refused as error:
            return error

    with as_patient_as("pages"):
        answers = approve.each(ids, act, lambda *_: "busy", clock=timezone.now, ahead=True)
    return dict(zip(ids, answers, strict=True))


def test_each_event_has_one_winner_and_every_loser_learns_who_decided() -> None:
    fleet = a_fleet(EVENTS)
    AvailabilitySet.objects.update(service="shop")
    ids = event_ids(EVENTS)
    for number, event_id in enumerate(ids):
        announce(fleet, f"s{number}a", [event_id])
    people = [operator(f"op{number}") for number in range(OPERATORS)]
    orders = [random.Random(number).sample(ids, EVENTS) for number in range(OPERATORS)]
    with thread_group(OPERATORS) as working:
        results = working.at_once(*[partial(bulk, *one) for one in zip(people, orders, strict=True)])
    answers = [
        (event_id, answer) for result in results if isinstance(result, dict) for event_id, answer in result.items()
    ]
    assert len(answers) == OPERATORS * EVENTS
    won = Counter(event_id for event_id, answer in answers if answer == "GRANTED")
    assert won == Counter(ids)
    lost = [answer for _, answer in answers if isinstance(answer, Refused)]
    assert len(won) + len(lost) == len(answers), answers
    assert {refused.code for refused in lost} == {"already-decided"}
    names = {person.username for person in people}
    assert {refused.details["by"] for refused in lost} <= names
    for event_id in ids:
        check(event_id, orders=1)


def test_a_second_decision_is_refused_while_another_holds_the_lock_of_the_service() -> None:
    fleet = a_fleet()
    (event_id,) = event_ids(1)
    announce(fleet, "s0a", [event_id])
    first = bulk(operator("first"), [event_id])
    assert first == {event_id: "GRANTED"}
    with held(the_event(event_id)):
        second = bulk(operator("second"), [event_id])[event_id]
    assert (second.code, second.details["by"]) == ("already-decided", "first")
    assert Approval.objects.count() == 1
