"""What stays up is what is up: machines that another event has taken are not counted; and what is open has a name."""

from __future__ import annotations

from django.test import Client

from fleet.operations.approvals import claims
from fleet.projections.desk import queue
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


def test_before_starting_it_is_said_how_long_it_can_be_undone(fleet: Fleet, operator: Client, settings: object) -> None:
    factories.announced(fleet)
    settings.UNDO_SECONDS = 3.0  # type: ignore[attr-defined]
    assert "You have 3 seconds to undo it" in text_of(operator.get(f"/events/{factories.EVENT}/"))
    settings.UNDO_SECONDS = 0.0  # type: ignore[attr-defined]
    assert "to undo it" not in text_of(operator.get(f"/events/{factories.EVENT}/"))
