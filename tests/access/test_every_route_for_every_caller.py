"""Every route, for every role, scope and kind of login: the server answers what `docs/dev/access` states.

`make access` rewrites the tables. The gateway's own routes: `tests/gateway/test_limits_and_refusals.py`.
"""

import random

import pytest

from tests.access import table
from tests.access.callers import COLUMNS
from tests.access.calls import Matrix
from tests.access.reasons import PUBLIC
from tests.access.routes import AREAS, Route, django_routes, routes_of

# Cells that `make test` samples in addition to those of the column `anonymous`; number of parts of the whole matrix.
SHARE, SEED, PARTS = 300, 1, 6
Cell = tuple[str, str, str, str]


@pytest.mark.parametrize("area", AREAS)
def test_the_tables_have_every_route_and_no_other(area: str) -> None:
    rows = table.read(area)
    assert {route for route, _ in rows} == {route.pattern for route in routes_of(area)}, table.STALE
    assert {tuple(cells) for cells in rows.values()} == {tuple(COLUMNS)}, table.STALE


def cells() -> list[Cell]:
    """Every cell as its area, route, method and column."""
    return [
        (area, route, method, column)
        for area in AREAS
        for (route, method), row in table.read(area).items()
        for column in row
    ]


def wrong(matrix: Matrix, asked: list[Cell]) -> list[str]:
    routes: dict[tuple[str, str], Route] = {(one.area, one.pattern): one for one in django_routes()}
    found = []
    for area, pattern, method, column in asked:
        stated = table.read(area)[pattern, method][column]
        said = matrix.cell(routes[area, pattern], method, column)
        found += [f"{method} {pattern} for {column}: {said}, not {stated}"] if said != stated else []
    return found


def test_tables_match_the_answers_without_login_and_for_a_sample(matrix: Matrix) -> None:
    asked = [cell for cell in cells() if cell[3] == "anonymous"]
    asked += random.Random(SEED).sample(cells(), SHARE)
    assert wrong(matrix, asked) == [], table.STALE


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_everybody_is_answered_as_the_tables_say(matrix: Matrix, part: int) -> None:
    assert wrong(matrix, cells()[part::PARTS]) == [], table.STALE


@pytest.mark.long
@pytest.mark.parametrize("area", AREAS)
def test_a_method_that_the_tables_do_not_have_does_nothing(matrix: Matrix, area: str) -> None:
    rows = table.read(area)
    for route in routes_of(area):
        known = {method for pattern, method in rows if pattern == route.pattern}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - known:
            said = {column: matrix.cell(route, method, column) for column in ("anonymous", "superuser")}
            # A page may take any method for a reading one; a call of the API takes none that it does not name.
            fine = {"-", "404", "login", "no"} | ({"yes"} if area != "api" and method not in ("GET", "POST") else set())
            assert said["superuser"] in fine, (method, route.pattern, said)
            is_open = route.pattern in {pattern for _, pattern in PUBLIC}
            assert said["anonymous"] in fine - (set() if is_open else {"yes"}), (method, route.pattern, said)
