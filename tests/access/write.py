"""Writes the tables of `docs/dev/access` as everything answers now; `make access` runs it. With `NEW=1` it calls those
routes only that no table has yet, and for callers that no table has all of them.
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
        known = {method for pattern, method in stated if pattern == route.pattern}
        for method in known or route.methods:
            cells = stated.get((route.pattern, method), {})
            found = cells | matrix.row(route, method, [column for column in COLUMNS if column not in cells])
            if set(found.values()) != {"-"}:
                rows[route.pattern, method] = found
    table.write(area, rows)
