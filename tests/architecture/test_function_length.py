"""Function length: every function fits on a page."""

import ast
from pathlib import Path

from tests.architecture.sources import AGENTS, FLEET, files, shown, tree

MOST_LINES = 60
# Django writes them.
WRITTEN = {"migrations"}


def sources() -> list[Path]:
    return [path for folder in (FLEET, AGENTS) for path in files(folder, ".py") if path.parent.name not in WRITTEN]


def too_long(module: ast.Module) -> list[str]:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MOST_LINES]


def test_every_function_is_short_enough() -> None:
    assert {f"{shown(path)}: {name}" for path in sources() for name in too_long(tree(path))} == set()


def test_a_long_function_is_found() -> None:
    for lines, expected in ((MOST_LINES - 1, []), (MOST_LINES, ["run"])):
        assert too_long(ast.parse("class A:\n  async def run(self):\n" + "    pass\n" * lines)) == expected
