"""Printed part of `docs/dev/access.md`: how often each caller is admitted, and the reasons for open routes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.access import table
from tests.access.callers import COLUMNS
from tests.access.calls import WORDS
from tests.access.reasons import ABOUT_ONESELF, ANYBODY, OWN_RULES, PUBLIC
from tests.gateway.door import COLUMNS as AT_THE_GATEWAY

PLACE = Path(__file__).parents[2] / "docs" / "dev" / "access.md"


def lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def call(method: str, route: str) -> str:
    shown = f"{method} {route if route.startswith('/') else '/' + route}".replace("|", "\\|")
    return f"`{shown}`"


def reasons(named: dict[tuple[str, str], str]) -> str:
    """Calls with the same reason stand together."""
    together: dict[str, list[str]] = {}
    for (method, route), why in named.items():
        together.setdefault(why, []).append(call(method, route))
    return lines(["call", "why"], [["<br>".join(calls), why] for why, calls in together.items()])


def counted() -> str:
    """For each caller, how many calls of Django's tables come to what."""
    count = {column: Counter[str]() for column in COLUMNS}
    for area in table.AREAS[:]:
        if area != "gateway":
            for cells in table.read(area).values():
                for column, word in cells.items():
                    count[column][word] += 1
    head = ["caller", "who that is", *(f"`{word}`" for word in WORDS)]
    rows = [[f"`{name}`", who, *(str(count[name][word] or "") for word in WORDS)] for name, who in COLUMNS.items()]
    return lines(head, rows)


def gateway() -> str:
    rows = [[f"`{name}`", who] for name, who in AT_THE_GATEWAY.items()]
    return lines(["caller at the gateway", "who that is"], rows)


PARTS = {
    "words": lambda: lines(["cell", "what it means"], [[f"`{word}`", said] for word, said in WORDS.items()]),
    "callers": counted,
    "gateway": gateway,
    "public": lambda: reasons(PUBLIC),
    "own": lambda: reasons(ABOUT_ONESELF),
    "harmless": lambda: reasons(ANYBODY),
    "kinds": lambda: lines(
        ["caller", "call", "why"],
        [[f"`{column}`", call(method, route), why] for (column, method, route), why in OWN_RULES.items()],
    ),
}


def text() -> str:
    """The page with its parts as they are now."""
    found = PLACE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        begin, end = f"<!-- begin access: {name} -->", f"<!-- end access: {name} -->"
        assert found.count(begin) == found.count(end) == 1, name
        found = re.sub(f"{begin}.*?{end}", lambda _, b=begin, e=end, p=part: f"{b}\n{p()}\n{e}", found, flags=re.DOTALL)
    return found
