"""A module is a noun or a verb, a class name occurs once, and a function fits on a page."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.architecture.sources import AGENTS, FLEET, files, shown, tree

HOUSES = {
    "the agent": [AGENTS / "drydock_agent"],
    "the simulator": [AGENTS / "azure_simulator"],
    "the backend": [FLEET],
}
# In each of these a class name occurs once; the pages and the API may call their form or shape as what they show.
NAMESPACES = HOUSES | {
    "the backend": [FLEET / floor for floor in ("domain", "models", "operations", "projections")],
}
MOST_LINES = 60
# They end like participles and are none.
NOUNS = {
    # What is drawn.
    "drawing",
    # The servers that are built in.
    "embedded",
    # What is fed to whoever follows.
    "feed",
    # What the roles of a provider are here.
    "mapping",
    # What a large fleet grows from.
    "seed",
    # How something is worded.
    "wording",
}
# Django writes them.
WRITTEN = {"migrations"}


def sources(folders: list[Path]) -> list[Path]:
    return [path for folder in folders for path in files(folder, ".py") if path.parent.name not in WRITTEN]


def participle(word: str) -> bool:
    return word.endswith(("ing", "ed")) and word not in NOUNS


def too_long(module: ast.Module) -> list[str]:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MOST_LINES]


@pytest.mark.parametrize("house", HOUSES)
def test_no_module_is_a_bare_participle(house: str) -> None:
    names = {shown(path) for path in sources(HOUSES[house]) if participle(path.stem) or participle(path.parent.name)}
    assert names == set()


@pytest.mark.parametrize("house", HOUSES)
def test_a_class_name_occurs_once(house: str) -> None:
    found = defaultdict(list)
    for path in sources(NAMESPACES[house]):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(shown(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


@pytest.mark.parametrize("house", HOUSES)
def test_a_function_fits_on_a_page(house: str) -> None:
    wrong = {f"{shown(path)}: {name}" for path in sources(HOUSES[house]) for name in too_long(tree(path))}
    assert wrong == set()


def test_a_long_function_is_seen() -> None:
    for lines, found in ((MOST_LINES - 1, []), (MOST_LINES, ["run"])):
        assert too_long(ast.parse("class A:\n  async def run(self):\n" + "    pass\n" * lines)) == found
