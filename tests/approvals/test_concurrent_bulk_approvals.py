"""Several operators approve the same events of one service at once, in different orders."""

import random
from collections import Counter
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import LockedFacts, Plan
from tests.approvals.racing import a_fleet, announce, check, event_ids, thread_group
from tests.factories import acting, operator, the_event
from tests.holding import as_patient_as, held

pytestmark = pytest.mark.django_db(transaction=True)

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
