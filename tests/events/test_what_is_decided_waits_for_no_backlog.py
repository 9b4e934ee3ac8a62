"""A changed rule makes all due that is open. A tick takes a part of that, and what is on its way to Azure first."""

import pytest
from django.conf import settings

from fleet.models import ScheduledEvent
from fleet.operations import reconcile
from fleet.operations.events import scheduling
from tests.factories import Fleet, listing, open_order, seconds

pytestmark = pytest.mark.django_db
EVENTS, PORTION, PORTIONS = 24, 4, 2


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(scheduling, "PORTION", PORTION)
    monkeypatch.setattr(reconcile, "MOST_PORTIONS", PORTIONS)
    fleet = Fleet()
    fleet.enrol_set(2)
    due = fleet.now + seconds(900)
    ids = [f"BAC10600-0000-4000-8000-{number:012}" for number in range(EVENTS)]
    fleet.all_say(*(listing(event_id, not_before=due) for event_id in ids))
    calm(fleet)
    return fleet


def calm(fleet: Fleet) -> None:
    """Tick until the news is gone through."""
    for _ in range(EVENTS // PORTION):
        if fleet.advance().looked_at < PORTION * PORTIONS:
            return


def test_an_order_that_is_overdue_is_given_to_the_next_machine_by_the_first_tick(fleet: Fleet) -> None:
    last = ScheduledEvent.objects.order_by("-pk")[0]
    approval = fleet.approve(last.event_id, overrides={"other-event": "all the same"})
    calm(fleet)
    first = open_order(approval)
    fleet.delivered(first)
    calm(fleet)
    fleet.later(settings.ORDER_ANSWER_SECONDS + 1)
    fleet.heard()
    scheduling.make_all_due()
    did = fleet.advance()
    assert did.looked_at < PORTION * (PORTIONS + 1), "and no more"
    assert open_order(approval).machine_id != first.machine_id


def test_the_backlog_is_gone_through_tick_by_tick(fleet: Fleet) -> None:
    scheduling.make_all_due()
    looked = [fleet.advance().looked_at for _ in range(EVENTS // (PORTION * PORTIONS))]
    assert looked == [PORTION * PORTIONS] * len(looked)
    assert fleet.advance().looked_at == 0
