"""API problem types: every refusal, at the edge or in an operation, has a type from one list."""

import ast
from collections.abc import Iterator

from fleet.wording.problems import PROBLEMS
from tests.architecture.sources import FLEET, files, shown, tree


def raised(folder: str, name: str) -> Iterator[tuple[str, list[object]]]:
    """Where something of this name is made below the folder, and the plain values it is made of."""
    for path in files(FLEET / folder, ".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                yield f"{shown(path)}:{node.lineno}", values


def test_every_type_that_is_raised_is_known() -> None:
    for folder, name in (("operations", "Refused"), ("api", "Problem")):
        found = [(place, values[0]) for place, values in raised(folder, name) if values]
        assert len(found) > 5
        assert [place for place, code in found if code not in PROBLEMS] == []
    found = [(place, values[:2]) for place, values in raised("gateway", "Problem") if len(values) >= 2]
    assert len(found) > 5
    wrong = [
        (place, code) for place, (status, code) in found if code not in PROBLEMS or PROBLEMS[str(code)].status != status
    ]
    assert wrong == []
