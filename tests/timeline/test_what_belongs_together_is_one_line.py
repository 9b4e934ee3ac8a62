"""Grouped timeline entries: listeners cut off together and machines enrolled together share one line that expands."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.projections.timeline import entries
from fleet.projections.timeline.entries import by_series
from fleet.wording.say import say
from fleet.wording.times import API
from tests.caches.walking import HOST, Listeners, line, the_cache
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import viewer

NAMES = [f"vm{number}" for number in range(1, 9)]


@pytest.fixture
def listeners(db: None) -> Listeners:
    walker = Listeners(now=datetime.now(UTC) - timedelta(minutes=30))
    for name in NAMES:
        walker.enrol(name)
        walker.cover(name, "subscribed")
    walker.later(600)
    return walker


def said(order: str = "newest") -> list[str]:
    """The lines of the cache's timeline that stand for several."""
    rows = entries.for_cache(cache_id=the_cache().pk).results
    told = by_series(rows if order == "newest" else rows[::-1])
    # Everything stands once.
    assert sorted(row.id for row, inside in told for row in inside or (row,)) == sorted(row.id for row in rows)
    return [say(row.series.text, API) for row, inside in told if inside and row.series]


def cut(walker: Listeners, *names: str, back: float | None = 1.5) -> None:
    for name in names:
        walker.cover(name, "lost", reason="closed by the server")
    if back is not None:
        walker.later(back)
        for name in names:
            walker.cover(name, "subscribed")


def test_eight_listeners_cut_off_are_one_line(listeners: Listeners) -> None:
    listeners.hear("vm1", line("NodeMaintenanceStart"))
    cut(listeners, *NAMES)
    assert said() == [
        f"8 machines lost their connection to {HOST}. All reconnected within 2 s.",
        f"8 machines listen to {HOST}.",
    ]
    page = logged_in(viewer()).get("/timeline/")
    shown = text_of(page)
    assert f"8 machines lost their connection to {HOST}. All reconnected within 2 s." in shown
    assert "8 machines enrolled: vm1, vm2, vm3, vm4, vm5 and 3 more." in shown
    # It opens to each of them.
    assert "16 entries" in shown
    assert shown.count("as expected") == 8
    assert page.content.count(b"<summary>16 entries</summary>") == 1


def test_who_is_not_back_is_named(listeners: Listeners) -> None:
    cut(listeners, *NAMES[:6])
    cut(listeners, "vm7", "vm8", back=None)
    assert (
        said()[0]
        == f"8 machines lost their connection to {HOST} without a notification. Not reconnected yet: vm7, vm8."
    )


def test_what_lies_apart_stays_apart(listeners: Listeners) -> None:
    cut(listeners, *NAMES[:2])
    listeners.later(600)
    cut(listeners, *NAMES[2:4])
    listeners.later(600)
    cut(listeners, NAMES[0])
    assert [text.partition(" lost")[0] for text in said()] == [
        "2 machines",
        "2 machines",
        "8 machines listen to orders.redis.cache.windows.net.",
    ]
    # One machine's own entries stand by themselves.
    assert len([row for row in entries.for_cache(cache_id=the_cache().pk).results if row.series is None]) == 2
    machine = listeners.agents["vm1"].machine.pk
    assert all(row.series is None for row in entries.for_machine(machine_id=machine).results)
