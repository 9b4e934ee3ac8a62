"""Approvals: an event is approved only in time, and only once."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from fleet.models import Approval, Entry, ScheduledEvent
from tests.approvals.asking import refused
from tests.factories import NOW, Fleet, announced, listing, open_order, seconds

pytestmark = pytest.mark.django_db


def test_the_grant_writes_the_approval_the_first_order_and_both_entries(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = fleet.approve(comment="before the shift ends")
    order = open_order(approval)
    assert (approval.state, approval.comment, approval.event_version) == ("GRANTED", "before the shift ends", 1)
    assert (order.state, order.machine.resource_name, order.expires_at) == ("OFFERED", "vm1", event.not_before)
    kinds = set(Entry.objects.filter(approval=approval).values_list("kind", flat=True))
    assert kinds == {"approval_granted", "order_offered"}


@pytest.mark.parametrize(
    ("event", "later", "code", "reason"),
    [
        ({"not_before": NOW + seconds(30)}, 31, "too-late", "too-late"),
        ({"status": "Started"}, 1, "too-late", "event-not-open"),
        ({}, 90, "guarded", "no-live-machine"),
    ],
)
def test_an_event_that_cannot_be_approved_is_refused(
    fleet: Fleet, event: dict[str, Any], later: int, code: str, reason: str
) -> None:
    announced(fleet, **event)
    fleet.later(later)
    error = refused(fleet.approve)
    assert (error.code, error.reason.code) == (code, reason)
    assert refused(lambda: fleet.approve("NO-SUCH-EVENT")).code == "unknown-event"


def test_an_event_that_changed_since_one_looked_is_refused_with_its_new_version(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(1)
    fleet.all_say(listing(resources=["vm1", "vm2", "vm3"]))
    error = refused(lambda: fleet.approve(expected_version=1))
    assert (error.code, error.details["version"]) == ("version-changed", 2)


def test_the_database_itself_holds_one_live_approval_and_one_open_order(fleet: Fleet, approval: Approval) -> None:
    order = open_order(approval)
    # The same order and approval once more.
    with pytest.raises(IntegrityError, match="one_open_order_per_approval"), transaction.atomic():
        order.pk = uuid4()
        order.save(force_insert=True)
    with pytest.raises(IntegrityError, match="one_live_approval_per_event"), transaction.atomic():
        approval.pk = None
        approval.save(force_insert=True)
