"""Green states that events would be observed and approvals sent: on the empty queue and in the status bar."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client

from fleet.dashboard.status_bar import StatusBarCache
from fleet.domain.blind_spots import RANKS
from fleet.domain.states import Presence
from fleet.models import AvailabilitySet, InventoryMachine, LastRun, Machine, SetBlindSpot
from fleet.models.facts.events import machine_presence
from fleet.operations.intake import presence
from fleet.operations.machines import decommission
from fleet.operations.policy import rules
from fleet.operations.sets import coverage as keeping
from fleet.projections import blind_spots
from fleet.projections.counts import counts
from fleet.projections.desk.status_bar import overview
from fleet.projections.refs import count_presence
from tests import factories
from tests.dashboard.conftest import codes, text_of
from tests.factories import Fleet, announced
from tests.rows import MachineFactory, SetFactory


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


# Blind spots page: its length is the same for ten gaps and thousands, and it states their number.


def test_blind_spots_of_every_set_are_grouped_by_kind_with_a_few_rows(fleet: Fleet, operator: Client) -> None:
    for number in range(30):
        fleet.enrol(f"vm{number}", availability_set=f"set-{number:02d}")
    keeping.renew_all(now=fleet.now)
    Machine.objects.update(agent_version="0.0.1")
    keeping.renew_all(now=fleet.now)
    found = blind_spots.overview(now=fleet.now)
    group = next(group for group in found.groups if group.code == "agent-too-old")
    assert (group.count, len(group.rows), group.more) == (30, 6, 24)
    page = operator.get("/blind-spots/")
    # One closed line for each kind, with the number of places and machines, and the advice once.
    lines = re.findall(r"<details class=\"spot-kind\" (.*?)</summary>", page.content.decode(), re.DOTALL)
    assert len(lines) == len(found.groups)
    (line,) = [line for line in lines if 'data-key="kind-agent-too-old"' in line]
    assert "<b>30</b>" in line and "and 27 more" in line
    assert codes(page).count("agent-too-old.advice") == 1
    said = text_of(page)
    assert ("30" in said, "set-05" in said, "set-06" in said) == (True, True, False)
    assert "set-29" in text_of(operator.get("/blind-spots/?kind=agent-too-old"))
    assert "set-" not in text_of(operator.get("/blind-spots/?kind=no-agent"))


def test_a_set_of_very_many_machines_names_the_first_and_counts_all(fleet: Fleet, operator: Client) -> None:
    fleet.enrol_set(3)
    home = AvailabilitySet.objects.get()
    fleet.advance()
    row = SetBlindSpot.objects.create(
        availability_set=home, rank=RANKS["agent-silent"], code="agent-silent", set_name=home.name,
        certainty="certain", count=10_000,
        machine_ids=list(range(1, 10_001)), names=[f"vm{number:05d}" for number in range(10_000)],
    )  # fmt: skip
    found = blind_spots.overview(now=fleet.now).spots[0]
    assert (found.code, found.count, len(found.names), len(found.machines)) == (row.code, 10_000, 500, 500)
    page = operator.get("/blind-spots/")
    assert "vm09000" not in text_of(page)
    assert len(page.content) < 50_000
    assert counts(now=fleet.now)[0].live == 3


# The overview counts in the database what `machine_presence` judges one by one.


AGES = [None, 0, 59, 60, 61, 599, 600, 601, 86399, 86400, 86401, 200000]


def test_the_overview_agrees_with_the_rule_at_every_edge(fleet: factories.Fleet) -> None:
    now, homes = fleet.now, SetFactory.create_batch(7)

    def ago(age: int | None) -> datetime | None:
        return None if age is None else now - timedelta(seconds=age)

    for number, (heard, polled) in enumerate(product(AGES, AGES), 1):
        if number in (13, 14):
            machine = fleet.enrol(f"m{number}", heard=False).machine
        else:
            machine = MachineFactory(availability_set=homes[number % 7])
        if heard_at := ago(heard):
            presence.flush(contacts=[presence.Contact(machine.pk, heard_at, ago(polled))])
    decommission.revoke(machine_id=fleet.agents["m14"].machine.pk, actor=factories.acting(factories.admin()), now=now)
    # A document counts as a good poll before the presence map is flushed.
    fleet.say("m13", at=now)
    machines = Machine.objects.select_related("presence", "latest_document")
    judged = count_presence([machine_presence(machine, now=now) for machine in machines])
    assert overview(now=now).presence == judged
    assert all(getattr(judged, state.value) > 0 for state in Presence)
