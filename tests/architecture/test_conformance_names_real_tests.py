"""`docs/dev/conformance.md` names a test for each statement; every one of them exists."""

import ast
import re

import pytest

from tests.architecture.sources import ROOT, tree

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


def missing(text: str) -> list[str]:
    """Every named test that is no function of its file."""
    return sorted({f"{file}::{name}" for file, name in NAMED.findall(text) if name not in functions_of(file)})


def functions_of(file: str) -> set[str]:
    path = ROOT / file
    if not path.is_file():
        return set()
    return {
        node.name for node in tree(path).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_named_test_exists() -> None:
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_every_statement_names_a_test() -> None:
    stated = rows(PAGE.read_text(encoding="utf-8"))
    assert len(stated) > 60
    assert [line for line in stated if not NAMED.search(line.rpartition(" | ")[2])] == []


@pytest.mark.parametrize(
    "name",
    [
        "tests/architecture/test_conformance_names_real_tests.py::test_gone",
        "tests/no_such_file.py::test_every_named_test_exists",
        "tests/architecture/test_conformance_names_real_tests.py::missing",
    ],
)
def test_a_name_without_a_test_is_found(name: str) -> None:
    assert missing(f"| a statement | L | `{name}` |") == [name]
