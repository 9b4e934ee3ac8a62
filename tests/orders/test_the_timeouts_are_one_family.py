"""Whatever ORDER_ANSWER_SECONDS is: what pages call overdue is what the relay has stopped waiting for."""

from datetime import timedelta

import pytest
from django.conf import LazySettings

from fleet.domain.orders.next_step import Do
from fleet.models import Approval
from fleet.operations.orders import advance
from fleet.projections.events.detail import event_detail
from fleet.projections.orders import approval as detail
from tests.factories import EVENT, Fleet, announced, open_order

pytestmark = pytest.mark.django_db
SENT, ANSWERED = 1, 2


def overdue(approval: Approval, fleet: Fleet) -> list[int]:
    """Which steps the page marks."""
    row = detail(approval_id=approval.pk, now=fleet.now)
    return [number for number, step in enumerate(row.steps) if step.state == "overdue"]


@pytest.fixture(params=[3, 40])
def answer(request: pytest.FixtureRequest, settings: LazySettings) -> int:
    settings.ORDER_ANSWER_SECONDS = float(request.param)
    return int(request.param)


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    announced(made)
    return made


def test_a_step_is_overdue_only_after_the_relay_has_turned_to_another_machine(fleet: Fleet, answer: int) -> None:
    approval = fleet.approve()
    fleet.advance()
    fleet.tick(answer - 0.1)
    assert (open_order(approval).machine.resource_name, overdue(approval, fleet)) == ("vm1", [])
    fleet.later(0.1)
    fleet.advance()
    assert (open_order(approval).machine.resource_name, overdue(approval, fleet)) == ("vm2", [])
    fleet.later(answer + 0.1)
    assert overdue(approval, fleet) == [SENT]
    (underway,) = advance.steps([approval.event_id], fleet.now).values()
    step = underway.step
    assert step.do is Do.OFFER and step.machine is not None and step.machine.name == "vm3"


def test_an_answer_is_overdue_after_two_more_machines_could_have_been_asked(fleet: Fleet, answer: int) -> None:
    approval = fleet.approve()
    fleet.delivered(open_order(approval))
    for _ in range(3):
        assert overdue(approval, fleet) == []
        fleet.tick(answer)
    fleet.later(0.1)
    assert overdue(approval, fleet) == [ANSWERED]
    assert approval.orders.count() == 4


def test_the_way_without_agents_is_shown_when_five_machines_have_kept_silent(fleet: Fleet, answer: int) -> None:
    fleet.approve()
    fleet.advance()
    for number in range(6):
        found = event_detail(event_id=EVENT, now=fleet.now)
        assert found is not None and (found.by_hand is not None) == (number == 5)
        fleet.now += timedelta(seconds=answer)
        fleet.heard()
        fleet.advance()
