"""No projection goes past `fleet.projections.visibility`: whatever it reads is what the reader may see."""

import ast
from pathlib import Path

import pytest
from django.apps import apps

from fleet.projections.visibility import VISIBLE_ROWS
from tests.architecture.sources import FLEET, files, shown

MAY = {"visibility.py"}
MANAGERS = {"objects", "_default_manager", "_base_manager"}
FACTS = {"load_facts", "facts_of"}


def past_it(source: str) -> list[str]:
    """Where a module takes rows, or facts about other sets, without asking who reads."""
    found = []
    for node in ast.walk(ast.parse(source)):
        # A table of relations that Django makes, `.through`, is reached by rows that were seen.
        through = isinstance(node, ast.Attribute) and getattr(node.value, "attr", "") == "through"
        if isinstance(node, ast.Attribute) and node.attr in MANAGERS and not through:
            found.append(f"line {node.lineno}: .{node.attr}")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fleet.models.facts.events"):
            found += [f"line {node.lineno}: {name.name}" for name in node.names if name.name in FACTS]
    return found


# The modules of the annexes that read for a reader.
OF_ANNEXES = [
    FLEET / "accounts" / "queries.py",
    *(FLEET / "notifications" / f"{name}.py" for name in ("queries", "news", "log", "dry_run")),
    *(FLEET / "audit" / f"{name}.py" for name in ("queries", "archived_entries", "reports")),
]
READING = [path for path in files(FLEET / "projections", ".py") if path.name not in MAY] + OF_ANNEXES


@pytest.mark.parametrize("path", READING, ids=shown)
def test_projection_reads_visible_rows_and_facts_without_hidden_names(path: Path) -> None:
    assert past_it(path.read_text(encoding="utf-8")) == []


def test_the_dates_of_calendars_are_read_so_too() -> None:
    # This module also creates and ends calendars of the reader's own.
    source = (FLEET / "accounts" / "calendars.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    writing = {"make", "end", "asked_for"}
    reading = [node for node in tree.body if getattr(node, "name", "") not in writing]
    assert len(tree.body) - len(reading) == len(writing)
    assert past_it(ast.unparse(ast.Module(reading, type_ignores=[]))) == []


def test_this_would_find_them() -> None:
    assert past_it("rows = Machine.objects.all()") == ["line 1: .objects"]
    assert past_it("from fleet.models.facts.events import load_facts, name_of") == ["line 1: load_facts"]
    assert past_it("rows = seen(Machine).filter(pk=1)") == []


def test_every_table_that_is_read_has_a_visibility_rule() -> None:
    own = {model for model in apps.get_app_config("fleet").get_models() if "migrations" not in model.__module__}
    # No page or answer shows these.
    unread = {"LatestDocument", "WaitingReport", "SigningKey", "KnownDevice", "LoginAttempts"}
    unread |= {"StoredAnswer", "HookCall", "Nonce", "Entrance", "UnusedKey", "AccountLink"}
    assert {model.__name__ for model in own - set(VISIBLE_ROWS)} == unread
