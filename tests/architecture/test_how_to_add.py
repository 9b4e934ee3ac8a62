"""`docs/dev/how-to-add.md` lists, for each kind of addition, every file in which its example occurs."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.sources import AGENTS, FLEET, ROOT, files, shown

PAGE = ROOT / "docs" / "dev" / "how-to-add.md"
FOLDERS = (FLEET, AGENTS, ROOT / "templates")
CODE = re.compile(r"`([^`]+)`")
# Numbered files of a section; those outside `FOLDERS`, such as pages and migrations, must be there.
STEP = re.compile(r"^\d+\. `([^`]+)`: \w", flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of addition: the terms of its example, the files to change, files that only use the example, and files
    named anywhere, such as its test.
    """

    title: str
    terms: tuple[str, ...]
    steps: tuple[str, ...]
    uses: tuple[str, ...]
    named: tuple[str, ...]


def sections(text: str) -> list[Section]:
    found = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        terms, uses = (tuple(CODE.findall(paragraph(body, start))) for start in ("Search for: ", "Also mentioned in: "))
        named = tuple(name for name in CODE.findall(body) if "/" in name and Path(name).suffix and " " not in name)
        found.append(Section(title, terms, tuple(STEP.findall(body)), uses, named))
    return found


def paragraph(body: str, start: str) -> str:
    """The paragraph that begins with these words; empty without one."""
    return next((each for each in body.split("\n\n") if each.lstrip("\n").startswith(start)), "")


def is_searched(path: Path) -> bool:
    """Whether the search covers a file: code, pages and styles of the product."""
    parts = path.relative_to(ROOT).parts
    return not {"migrations", "tests", "examples"} & set(parts)


def contents() -> dict[str, str]:
    found = [path for folder in FOLDERS for path in files(folder, ".py", ".html", ".js", ".css") if is_searched(path)]
    return {shown(path): path.read_text(encoding="utf-8") for path in found}


def occurrences(term: str, texts: dict[str, str]) -> set[str]:
    """The files in which a term occurs as a whole word, and those that are named like it."""
    word = re.compile(rf"(?<![\w-]){re.escape(term)}(?![\w-])")
    stem = term.strip('"')
    return {name for name, text in texts.items() if Path(name).stem == stem or word.search(text)}


def differences(section: Section, texts: dict[str, str]) -> list[str]:
    """What the lists of a section and the code do not have in common."""
    by_term = [occurrences(term, texts) for term in section.terms]
    expected, listed = set().union(*by_term), {*section.steps, *section.uses}
    return [
        *(f"{term} occurs nowhere" for term, found in zip(section.terms, by_term, strict=True) if not found),
        *(f"not listed: {name}" for name in sorted(expected - listed)),
        *(f"without the term: {name}" for name in sorted(listed - expected) if name in texts or name in section.uses),
        *(f"not there: {name}" for name in sorted({*listed, *section.named}) if not (ROOT / name).is_file()),
        *(f"listed twice: {name}" for name in sorted(set(section.steps) & set(section.uses))),
    ]


SECTIONS = sections(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_lists_every_file_in_which_the_example_occurs(section: Section) -> None:
    assert section.terms and section.steps
    assert differences(section, contents()) == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_names_a_test_and_a_command(section: Section) -> None:
    assert [name for name in section.named if name.startswith("tests/") and Path(name).name.startswith("test_")]
    body = PAGE.read_text(encoding="utf-8").partition(f"\n## {section.title}\n")[2].partition("\n## ")[0]
    assert CODE.findall(paragraph(body, "Run: "))


def test_a_new_place_of_an_example_is_noticed() -> None:
    section = Section("A fruit", ("plum",), ("fleet/urls.py",), ("fleet/apps.py",), ())
    texts = {"fleet/urls.py": "plum", "fleet/apps.py": "a plum.", "fleet/admin.py": "sugar-plum, plums"}
    assert differences(section, texts) == []
    texts["fleet/admin.py"] = "plum"
    assert differences(section, texts) == ["not listed: fleet/admin.py"]
    texts |= {"fleet/admin.py": "", "fleet/apps.py": "plums"}
    assert differences(section, texts) == ["without the term: fleet/apps.py"]
