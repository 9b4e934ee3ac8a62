"""Bulk decisions: one call locks and reads most events at once, and still decides each on its own."""

from collections.abc import Sequence
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, OperationalError
from django.utils import timezone

from fleet.domain.actor import Actor
from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Refused
from fleet.models import Approval, Order, ScheduledEvent
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
