"""Rule decisions with real commits: one within a second of the first report, even when users decide meanwhile."""

import threading
import time

import pytest
from django.db import connection
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, Order, Rule
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import Plan
from fleet.operations.policy import apply
from tests.factories import EVENT, Fleet, acting, listing, operator, seconds
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


def preempt(number: int, fleet: Fleet) -> dict[str, object]:
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
    for number in range(ROUNDS):
        fleet.now = timezone.now()
        Rule.objects.update(enabled=False)
        fleet.say("vm1", preempt(number, fleet))
        made(at=fleet.now, name=f"rule {number}", accepts=["lost-for-good"])
        event_id = preempt(number, fleet)["EventId"]
        gate = threading.Barrier(3)
        refused: list[str] = []

        def click(event_id: str = str(event_id), gate: threading.Barrier = gate, refused: list[str] = refused) -> None:
            gate.wait()
            try:
                approve.grant(
                    event_id=event_id,
                    actor=acting(person),
                    now=timezone.now(),
                    plan=Plan(overrides={"lost-for-good": "agreed"}),
                )
            except Refused as refusal:
                refused.append(refusal.code)
            finally:
                connection.close()

        def sweep(gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                apply.decide(now=timezone.now())
            finally:
                connection.close()

        threads = [threading.Thread(target=call) for call in (click, sweep, sweep)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        approval = Approval.objects.get(event__event_id=event_id)
        assert refused == ([] if approval.decided_by == person else ["already-decided"])
        assert Order.objects.filter(approval=approval).count() == 1
        # The next round finds nothing under way.
        fleet.now = timezone.now()
        fleet.all_say()
