"""Second tries are given by hand, test by test or file by file: no folder, hook or option gives any."""

import ast
import re
from pathlib import Path

from tests.architecture.sources import ROOT, files, shown, tree

PLUGIN = ROOT / "tests" / "second_tries.py"
COMMANDS = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"]


def suite() -> list[Path]:
    return [path for path in files(ROOT / "tests", ".py") if path != PLUGIN]


def mentions(path: Path, name: str) -> list[ast.Attribute]:
    """Places where the file says `pytest.mark.<name>`, or `.<name>` of anything else."""
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node.attr == name]


def given(path: Path) -> list[ast.expr]:
    """The decorators of functions and classes, and what `pytestmark` holds."""
    found: list[ast.expr] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found += node.decorator_list
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            found += node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return found


def test_the_mark_is_written_at_the_test_or_at_its_file() -> None:
    for path in suite():
        by_hand = [each for each in given(path) if ast.unparse(each) == "pytest.mark.real_time"]
        assert len(by_hand) == len(mentions(path, "real_time")), shown(path)
        assert path.name.startswith("test_") or not by_hand, shown(path)


def test_nothing_else_gives_a_second_try() -> None:
    assert [shown(path) for path in suite() if mentions(path, "flaky")] == []
    assert len(mentions(PLUGIN, "flaky")) == 1
    assert [shown(path) for path in COMMANDS if re.search(r"reruns", path.read_text(encoding="utf-8"))] == []
