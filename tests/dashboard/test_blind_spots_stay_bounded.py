"""Blind spots page: its length is the same for ten gaps and thousands, and it states their number."""

import re

from django.test import Client

from fleet.domain.blind_spots import RANKS
from fleet.models import AvailabilitySet, Machine, SetBlindSpot
from fleet.operations.sets import coverage as keeping
from fleet.projections import blind_spots
from fleet.projections.counts import counts
from tests.dashboard.conftest import codes, text_of
from tests.factories import Fleet


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
