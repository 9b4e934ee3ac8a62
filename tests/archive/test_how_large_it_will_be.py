"""Storage forecast: expected database size, the day without space, and the command's report on the archive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.audit.queries import LeavingRow, storage
from fleet.audit.retention import GIGABYTE, MOST_DAYS, Growth, Retained, days_until, next_step
from fleet.management.commands import archive as command
from fleet.wording.timeline import ARCHIVED, FAULTS
from tests.archive.shelves import folder

G = GIGABYTE


@pytest.mark.parametrize(
    ("kinds", "rest", "days"),
    [
        # What grows by one a day from two on is ten after eight days.
        ([Growth(2 * G, G)], 0, 8),
        ([Growth(G, G / 2), Growth(G, G / 2)], 0, 8),
        ([Growth(2 * G, G)], 3 * G, 5),
        # There already.
        ([Growth(10 * G, 0)], 0, 0),
        # The archive of five days holds no more than these bring, or the present amount if that is more.
        ([Growth(G, G, 5)], 0, None),
        ([Growth(8 * G, G, 5)], G, None),
        ([Growth(G, G, 5), Growth(0, G)], 0, 5),
        # Growth too slow to forecast.
        ([Growth(0, 10 * G / (MOST_DAYS + 1))], 0, None),
        ([Growth(0, 10 * G / MOST_DAYS)], 0, MOST_DAYS),
        ([], 0, None),
    ],
)
def test_when_there_is_no_more_room(kinds: list[Growth], rest: int, days: int | None) -> None:
    assert days_until(10 * G, kinds, rest) == days


def test_without_a_maximum_size_the_next_round_size_counts() -> None:
    assert [next_step(size) // G for size in (0, G - 1, G, 3 * G, 99 * G, 20_000 * G)] == [1, 1, 2, 5, 100, 40_000]


def said(**options: Any) -> str:
    out = StringIO()
    call_command("archive", stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
def test_the_command_says_what_left_what_stays_and_what_was_broken_off(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ARCHIVE_URL = ""
    with pytest.raises(CommandError, match="ARCHIVE_URL names no archive"):
        said()
    settings.ARCHIVE_URL = folder(tmp_path).shown()
    done = Retained(files=2, dropped=["fleet_entry_from_0"], held={"messages": "held-unsent"})
    monkeypatch.setattr(command, "retain", lambda **_: done)
    assert said().splitlines() == [
        f"2 files were written to {folder(tmp_path).shown()}.",
        "1 parts of tables left, fleet_entry_from_0.",
        f"Some {ARCHIVED['messages']} stay: {FAULTS['held-unsent']}.",
    ]
    done.fault = "store-away"
    with pytest.raises(CommandError, match="broken off"):
        said()
    done.ran = False
    with pytest.raises(CommandError, match="Another process"):
        said()


@pytest.mark.django_db
def test_dry_run_changes_nothing_and_lists_what_is_archived_when(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ARCHIVE_URL = folder(tmp_path).shown()

    def never(**_: Any) -> Retained:
        raise AssertionError

    monkeypatch.setattr(command, "retain", never)
    assert said(dry_run=True) == "Nothing leaves yet.\n"
    plain = storage
    past, later = datetime(2020, 1, 1, tzinfo=UTC), datetime(2090, 1, 2, tzinfo=UTC) + timedelta(hours=3)
    rows = tuple(LeavingRow("entries", 10, 3 * 1024**2, at) for at in (past, later))

    def coming(**options: Any) -> Any:
        return replace(plain(**options), next_archived=rows)

    monkeypatch.setattr(command, "storage", coming)
    first, second = said(dry_run=True).splitlines()
    assert first == f"now: 10 {ARCHIVED['entries']}, 3 MiB"
    assert "2090" in second
