"""Green says that somebody would have seen it: with no witness, or nobody who looks, an empty page says so instead."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.models import InventoryMachine
from tests.dashboard.conftest import text_of
from tests.factories import Fleet

CALM = "Nothing needs a decision"


def queue(client: Client) -> tuple[str, bool]:
    """The text of the queue, and whether anything in it is green."""
    answer = client.get("/?part=queue", headers={"HX-Request": "true"})
    return text_of(answer), "tone-text-good" in answer.content.decode()


@pytest.fixture
def watched(fleet: Fleet) -> Fleet:
    """Everybody is live, and Celery has just looked."""
    fleet.enrol_set()
    fleet.all_say()
    fleet.advance()
    return fleet


def test_green_where_all_agents_are_live_and_celery_looks(watched: Fleet, operator: Client) -> None:
    said, green = queue(operator)
    assert (f"{CALM}, as far" in said, green) == (False, True)
    assert "No known blind spots" in text_of(operator.get("/blind-spots/"))


def test_an_empty_installation_is_not_green(db: Any, operator: Client) -> None:
    said, green = queue(operator)
    assert f"{CALM}, as far as anybody can see" in said
    assert "No agent has enrolled, so nothing that Azure announces is seen." in said
    assert not green
    page = operator.get("/blind-spots/")
    assert "Nobody watches yet" in text_of(page)
    assert "No known blind spots" not in text_of(page)
    assert "tone-text-good" not in page.content.decode()


@pytest.mark.parametrize(
    ("away", "sentence"),
    [
        (("vm1",), "1 agent is not live: what only they would see is missed."),
        (tuple(f"vm{number}" for number in range(1, 7)), "None of 6 agents is live"),
    ],
)
def test_agents_that_are_away(watched: Fleet, operator: Client, away: tuple[str, ...], sentence: str) -> None:
    for name in away:
        presence = watched.agents[name].machine.presence
        presence.last_heard_at -= timedelta(minutes=2)
        presence.save()
    watched.advance()
    said, green = queue(operator)
    assert sentence in said
    assert not green


def test_machines_of_the_inventory_without_an_agent(watched: Fleet, operator: Client) -> None:
    InventoryMachine.objects.create(name="vm7", imported_at=watched.now)
    said, _ = queue(operator)
    assert "1 machine of the inventory has no agent." in said
    assert f"{CALM}, as far" in said


def test_celery_is_away(watched: Fleet, operator: Client) -> None:
    watched.advance(via="ticker")
    assert "Celery is away" in queue(operator)[0]


def test_nobody_looks_for_what_is_due(fleet: Fleet, operator: Client) -> None:
    fleet.enrol_set()
    fleet.all_say()
    assert "Nobody has looked for what is due yet." in queue(operator)[0]
