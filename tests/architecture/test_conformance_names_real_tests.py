"""`docs/dev/conformance.md` names a test for each statement; `test_pages_name_what_is_there.py` finds them all."""

import re

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "dev" / "conformance.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(text: str) -> list[str]:
    """The lines of tables, without their heads and rules."""
    lines = text.splitlines()
    return [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not line.startswith("|---") and not after.startswith("|---")
    ]


def test_every_statement_names_a_test() -> None:
    stated = rows(PAGE.read_text(encoding="utf-8"))
    assert len(stated) > 60
    assert [line for line in stated if not NAMED.search(line.rpartition(" | ")[2])] == []
