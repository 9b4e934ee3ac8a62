"""Bulk approvals: they are dispatched together, and a locked event does not delay the others."""

from collections.abc import Iterable
from typing import Any

import pytest
from django.db import transaction

from fleet.models import Approval, ScheduledEvent
from fleet.operations import reconcile, wake_up
from fleet.operations.locks import short_lock_timeout
from fleet.operations.orders import advance
from fleet.relay import counts
from tests import factories
from tests.factories import Fleet, approved_apart
from tests.holding import held
from tests.plans import queries

pytestmark = pytest.mark.django_db(transaction=True)
IDS = [f"0A1B2C3D-0000-4000-8000-0000000001{number:02d}" for number in range(6)]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.operations.wake_up.hint_approval", lambda *_: None)


def states() -> list[str]:
    return list(Approval.objects.order_by("pk").values_list("state", flat=True))


def test_several_cost_no_more_than_two(fleet: Fleet) -> None:
    rows = [row.pk for row in approved_apart(fleet, IDS)]
    two, four = (
        len(queries(reconcile.advance_new_approvals, some, now=fleet.now, via="celery"))
        for some in (rows[:2], rows[2:])
    )
    assert states() == ["RELAYING"] * 6
    assert four == two


def test_locked_event_is_left_to_the_tick(fleet: Fleet) -> None:
    rows = approved_apart(fleet, IDS)
    with held(ScheduledEvent.objects.get(event_id=IDS[0])):
        reconcile.advance_new_approvals([row.pk for row in rows], now=fleet.now, via="celery")
    assert states() == ["GRANTED", *["RELAYING"] * 5]
    fleet.advance()
    assert states() == ["RELAYING"] * 6


def test_one_that_is_odd_stops_no_other_and_each_has_its_line(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    rows = approved_apart(fleet, IDS)
    together = advance.advance_approvals

    def odd(approval_ids: list[int], **rest: Any) -> set[int]:
        if rows[2].pk in approval_ids:
            raise ValueError("odd")
        return together(approval_ids, **rest)

    monkeypatch.setattr(advance, "advance_approvals", odd)
    said: list[str] = []
    monkeypatch.setattr(counts.log, "info", lambda line, **words: said.append(words["request_id"]))
    with counts.each([{"request_id": row.request_id} for row in rows], task="relay_approvals"):
        reconcile.advance_new_approvals([row.pk for row in rows], now=fleet.now, via="celery")
    assert states() == ["RELAYING"] * 2 + ["GRANTED"] + ["RELAYING"] * 3
    assert said == [row.request_id for row in rows]
    fleet.advance()
    assert states() == ["RELAYING"] * 6


def test_the_machine_is_woken_at_once_and_the_tick_does_the_rest(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    event = factories.announced(fleet)
    approval = fleet.approve()
    woken: list[int] = []

    def wake(machine_ids: Iterable[int], *, via: str) -> bool:
        woken.extend(machine_ids)
        return via == "celery"

    monkeypatch.setattr(wake_up, "wake_machines", wake)
    with held(ScheduledEvent.objects.get(pk=event.pk)), transaction.atomic(), short_lock_timeout():
        reconcile.advance_new_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    assert woken == [approval.orders.get().machine_id]
    assert Approval.objects.get(pk=approval.pk).state == "GRANTED"
    fleet.advance()
    assert Approval.objects.get(pk=approval.pk).state == "RELAYING"
