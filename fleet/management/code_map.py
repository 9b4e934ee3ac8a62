"""The map of the code: every module with the first sentence of its docstring, by room, then by what has no room."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS: tuple[str, ...] = ("intake", "machines", "sets", "events", "approvals", "orders", "policy", "waves", "drills")
ROOMS += ("caches", "blind_spots", "timeline", "people", "desk")
# Within a room in this order: what judges first, what shows last.
FLOORS = ("domain", "models", "operations", "projections", "wording", "api", "dashboard")
# What an edge calls a room's part, where it is not the room's own name.
ALIASES = {"audit": "timeline", "rules": "policy", "windows": "policy", "inventory": "machines", "login": "people"}
ALIASES |= {"claims": "approvals", "bulk": "approvals", "decisions": "approvals", "search": "desk", "fleet": "desk"}
ALIASES |= {"first_steps": "desk", "sign_on": "people"}
FIRST_SENTENCE = re.compile(r"(.+?[.?])(?:\s|$)", re.DOTALL)


def code_map() -> str:
    """The map as a list for each room and each package."""
    found: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for path in _modules():
        shown = path.relative_to(ROOT).as_posix()
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        sentence = FIRST_SENTENCE.match(said)
        if sentence:
            floor, heading = _place(path.relative_to(ROOT).parts)
            found[heading].append((floor, shown, " ".join(sentence.group(1).split())))
    headings = [*ROOMS, *sorted(set(found) - set(ROOMS))]
    return "\n\n".join(
        f"## {heading}\n\n" + "\n".join(f"- `{shown}`: {said}" for _, shown, said in sorted(found[heading]))
        for heading in headings
    )


def _modules() -> Iterator[Path]:
    for folder in ("fleet", "agents"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if "migrations" not in path.parts)


def _place(parts: tuple[str, ...]) -> tuple[int, str]:
    """The floor's place in the order, and the heading: a room, or the package that holds the file."""
    names = [part.removesuffix(".py") for part in parts]
    if names[0] == "fleet" and names[1] in FLOORS:
        room = next((ALIASES.get(name, name) for name in names[2:] if ALIASES.get(name, name) in ROOMS), None)
        if room:
            return FLOORS.index(names[1]), room
    return 0, "/".join(names[:2] if len(names) > 2 else names[:1])
