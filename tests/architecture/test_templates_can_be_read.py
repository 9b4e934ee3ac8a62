"""A template fits on a screen: no line of it is too long to be read."""

from tests.architecture.sources import ROOT, files

LONGEST = 160


def too_long(text: str) -> list[int]:
    """The numbers of the lines that are longer, from 1."""
    return [number for number, line in enumerate(text.splitlines(), 1) if len(line) > LONGEST]


def test_no_line_of_a_template_is_too_long() -> None:
    found = {path.relative_to(ROOT).as_posix(): too_long(path.read_text("utf-8")) for path in files(ROOT / "templates")}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_line_that_is_too_long_is_seen() -> None:
    assert too_long("x" * LONGEST + "\n" + "x" * (LONGEST + 1)) == [2]
