"""What stays up is what is up: machines that another event has taken are not counted; and what is open has a name."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.projections.desk import queue
from fleet.projections.events.detail import event_detail
from tests import factories
from tests.factories import Fleet, listing, seconds

OTHER = "0A1B2C3D-0000-4000-8000-00000000000F"


def two_at_once(fleet: Fleet) -> None:
    """The reboot of vm1 goes on, and a freeze of vm2 is announced."""
    fleet.enrol_set(6)
    due = fleet.now + seconds(900)
    reboot = listing(event_type="Reboot", resources=("vm1",), status="Started")
    fleet.all_say(reboot, listing(OTHER, resources=("vm2",), not_before=due))


def test_machines_that_another_event_has_taken_do_not_stay_up(fleet: Fleet, operator: Client) -> None:
    two_at_once(fleet)
    (waiting,) = queue.decision_queue(now=fleet.now).waiting
    assert (waiting.blast.stay_up, waiting.blast.total) == (4, 6)
    # It takes nothing from itself twice.
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None and detail.blast.stay_up == 5
    # What is open beside it has a link there.
    assert f'href="/events/{factories.EVENT}/"' in operator.get(f"/events/{OTHER}/").content.decode()


@pytest.mark.parametrize(
    ("left", "kind", "offered"), [(300, "Freeze", True), (61, "Freeze", False), (50, "Preempt", False)]
)
def test_undoing_is_promised_only_where_the_backend_keeps_the_promise(
    fleet: Fleet, operator: Client, settings: object, left: int, kind: str, offered: bool
) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3.0  # type: ignore[attr-defined]
    fleet.enrol_set()
    fleet.all_say(listing(event_type=kind, resources=("vm1",), not_before=fleet.now + seconds(left)))
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert (detail.card.undo.seconds > 0) is offered
    assert detail.card.undo.in_a_hurry is not offered
    reasons = {"lost-for-good": "gone anyway"} if kind == "Preempt" else {}
    until = detail.card.undo.offered_until
    if until is not None:
        # Any click until then can be undone, and any that takes a second on its way.
        fleet.now = until + seconds(1)
        fleet.heard()
    approval = fleet.approve(when=When.UNDO, overrides=reasons)
    assert (approval.state == "WAITING") is (left > 60)
