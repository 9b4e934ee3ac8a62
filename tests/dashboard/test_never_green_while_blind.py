"""Green says that somebody would have seen it: with no witness, or nobody who looks, an empty page says so instead."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from fleet.models import InventoryMachine
from tests.dashboard.conftest import codes
from tests.factories import Fleet


def queue(client: Client) -> tuple[set[str], bool]:
    """What the empty queue doubts, and whether its mark is green."""
    answer = client.get("/?part=queue", headers={"HX-Request": "true"})
    mark = re.search(r'calm-block.*?class="tone-text-(\w+)"', answer.content.decode(), re.DOTALL)
    return set(codes(answer)), mark is not None and mark[1] == "good"


@pytest.fixture
def watched(fleet: Fleet) -> Fleet:
    """Everybody is live, and Celery has just looked."""
    fleet.enrol_set()
    fleet.all_say()
    fleet.advance()
    return fleet


def test_green_where_all_agents_are_live_and_celery_looks(watched: Fleet, operator: Client) -> None:
    assert queue(operator) == (set(), True)
    assert "tone-text-good" in operator.get("/blind-spots/").content.decode()


def test_an_empty_installation_is_not_green(fleet: Fleet, operator: Client) -> None:
    found, green = queue(operator)
    assert ("no-agents" in found, green) == (True, False)
    assert "tone-text-good" not in operator.get("/blind-spots/").content.decode()
    # Nor is one where nobody has looked for what is due yet.
    fleet.enrol_set()
    fleet.all_say()
    assert "nobody-reconciles" in queue(operator)[0]


def without(*names: str) -> Callable[[Fleet], None]:
    def away(fleet: Fleet) -> None:
        for name in names:
            presence = fleet.agents[name].machine.presence
            presence.last_heard_at -= timedelta(minutes=2)
            presence.save()
        fleet.advance()

    return away


def without_agent(fleet: Fleet) -> None:
    InventoryMachine.objects.create(name="vm7", imported_at=fleet.now)


@pytest.mark.parametrize(
    ("happens", "doubt"),
    [
        (without("vm1"), "agents-missing"),
        (without(*(f"vm{number}" for number in range(1, 7))), "no-live-agents"),
        (without_agent, "machines-without-agents"),
        (lambda fleet: fleet.advance(via="ticker"), "celery-is-away"),
    ],
)
def test_what_is_missing_takes_the_green_away(
    watched: Fleet, operator: Client, happens: Callable[[Fleet], None], doubt: str
) -> None:
    happens(watched)
    found, green = queue(operator)
    assert (doubt in found, green) == (True, False)
