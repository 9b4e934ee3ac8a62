"""What the documentation says of states, entries, problems and calls is what the code does."""

import re
import shutil
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from fleet.domain import states
from fleet.domain.timeline import EntryKind
from fleet.management import documentation
from fleet.wording.badges import BY_KIND
from fleet.wording.problems import PROBLEMS
from tests.architecture.sources import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True, scope="module")
def generated_once() -> Iterator[None]:
    """What is generated follows from the code alone, which stays as it is."""
    parts = {name: (page, cache(text)) for name, (page, text) in documentation.PARTS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documentation, "PARTS", parts)
        patch.setattr(documentation, "schema", cache(documentation.schema))
        yield


def copy_of_docs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DOCS, tmp_path / "docs"))


def stale(docs: Path) -> list[Path]:
    """Return the files whose generated parts differ from the code."""
    return [path for path, text in documentation.pages(docs).items() if path.read_text(encoding="utf-8") != text]


def test_the_generated_parts_are_up_to_date() -> None:
    assert stale(DOCS) == []


@pytest.mark.parametrize("name", documentation.PARTS)
def test_edited_generated_part_is_found_and_restored(tmp_path: Path, name: str) -> None:
    docs = copy_of_docs(tmp_path)
    place, _ = documentation.PARTS[name]
    page, begin = docs / place, f"<!-- begin generated: {name} -->"
    page.write_text(page.read_text(encoding="utf-8").replace(begin, f"{begin}\nSomething else."), encoding="utf-8")
    assert stale(docs) == [page]
    assert documentation.pages(docs)[page] == (DOCS / place).read_text(encoding="utf-8")


def test_a_page_without_its_marks_is_an_error(tmp_path: Path) -> None:
    docs = copy_of_docs(tmp_path)
    (docs / "dev" / "states.md").write_text("# States\n", encoding="utf-8")
    with pytest.raises(CommandError, match=r"docs/dev/states\.md"):
        documentation.pages(docs)


def test_the_command_compares_and_mends(tmp_path: Path, settings: object) -> None:
    docs = copy_of_docs(tmp_path)
    settings.BASE_DIR = tmp_path  # type: ignore[attr-defined]
    said = StringIO()
    call_command("print_docs", check=True, stdout=said)
    assert "up to date" in said.getvalue()
    page = docs / "problems.md"
    page.write_text(page.read_text(encoding="utf-8").replace("`too-late` | 409", "`too-late` | 410"), encoding="utf-8")
    with pytest.raises(CommandError, match=r"Stale: docs/problems\.md"):
        call_command("print_docs", check=True, stdout=said)
    call_command("print_docs", stdout=said)
    assert stale(docs) == []


def test_the_diagrams_hold_every_move_and_no_other() -> None:
    text = (DOCS / "dev" / "states.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", text, flags=re.MULTILINE))
    moves = {
        (source.value, target.value)
        for table in (states.EVENT_MOVES, states.APPROVAL_MOVES, states.ORDER_MOVES)
        for source, targets in table.items()
        for target in targets
    }
    assert drawn == moves


def test_every_state_has_its_moves() -> None:
    assert set(states.EVENT_MOVES) == set(states.EventStatus)
    assert set(states.APPROVAL_MOVES) == set(states.ApprovalState)
    assert set(states.ORDER_MOVES) == set(states.OrderState)


def test_a_live_state_leads_on_and_a_closed_one_leads_nowhere() -> None:
    leading_on = {state for state, targets in states.APPROVAL_MOVES.items() if targets}
    assert leading_on - set(states.CORRECTABLE_APPROVALS) == set(states.LIVE_APPROVALS)
    assert {state for state, targets in states.ORDER_MOVES.items() if targets} == set(states.OPEN_ORDERS)


def test_every_state_and_every_kind_has_a_look() -> None:
    for kind, looks in BY_KIND.items():
        assert set(kind) == set(looks)  # type: ignore[call-overload]
    assert {states.EventStatus, states.ApprovalState, states.OrderState, EntryKind} <= set(BY_KIND)
    tones = {"calm", "due", "busy", "good", "bad", "quiet"}
    assert {look.tone for looks in BY_KIND.values() for look in looks.values()} <= tones


def test_every_problem_named_in_the_pages_exists() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^- \d{3} `([a-z-]+)`", text, flags=re.MULTILINE))
    assert named
    assert named <= set(PROBLEMS)
