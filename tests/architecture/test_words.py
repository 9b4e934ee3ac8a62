"""Reason codes: each code that operations use has words, and none has two."""

import ast
from collections import Counter
from collections.abc import Iterator

from fleet.domain.timeline import EntryKind
from fleet.wording.say import ENTRIES, ROOMS, SENTENCES
from tests.architecture.sources import FLEET, files, shown, tree


def named() -> Iterator[tuple[str, str]]:
    """Yield (code, place) of each `Reason` that is created with a literal code."""
    for path in files(FLEET, ".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason":
                code = node.args[0] if node.args else None
                if isinstance(code, ast.Constant):
                    yield str(code.value), f"{shown(path)}:{node.lineno}"


def test_every_reason_has_words() -> None:
    found = list(named())
    assert len(found) > 100
    assert [f"{place}: {code}" for code, place in found if code not in SENTENCES] == []


def test_no_code_and_no_kind_is_worded_twice() -> None:
    codes = Counter(code for room in ROOMS for code in room.SENTENCES)
    kinds = Counter(kind for room in ROOMS for kind in room.ENTRIES)
    assert [code for code, count in codes.items() if count > 1] == []
    assert [kind for kind, count in kinds.items() if count > 1] == []


def test_every_kind_of_entry_has_words() -> None:
    assert set(ENTRIES) == set(EntryKind)
