"""A granted approval wakes its machine though the event is being written of, as it is all the time in a storm."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from django.db import transaction

from fleet.models import Approval, ScheduledEvent
from fleet.operations import reconcile, wake_up
from fleet.operations.locks import short_lock_timeout
from tests import factories
from tests.factories import Fleet
from tests.holding import held

pytestmark = pytest.mark.django_db(transaction=True)


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
