"""Writes the tables of `docs/access` as everything answers now; `make access` runs it. With `NEW=1` it calls those
routes only that no table has yet.
"""

import os

import pytest

from tests.access import table
from tests.access.callers import COLUMNS
from tests.access.calls import Matrix
from tests.access.routes import routes_of


# The longest first.
@pytest.mark.parametrize("area", ["pages", "api", "admin"])
def test_write(matrix: Matrix, area: str) -> None:
    stated = table.read(area) if os.environ.get("NEW") else {}
    rows: table.Rows = {}
    for route in routes_of(area):
        known = {call: cells for call, cells in stated.items() if call[0] == route.pattern}
        if known and all(tuple(cells) == tuple(COLUMNS) for cells in known.values()):
            rows |= known
            continue
        for method in route.methods:
            found = matrix.row(route, method)
            if set(found.values()) != {"-"}:
                rows[route.pattern, method] = found
    table.write(area, rows)
