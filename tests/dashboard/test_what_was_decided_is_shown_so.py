"""What somebody has decided is shown so: while it can be undone, once it is undone, on its way, and left to Azure."""

from __future__ import annotations

from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.operations.approvals.conditions import withdraw
from fleet.projections.events.detail import event_detail
from fleet.wording.card import card_words
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import acts, states
from tests.factories import Fleet


def test_while_it_can_be_undone_nobody_is_said_not_to_act_and_undone_it_says_when(
    fleet: Fleet, operator: Client, settings: object
) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3.0  # type: ignore[attr-defined]
    factories.announced(fleet)
    approval = fleet.approve(factories.EVENT, when=When.UNDO)
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert card_words(detail.card, API).nobody == ""
    fleet.later(2)
    withdraw(approval_id=approval.pk, actor=factories.acting(factories.operator(), why=""), now=fleet.now)
    shown = operator.get(f"/events/{factories.EVENT}/")
    assert "WITHDRAWN" in states(shown) and "approve" in acts(shown)


def test_what_was_decided_is_no_longer_up_to_somebody(fleet: Fleet) -> None:
    factories.announced(fleet)
    fleet.approve(factories.EVENT)
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert card_words(detail.card, API).nobody.startswith("Azure starts it any time after")
