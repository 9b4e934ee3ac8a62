"""Rule decisions with real commits: one within a second of the first report, even when users decide meanwhile."""

import time
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, Order, Rule
from fleet.operations.policy import apply
from tests.approvals.racing import thread_group
from tests.factories import EVENT, Fleet, listing, operator, seconds
from tests.policy.conftest import hints_followed, made

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 5


@pytest.fixture
def fleet(transactional_db: None, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    Rule.objects.all().delete()
    fleet = Fleet(now=timezone.now())
    fleet.enrol_set(3)
    hints_followed(fleet, monkeypatch)
    return fleet


def preempt(number: int, fleet: Fleet) -> dict[str, Any]:
    event_id = f"{EVENT[:-6]}{number:06d}"
    return listing(event_id, event_type="Preempt", resources=("vm1",), not_before=fleet.now + seconds(30))


def test_a_preempt_is_on_its_way_within_a_second_of_its_first_report(fleet: Fleet) -> None:
    made(at=fleet.now, event_types=["Preempt"], accepts=["lost-for-good"])
    fleet.now = timezone.now()
    began = time.monotonic()
    fleet.say("vm1", preempt(1, fleet))
    took = time.monotonic() - began
    assert took < 1
    assert Order.objects.get().approval.rule is not None


def test_a_rule_and_a_person_at_once_make_one_approval(fleet: Fleet) -> None:
    person = operator()
    with thread_group(3) as racing:
        for number in range(ROUNDS):
            fleet.now = timezone.now()
            Rule.objects.update(enabled=False)
            event = preempt(number, fleet)
            fleet.say("vm1", event)
            made(at=fleet.now, name=f"rule {number}", accepts=["lost-for-good"])
            click = partial(fleet.approve, event["EventId"], by=person, overrides={"lost-for-good": "agreed"})
            sweep = partial(apply.decide, now=fleet.now)
            result, *_ = racing.at_once(click, sweep, sweep)
            approval = Approval.objects.get(event__event_id=event["EventId"])
            if approval.decided_by != person:
                assert isinstance(result, Refused) and result.code == "already-decided"
            assert approval.orders.count() == 1
            # The next round finds nothing under way.
            fleet.now = timezone.now()
            fleet.all_say()
