"""A strip in the head of every page: agents live of expected, what waits longest, blind spots, the relay.

Green says that somebody would have seen it, and that an approval would go.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client

from fleet.dashboard.status_bar import Kept
from fleet.models import InventoryMachine, LastRun
from fleet.operations.policy import rules
from tests import factories
from tests.dashboard.conftest import codes
from tests.factories import Fleet, announced


def strip(client: Client, path: str = "/drills/") -> tuple[list[str], int]:
    """The live agents and the states in the strip of a page, and how much of it is green."""
    body = client.get(path).content.decode().split('<ul id="strip"')[1].split("</ul>")[0]
    live = re.findall(r"<b>(\d+)[^<]*?(\d+)</b>", body)[0]
    return ["/".join(live), *re.findall(r'data-state="([^"]*)"', body)], body.count("tone-text-good")


@pytest.fixture
def watched(fleet: Fleet) -> Fleet:
    fleet.enrol_set()
    fleet.all_say()
    fleet.advance()
    return fleet


def test_all_is_well(watched: Fleet, operator: Client) -> None:
    assert strip(operator) == (["6/6", "none", "works", "nobody"], 3)


def test_an_empty_installation_is_not_green(db: Any, operator: Client) -> None:
    assert strip(operator) == (["0/0", "nobody", "stands_still", "nobody"], 0)


def test_one_agent_that_is_away_takes_the_green_from_everything(watched: Fleet, operator: Client) -> None:
    presence = watched.agents["vm1"].machine.presence
    presence.last_heard_at = watched.now - timedelta(minutes=2)
    presence.save()
    watched.advance()
    assert strip(operator) == (["5/6", "some", "works", "nobody"], 0)


def test_machines_of_an_inventory_without_agents_are_expected(watched: Fleet, operator: Client) -> None:
    InventoryMachine.objects.create(name="vm7", imported_at=watched.now)
    assert (strip(operator)[0][0], strip(operator)[1]) == ("6/7", 0)


def test_without_celery_and_with_nobody_who_looks_nothing_is_green(watched: Fleet, operator: Client) -> None:
    watched.advance(via="ticker")
    said, green = strip(operator)
    assert ("without_celery" in said, green) == (True, 0)
    LastRun.objects.update(ran_at=watched.now - timedelta(minutes=1))
    # Sealing goes on by itself, and says nothing of the relay.
    LastRun.objects.update_or_create(name="seal", defaults={"ran_at": watched.now, "via": "beat"})
    said, green = strip(operator)
    assert ("stands_still" in said, green) == (True, 0)
    assert "nobody-reconciles" in codes(operator.get("/"))


def test_a_stop_of_all_approvals_stands_in_it(watched: Fleet, operator: Client) -> None:
    rules.stop_all(actor=factories.acting(factories.admin()).because("drill"), now=watched.now)
    assert "stopped" in strip(operator)[0]


def test_what_waits_longest_leads_to_its_event(fleet: Fleet, operator: Client) -> None:
    event = announced(fleet)
    assert f'href="/events/{event.event_id}/"' in operator.get("/drills/").content.decode().split('id="strip"')[1]


def test_the_head_is_asked_for_alone_and_brings_both(watched: Fleet, operator: Client) -> None:
    body = operator.get("/pulse/").content.decode()
    assert body.index('id="pulse"') < body.index('id="strip"')


def test_it_is_counted_once_for_all_readers_and_nobody_waits_for_the_blind_spots(
    watched: Fleet, settings: Any, django_assert_num_queries: Any
) -> None:
    settings.STATUS_BAR_CACHE_SECONDS = 5
    later: list[Callable[[], None]] = []
    kept = Kept(beside=later.append)
    with django_assert_num_queries(12):
        first = kept.at(watched.now)
    assert (first.blind_spots, len(later)) == (None, 1)
    assert 'data-state="looking"' in render_to_string("desk/strip.html", {"strip": first})
    with django_assert_num_queries(16):
        later.pop()()
    with django_assert_num_queries(0):
        assert kept.at(watched.now + timedelta(seconds=4)) is first
    with django_assert_num_queries(12):
        assert kept.at(watched.now + timedelta(seconds=6)).blind_spots == 0
    # One looks at a time.
    kept.at(watched.now + timedelta(hours=1))
    kept.at(watched.now + timedelta(hours=2))
    assert len(later) == 1
