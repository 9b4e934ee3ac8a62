"""The gateway's own routes, for every caller: a real gateway answers what `docs/dev/access/gateway.csv` states."""

from __future__ import annotations

import pytest

from tests.access import table
from tests.gateway.access_calls import COLUMNS, Door, calls
from tests.gateway_process import Gateway

pytestmark = [pytest.mark.flow]


def test_the_table_has_every_route_of_the_gateway_and_no_other() -> None:
    assert set(table.read("gateway")) == set(calls()), table.STALE


def test_the_gateway_answers_each_caller_as_its_table_says(gateway: Gateway) -> None:
    door = Door(gateway)
    wrong = []
    for call, cells in table.read("gateway").items():
        assert tuple(cells) == tuple(COLUMNS), table.STALE
        found = {column: door.cell(*call, column) for column in cells}
        wrong += [
            f"{call} for {name}: {found[name]}, not {cells[name]}" for name in cells if found[name] != cells[name]
        ]
    assert wrong == [], table.STALE
