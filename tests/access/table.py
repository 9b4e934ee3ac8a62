"""The committed tables: one file an area, a line for each route and method, a column for each caller."""

import csv
from functools import cache
from pathlib import Path

from tests.access.callers import COLUMNS

# Those of Django, and the gateway.
AREAS = ("admin", "api", "gateway", "pages")
FOLDER = Path(__file__).parents[2] / "docs" / "dev" / "access"
STALE = "run `make access` and review the diff of docs/dev/access"

# By area, then by route and method: the cells by column.
Rows = dict[tuple[str, str], dict[str, str]]


@cache
def read(area: str) -> Rows:
    """What is committed; nothing where there is no such file."""
    place = FOLDER / f"{area}.csv"
    if not place.exists():
        return {}
    with place.open(encoding="utf-8", newline="") as file:
        return {(line.pop("route"), line.pop("method")): dict(line) for line in csv.DictReader(file)}


def write(area: str, rows: Rows, columns: tuple[str, ...] = tuple(COLUMNS)) -> None:
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{area}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["route", "method", *columns])
        for (route, method), cells in sorted(rows.items()):
            writer.writerow([route, method, *(cells[column] for column in columns)])
