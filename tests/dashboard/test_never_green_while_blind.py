"""Green states that events would be observed and approvals sent: on the empty queue and in the status bar."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client

from fleet.dashboard.status_bar import StatusBarCache
from fleet.models import InventoryMachine, LastRun
from fleet.operations.policy import rules
from tests import factories
from tests.dashboard.conftest import codes
from tests.factories import Fleet, announced


def queue(client: Client) -> tuple[set[str], bool]:
    """What the empty queue doubts, and whether its mark is green."""
    answer = client.get("/?part=queue", headers={"HX-Request": "true"})
    mark = re.search(r'calm-block.*?class="tone-text-(\w+)"', answer.content.decode(), re.DOTALL)
    return set(codes(answer)), mark is not None and mark[1] == "good"


def status_bar(client: Client) -> tuple[list[str], int]:
    """The live agents and the states in the status bar, and how much of it is green."""
    body = client.get("/drills/").content.decode().split('<ul id="strip"')[1].split("</ul>")[0]
    live = re.findall(r"<b>(\d+)[^<]*?(\d+)</b>", body)[0]
    return ["/".join(live), *re.findall(r'data-state="([^"]*)"', body)], body.count("tone-text-good")


@pytest.fixture
def watched(fleet: Fleet) -> Fleet:
    """All agents are live, and Celery has just reconciled."""
    fleet.enrol_set()
    fleet.all_say()
    fleet.advance()
    return fleet


def test_green_where_all_agents_are_live_and_celery_reconciles(watched: Fleet, operator: Client) -> None:
    assert queue(operator) == (set(), True)
    assert status_bar(operator) == (["6/6", "none", "works", "nobody"], 3)
    assert "tone-text-good" in operator.get("/blind-spots/").content.decode()


def test_an_empty_installation_is_not_green(fleet: Fleet, operator: Client) -> None:
    found, green = queue(operator)
    assert ("no-agents" in found, green) == (True, False)
    assert status_bar(operator) == (["0/0", "nobody", "stands_still", "nobody"], 0)
    assert "tone-text-good" not in operator.get("/blind-spots/").content.decode()
    # Nor is one in which no process has reconciled yet.
    fleet.enrol_set()
    fleet.all_say()
    assert "nobody-reconciles" in queue(operator)[0]


def silent(*names: str) -> Callable[[Fleet], None]:
    def away(fleet: Fleet) -> None:
        for name in names:
            presence = fleet.agents[name].machine.presence
            presence.last_heard_at -= timedelta(minutes=2)
            presence.save()
        fleet.advance()

    return away


def without_agent(fleet: Fleet) -> None:
    InventoryMachine.objects.create(name="vm7", imported_at=fleet.now)


def without_reconciling(fleet: Fleet) -> None:
    LastRun.objects.update(ran_at=fleet.now - timedelta(minutes=1))
    # Sealing runs separately, and shows nothing about the relay.
    LastRun.objects.update_or_create(name="seal", defaults={"ran_at": fleet.now, "via": "beat"})


@pytest.mark.parametrize(
    ("happens", "doubt", "shown"),
    [
        (silent("vm1"), "agents-missing", ["5/6", "some", "works", "nobody"]),
        (silent(*(f"vm{number}" for number in range(1, 7))), "no-live-agents", None),
        (without_agent, "machines-without-agents", ["6/7", "some", "works", "nobody"]),
        (lambda fleet: fleet.advance(via="ticker"), "celery-is-away", ["6/6", "none", "without_celery", "nobody"]),
        (without_reconciling, "nobody-reconciles", ["6/6", "none", "stands_still", "nobody"]),
    ],
)
def test_what_is_missing_takes_the_green_away(
    watched: Fleet, operator: Client, happens: Callable[[Fleet], None], doubt: str, shown: list[str] | None
) -> None:
    happens(watched)
    found, green = queue(operator)
    assert (doubt in found, green) == (True, False)
    states, count = status_bar(operator)
    assert count == 0
    assert shown in (None, states)


def test_the_status_bar_shows_the_stop_and_what_waits_longest(fleet: Fleet, operator: Client) -> None:
    event = announced(fleet)
    rules.stop_all(actor=factories.acting(factories.admin()).because("drill"), now=fleet.now)
    assert "stopped" in status_bar(operator)[0]
    assert f'href="/events/{event.event_id}/"' in operator.get("/drills/").content.decode().split('id="strip"')[1]
    # The badge and the bar are requested together.
    body = operator.get("/pulse/").content.decode()
    assert body.index('id="pulse"') < body.index('id="strip"')


def test_it_is_counted_once_for_all_readers_and_never_waits_for_the_blind_spots(
    watched: Fleet, settings: Any, django_assert_num_queries: Any
) -> None:
    settings.STATUS_BAR_CACHE_SECONDS = 5
    later: list[Callable[[], None]] = []
    cached = StatusBarCache(run=later.append)
    with django_assert_num_queries(12):
        first = cached.at(watched.now)
    assert (first.blind_spots, len(later)) == (None, 1)
    assert 'data-state="looking"' in render_to_string("desk/strip.html", {"strip": first})
    with django_assert_num_queries(16):
        later.pop()()
    with django_assert_num_queries(0):
        assert cached.at(watched.now + timedelta(seconds=4)) is first
    with django_assert_num_queries(12):
        assert cached.at(watched.now + timedelta(seconds=6)).blind_spots == 0
    # One looks at a time.
    cached.at(watched.now + timedelta(hours=1))
    cached.at(watched.now + timedelta(hours=2))
    assert len(later) == 1
