"""Printed part of `docs/dev/access.md`: how often each caller is admitted, and the reasons for open routes."""

import re
from pathlib import Path

from tests.access.callers import COLUMNS
from tests.access.calls import WORDS
from tests.access.reasons import ABOUT_ONESELF, EVERY_USER, OWN_RULES, PUBLIC
from tests.gateway.access_calls import COLUMNS as AT_THE_GATEWAY

PLACE = Path(__file__).parents[2] / "docs" / "dev" / "access.md"


def lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def call(method: str, route: str) -> str:
    shown = f"{method} {route if route.startswith('/') else '/' + route}".replace("|", "\\|")
    return f"`{shown}`"


def reasons(named: dict[tuple[str, str], str]) -> str:
    """Return a table of calls, with one row for each reason."""
    together: dict[str, list[str]] = {}
    for (method, route), why in named.items():
        together.setdefault(why, []).append(call(method, route))
    return lines(["call", "why"], [["<br>".join(calls), why] for why, calls in together.items()])


def kinds() -> str:
    """Sign-in methods with rules of their own, with a heading; empty without any."""
    rows = [[f"`{column}`", call(method, route), why] for (column, method, route), why in OWN_RULES.items()]
    return f"## Special rules for sign-in methods\n\n{lines(['caller', 'call', 'why'], rows)}" if rows else ""


PARTS = {
    "words": lambda: lines(["cell", "what it means"], [[f"`{word}`", meaning] for word, meaning in WORDS.items()]),
    "callers": lambda: lines(
        ["caller", "description"],
        [[f"`{name}`", description] for name, description in {**AT_THE_GATEWAY, **COLUMNS}.items()],
    ),
    "public": lambda: reasons(PUBLIC),
    "own": lambda: reasons(ABOUT_ONESELF),
    "harmless": lambda: reasons(EVERY_USER),
    "kinds": kinds,
}


def text() -> str:
    """The page with its parts as they are now."""
    found = PLACE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        begin, end = f"<!-- begin access: {name} -->", f"<!-- end access: {name} -->"
        assert found.count(begin) == found.count(end) == 1, name
        found = re.sub(f"{begin}.*?{end}", lambda _, b=begin, e=end, p=part: f"{b}\n{p()}\n{e}", found, flags=re.DOTALL)
    return found
