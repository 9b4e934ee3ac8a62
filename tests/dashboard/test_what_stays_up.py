"""What stays up is what is up: machines that another event has taken are not counted; and what is open has a name."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.operations.approvals import claims
from fleet.projections.desk import queue
from fleet.projections.events.detail import event_detail
from tests import factories
from tests.dashboard.conftest import text_of
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
    assert "4 of 6 stay up" in text_of(operator.get(f"/events/{OTHER}/"))
    # It takes nothing from itself twice.
    assert "5 of 6 stay up" in text_of(operator.get(f"/events/{factories.EVENT}/"))


def test_what_is_open_beside_it_is_named(fleet: Fleet, operator: Client) -> None:
    two_at_once(fleet)
    assert "Also open in this set: Reboot of vm1" in text_of(operator.get(f"/events/{OTHER}/"))


def test_after_leaving_it_to_azure_the_button_that_starts_it_is_folded_away(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet)
    claims.hold(
        event_id=factories.EVENT, actor=factories.acting(factories.operator(), why="backup runs"), now=fleet.now
    )
    body = operator.get(f"/events/{factories.EVENT}/").content.decode()
    assert 0 < body.index("all the same</summary>") < body.index('id="approve-now"')


@pytest.mark.parametrize(
    ("left", "kind", "offered"), [(300, "Freeze", True), (61, "Freeze", False), (50, "Preempt", False)]
)
def test_undoing_is_promised_only_where_the_backend_keeps_the_promise(
    fleet: Fleet, operator: Client, settings: object, left: int, kind: str, offered: bool
) -> None:
    settings.UNDO_SECONDS = 3.0  # type: ignore[attr-defined]
    fleet.enrol_set()
    fleet.all_say(listing(event_type=kind, resources=("vm1",), not_before=fleet.now + seconds(left)))
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert (detail.card.undo.seconds > 0) is offered
    assert detail.card.undo.in_a_hurry is not offered
    assert ("seconds to undo it" in text_of(operator.get(f"/events/{factories.EVENT}/"))) is offered
    reasons = {"lost-for-good": "gone anyway"} if kind == "Preempt" else {}
    until = detail.card.undo.offered_until
    if until is not None:
        # Any click until then can be undone, and any that takes a second on its way.
        fleet.now = until + seconds(1)
        fleet.heard()
    approval = fleet.approve(when=When.UNDO, overrides=reasons)
    assert (approval.state == "WAITING") is (left > 60)


def test_before_starting_it_is_said_how_long_it_can_be_undone(fleet: Fleet, operator: Client, settings: object) -> None:
    factories.announced(fleet)
    settings.UNDO_SECONDS = 3.0  # type: ignore[attr-defined]
    assert "You have 3 seconds to undo it" in text_of(operator.get(f"/events/{factories.EVENT}/"))
    settings.UNDO_SECONDS = 0.0  # type: ignore[attr-defined]
    assert "to undo it" not in text_of(operator.get(f"/events/{factories.EVENT}/"))
