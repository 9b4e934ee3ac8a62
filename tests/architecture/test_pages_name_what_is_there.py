"""What the pages name is there: links and their headings, files of the repository, functions of the backend."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files, tree

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *files(ROOT / "docs", ".md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:agents|docs|examples|fleet|templates|tests)/[\w./-]+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAME = re.compile(r"`(fleet(?:\.\w+)+)`")


def anchors(text: str) -> set[str]:
    """The headings as links name them."""
    heads = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def dead_links(page: Path) -> list[str]:
    wrong = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
            wrong.append(link)
    return wrong


def defined(name: str) -> bool:
    """Whether `fleet.a.b` is a module, or `b` something that the module `fleet.a` defines at its top."""
    parts = name.split(".")
    path = ROOT.joinpath(*parts)
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    above = ROOT.joinpath(*parts[:-1]).with_suffix(".py")
    return above.is_file() and any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == parts[-1] for node in tree(above).body
    )


def functions_of(file: str) -> set[str]:
    body = tree(ROOT / file).body if (ROOT / file).is_file() else []
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def missing(text: str) -> list[str]:
    found = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    found += [f"{file}::{name}" for file, name in TEST.findall(text) if name not in functions_of(file)]
    return found + [name for name in NAME.findall(text) if not defined(name)]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_link_leads_somewhere(file: Path) -> None:
    assert dead_links(file) == []


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_file_and_every_function_is_there(file: Path) -> None:
    assert missing(file.read_text(encoding="utf-8")) == []


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {link.partition("#")[0] for link in LINK.findall(index.read_text(encoding="utf-8"))}
    assert {page.relative_to(index.parent).as_posix() for page in files(index.parent, ".md")} - linked == {"README.md"}


def test_what_is_not_there_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `word`\n[a](page.md#one-word) [b](page.md#two) [c](gone.md) [d](https://example.org)\n")
    assert dead_links(page) == ["page.md#two", "gone.md"]
    text = "`fleet/gone.py` `fleet/urls.py` `fleet.urls` `fleet.urls.gone` `fleet.domain.drills.ending_of`"
    assert missing(text) == ["fleet/gone.py", "fleet.urls.gone"]
    gone = [
        f"tests/architecture/{name}"
        for name in ("test_gone.py::test_x", "test_arrows.py::test_gone", "test_arrows.py::below")
    ]
    assert missing(" ".join(f"`{name}`" for name in gone)) == gone


# Threats: every defence that the documentation claims names a test.

THREATS = (ROOT / "docs" / "dev" / "threats.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^## (\w+)$", THREATS, re.MULTILINE)
ROWS = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]*) \|$", THREATS, re.MULTILINE)
ATTACKS = [(threat, tests) for threat, tests in ROWS if threat != "threat"]


def test_each_row_names_tests_that_exist() -> None:
    assert len(ATTACKS) > 5
    assert len(ATTACKS) + 2 * len(ROOMS) == len(re.findall(r"^\|", THREATS, re.MULTILINE))
    for threat, tests in ATTACKS:
        assert re.search(r"`tests/[^`]+`", tests), threat


def test_each_room_has_one_section() -> None:
    assert sorted(set(ROOMS)) == ROOMS


def test_each_attack_has_one_row() -> None:
    attacks = [threat for threat, _ in ATTACKS]
    assert [attack for attack in attacks if attacks.count(attack) > 1] == []


# Conformance: each statement names a test.

CONFORMANCE = ROOT / "docs" / "dev" / "conformance.md"


def rows(text: str) -> list[str]:
    """The lines of tables, without their heads and rules."""
    lines = text.splitlines()
    return [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not line.startswith("|---") and not after.startswith("|---")
    ]


def test_every_statement_names_a_test() -> None:
    stated = rows(CONFORMANCE.read_text(encoding="utf-8"))
    assert len(stated) > 60
    assert [line for line in stated if not TEST.search(line.rpartition(" | ")[2])] == []
