"""The two walks of `docs/dev/architecture.md`. Each file leads to the next: by an import, or by a name that both hold.

A step is one item of a numbered list, "1. `path`: what happens there." Where no import joins it to the next one, it
ends with "→ `name`": a path, a table, a Celery task or a wake-up that both files hold.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.architecture.sources import AGENTS, ROOT, imports, module_name

PAGE = ROOT / "docs" / "dev" / "architecture.md"
WALKS = ("One document, from the poll to the painted row", "One approval, from the click to Azure and back")
MOST_FILES = 14
STEP = re.compile(r"\d+\. `([^`]+)`: .+?(?: → `([^`]+)`)?")


@dataclass(frozen=True, slots=True)
class Step:
    """A file by its path below the repository; `seam` joins it to the next, empty where an import does."""

    file: str
    seam: str


def walk(text: str, title: str) -> list[Step]:
    """The steps below this heading."""
    part = re.split(r"^#+ ", text.partition(f"### {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    items = re.findall(r"^\d+\. .+(?:\n +.+)*", part, flags=re.MULTILINE)
    found = [STEP.fullmatch(" ".join(item.split())) for item in items]
    assert None not in found, items
    return [Step(match[1], match[2] or "") for match in found if match]


def imported(path: Path) -> set[str]:
    """Full names of what a Python file imports; nothing for other files."""
    if path.suffix != ".py":
        return set()
    return {item.module for item in imports(path)}


def joined_by_import(one: Path, other: Path) -> bool:
    names = [module_name(path, AGENTS if path.is_relative_to(AGENTS) else ROOT) for path in (one, other)]
    return names[1] in imported(one) or names[0] in imported(other)


def holds(file: str, name: str) -> bool:
    """Whether the file holds the name as a whole: `Entry` is not in `FeedEntry`."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", (ROOT / file).read_text(encoding="utf-8")) is not None


def broken(steps: list[Step]) -> list[str]:
    """What is wrong with a walk, in sentences."""
    wrong = [f"{step.file} does not exist" for step in steps if not (ROOT / step.file).is_file()]
    if wrong:
        return wrong
    if len(steps) > MOST_FILES:
        wrong.append(f"{len(steps)} files")
    for one, other in pairwise(steps):
        if one.seam:
            wrong += [
                f"{step.file} does not hold {one.seam}" for step in (one, other) if not holds(step.file, one.seam)
            ]
        elif not joined_by_import(ROOT / one.file, ROOT / other.file):
            wrong.append(f"nothing joins {one.file} to {other.file}")
    return wrong


@pytest.mark.parametrize("title", WALKS)
def test_each_step_leads_to_the_next(title: str) -> None:
    steps = walk(PAGE.read_text(encoding="utf-8"), title)
    assert len(steps) >= 10
    assert broken(steps) == []


def test_a_walk_that_does_not_hold_together_is_seen() -> None:
    text = """### A walk

1. `fleet/urls.py`: names the pages.
2. `fleet/asgi.py`: is not joined
   to them. → `no such name`
3. `fleet/apps.py`: comes last.

### Another

1. `fleet/gone.py`: is gone.
"""
    steps = walk(text, "A walk")
    assert steps == [Step("fleet/urls.py", ""), Step("fleet/asgi.py", "no such name"), Step("fleet/apps.py", "")]
    assert broken(steps) == [
        "nothing joins fleet/urls.py to fleet/asgi.py",
        "fleet/asgi.py does not hold no such name",
        "fleet/apps.py does not hold no such name",
    ]
    assert broken(walk(text, "Another")) == ["fleet/gone.py does not exist"]
    assert broken([Step("fleet/asgi.py", "fleet")] * 15) == ["15 files"]
