"""Races between decisions on real Postgres: exactly one decision wins, and every loser learns that it lost."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.test import Client

from fleet.domain import actor
from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet, Claim, Hold, Order, ScheduledEvent
from fleet.operations import reconcile
from fleet.operations.approvals import approve, claims, conditions
from fleet.operations.approvals.approve import Plan
from fleet.operations.orders import advance
from tests.approvals.asking import a_rule
from tests.approvals.racing import ThreadGroup, a_fleet, announce, check, rounds, thread_group, told
from tests.factories import EVENT, Fleet, acting, approver, operator, seconds
from tests.searches import searched
from tests.words import sentence

pytestmark = pytest.mark.django_db(transaction=True)
# A round takes some 80 ms; `RACE_ROUNDS=2000` plays more.
raced = searched("count", share=4, whole=20, variable="RACE_ROUNDS")


@pytest.fixture
def fleet() -> Fleet:
    return a_fleet()


@pytest.fixture
def racing() -> Iterator[ThreadGroup]:
    with thread_group(5) as found:
        yield found


@raced
def test_a_double_click_and_two_browsers_make_one_approval(fleet: Fleet, racing: ThreadGroup, count: int) -> None:
    olga, otto = operator("olga"), operator("otto")
    for (event_id,) in rounds(fleet, count):
        results = racing.at_once(*[partial(fleet.approve, event_id, by=by) for by in (olga, olga, otto)])
        (winner,) = [one for one in results if isinstance(one, Approval)]
        for loser in told(results):
            assert loser.code == "already-decided"
            assert (loser.details["by"], loser.details["approval"]) == (winner.decided_by.username, winner.pk)  # type: ignore[union-attr]
            assert loser.details["at"] == fleet.now.isoformat().replace("+00:00", "Z")
        check(event_id, orders=1)


@raced
def test_a_retry_after_a_lost_answer_gets_the_first_ones(fleet: Fleet, racing: ThreadGroup, count: int) -> None:
    client = Client()
    client.force_login(operator())

    def post(event_id: str) -> Any:
        return client.post(
            f"/api/v1/events/{event_id}/approvals/",
            {"comment": "x"},
            content_type="application/json",
            headers={"idempotency-key": event_id},
        )

    for (event_id,) in rounds(fleet, count):
        first, again = racing.at_once(partial(post, event_id), partial(post, event_id))
        assert (first.status_code, again.status_code) == (201, 201)  # type: ignore[attr-defined]
        assert first.json() == again.json()  # type: ignore[attr-defined]
        check(event_id, orders=1)


@raced
def test_two_events_of_a_set_at_once_leave_exactly_one_in_flight(fleet: Fleet, racing: ThreadGroup, count: int) -> None:
    olga, otto = operator("olga"), operator("otto")
    for one, other in rounds(fleet, count, kinds=2):
        results = racing.at_once(partial(fleet.approve, one, by=olga), partial(fleet.approve, other, by=otto))
        (loser,) = told(results)
        assert [guard["code"] for guard in loser.details["guards"]] == ["set-in-flight"]


@raced
def test_a_person_and_a_rule_leave_one_decision_and_the_persons_beats_a_waiting_one(
    fleet: Fleet, racing: ThreadGroup, count: int
) -> None:
    rule, otto = a_rule(fleet), operator()

    def by_rule(event_pk: int) -> Approval:
        with approve.decision_lock(event_pk):
            return approve.decide(event_pk, actor.rule(rule, "all"), Plan(when=When.PREPARED), now=fleet.now)

    for (event_id,) in rounds(fleet, count):
        event_pk = ScheduledEvent.objects.get(event_id=event_id).pk
        results = racing.at_once(partial(by_rule, event_pk), partial(fleet.approve, event_id, by=otto))
        # The person always wins; the rule was withdrawn, or came too late.
        assert isinstance(results[1], Approval)
        check(event_id, approvals=1 if isinstance(results[0], Refused) else 2, orders=1)
        standing = Approval.objects.get(event_id=event_pk, state="GRANTED")
        assert standing.decided_by == otto


@raced
def test_a_hold_and_a_grant_leave_one_of_the_two(fleet: Fleet, racing: ThreadGroup, count: int) -> None:
    olga, otto = operator("olga"), operator("otto")
    for (event_id,) in rounds(fleet, count):
        results = racing.at_once(
            partial(claims.hold, event_id=event_id, actor=acting(olga, why="x"), now=fleet.now),
            partial(fleet.approve, event_id, by=otto),
        )
        (loser,) = told(results)
        held = Hold.objects.filter(event__event_id=event_id, ended_at=None).exists()
        approved = Approval.objects.filter(event__event_id=event_id).exists()
        assert (held, approved) in ((True, False), (False, True))
        assert loser.code == ("guarded" if held else "already-decided")


@raced
def test_a_claim_belongs_to_one(fleet: Fleet, racing: ThreadGroup, count: int) -> None:
    olga, otto = operator("olga"), operator("otto")
    for (event_id,) in rounds(fleet, count):
        results = racing.at_once(
            *[
                partial(claims.claim, event_id=event_id, actor=acting(by, why=by.username), now=fleet.now)
                for by in (olga, otto, otto)
            ]
        )
        standing = Claim.objects.get(event__event_id=event_id, ended_at=None)
        for loser in (one for one in results if isinstance(one, Refused)):
            assert (loser.code, loser.details["by"]) == ("already-claimed", standing.by.username)


@raced
def test_one_of_two_second_persons_agrees_and_a_withdrawal_is_one_or_the_other(
    fleet: Fleet, racing: ThreadGroup, count: int
) -> None:
    AvailabilitySet.objects.update(second_person=True)
    otto, anna, axel = operator(), approver("anna"), approver("axel")
    outcomes = set()
    for (event_id,) in rounds(fleet, count):
        pk = fleet.approve(event_id, by=otto).pk
        results = racing.at_once(
            partial(conditions.consent, approval_id=pk, actor=acting(anna), now=fleet.now),
            partial(conditions.consent, approval_id=pk, actor=acting(axel), now=fleet.now),
            partial(conditions.withdraw, approval_id=pk, actor=acting(otto), now=fleet.now),
        )
        assert {loser.code for loser in told(results)} == {"too-late"}
        approval = Approval.objects.get(pk=pk)
        outcomes.add(approval.state)
        granted = approval.state == "GRANTED"
        assert (approval.consented_by_id is not None) is granted
        check(event_id, orders=1 if granted else 0)
    assert outcomes <= {"GRANTED", "WITHDRAWN"}


@raced
def test_a_withdrawal_and_the_offer_are_one_or_the_other(fleet: Fleet, racing: ThreadGroup, count: int) -> None:
    otto = operator()
    for (event_id,) in rounds(fleet, count):
        pk = fleet.approve(event_id, by=otto, when=When.TIME, due_at=fleet.now + seconds(1)).pk
        later = fleet.now + seconds(2)
        withdrawn, _ = racing.at_once(
            partial(conditions.withdraw, approval_id=pk, actor=acting(otto), now=later),
            partial(reconcile.advance_new_approval, approval_id=pk, now=later, via="celery"),
        )
        approval = Approval.objects.get(pk=pk)
        if isinstance(withdrawn, Refused):
            assert (withdrawn.code, approval.state) == ("too-late", "RELAYING")
            check(event_id, orders=1)
        else:
            assert approval.state == "WITHDRAWN"
            check(event_id, orders=0)


@searched("swept", share=3, whole=12, variable="RACE_ROUNDS")
def test_concurrent_workers_leave_one_open_order_and_record_a_superseded_one(
    fleet: Fleet, racing: ThreadGroup, swept: int
) -> None:
    announce(fleet, "s0a", [EVENT])
    announce(fleet, "s0b", [EVENT], hits=["s0a"])
    approval = fleet.approve()
    fleet.advance()
    for number in range(swept):
        fleet.later(4)
        fleet.heard()
        racing.at_once(
            *2 * [partial(advance.advance_approval, approval_id=approval.pk, now=fleet.now, via="celery")],
            *2 * [partial(reconcile.advance, now=fleet.now, via="beat")],
            partial(reconcile.advance, now=fleet.now, via="ticker"),
        )
        check(EVENT, orders=number + 2)
    former = Order.objects.filter(approval=approval).order_by("offered_at")[:swept]
    assert {order.state for order in former} == {"SUPERSEDED"}
    assert all(sentence(order.reason) == "The machine before has not answered." for order in former)
