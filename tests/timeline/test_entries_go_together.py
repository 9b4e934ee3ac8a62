"""Entries of one change go together, by one statement and one wake-up; those of a part that failed go with it."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.db import transaction

from fleet.domain.actor import DRYDOCK
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, driver
from fleet.operations import wake_up
from fleet.operations.timeline.entries import gathered, tell

pytestmark = pytest.mark.django_db(transaction=True)
AT = datetime(2026, 10, 5, 12, tzinfo=UTC)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each statement has written."""
    found: list[int] = []
    insert = driver.insert

    def counted(rows: list[Entry]) -> None:
        found.append(len(rows))
        insert(rows)

    monkeypatch.setattr(driver, "insert", counted)
    return found


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Each time that streams are woken."""
    found: list[str] = []
    monkeypatch.setattr(wake_up, "wake_streams", lambda: found.append("streams"))
    yield found


def say(name: str) -> None:
    tell(EntryKind.FOREIGN_SIGHTING, DRYDOCK, at=AT, name=name)


def said() -> list[str]:
    return [entry.data["name"] for entry in Entry.objects.order_by("pk")]


def test_they_are_one_statement_in_the_order_in_which_they_were_said(statements: list[int], woken: list[str]) -> None:
    with gathered():
        say("a")
        with gathered():
            say("b")
            with gathered(savepoint=False):
                say("c")
        say("d")
        assert (statements, said()) == ([], [])
    assert (statements, said(), woken) == ([4], ["a", "b", "c", "d"], ["streams"])


def test_those_of_a_part_that_failed_are_left_out(statements: list[int]) -> None:
    with gathered():
        say("a")
        with pytest.raises(ValueError, match="odd"), gathered():
            say("b")
            with gathered():
                say("c")
            raise ValueError("odd")
        say("d")
    assert (statements, said()) == ([2], ["a", "d"])


def test_those_of_a_part_that_was_rolled_back_without_a_word_are_left_out(statements: list[int]) -> None:
    with gathered():
        say("a")
        with gathered():
            say("b")
            with pytest.raises(ValueError, match="odd"), gathered(savepoint=False):
                raise ValueError("odd")
        say("c")
    assert (statements, said()) == ([2], ["a", "c"])


def test_nothing_is_said_of_a_whole_that_failed(statements: list[int], woken: list[str]) -> None:
    with pytest.raises(ValueError, match="odd"), gathered():
        say("a")
        raise ValueError("odd")
    assert (statements, said(), woken) == ([], [], [])


def test_within_a_savepoint_that_knows_nothing_of_it_they_go_at_once_and_with_it(statements: list[int]) -> None:
    with gathered():
        say("a")
        with pytest.raises(ValueError, match="odd"), transaction.atomic():
            say("b")
            assert statements == [1]
            raise ValueError("odd")
        with transaction.atomic():
            say("c")
            with gathered(savepoint=False):
                say("d")
                say("e")
        say("f")
    assert (statements, said()) == ([1, 1, 2, 2], ["c", "d", "e", "a", "f"])


def test_streams_are_woken_once_a_transaction_and_not_for_what_was_rolled_back(woken: list[str]) -> None:
    with transaction.atomic():
        with pytest.raises(ValueError, match="odd"), transaction.atomic():
            say("a")
            raise ValueError("odd")
        with transaction.atomic():
            say("b")
        say("c")
        say("d")
    # What a savepoint asked for might have gone with it, so what comes after asks for its own, once.
    assert (said(), woken) == (["b", "c", "d"], ["streams"] * 2)
    with pytest.raises(ValueError, match="odd"), transaction.atomic():
        say("e")
        raise ValueError("odd")
    assert woken == ["streams"] * 2
