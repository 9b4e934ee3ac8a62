"""`docs/where-to-touch.md` names the files of ten changes: each is there, and five are enough."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "where-to-touch.md"
CHANGES = 10
MOST_FILES = 5


def changes(text: str) -> dict[str, list[str]]:
    """The files of each change, by its heading."""
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: re.findall(r"^\d+\. `([^`]+)`: \w", part, flags=re.MULTILINE) for part in parts}


def test_every_change_touches_files_that_are_there_and_five_at_most() -> None:
    found = changes(PAGE.read_text(encoding="utf-8"))
    assert len(found) == CHANGES
    assert {name: len(files) for name, files in found.items() if not 0 < len(files) <= MOST_FILES} == {}
    assert [file for files in found.values() for file in files if not (ROOT / file).is_file()] == []
