"""Grouped timeline entries: listeners cut off together, machines enrolled together, and orders that Azure answered by
being busy share one line that expands.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

from fleet.models import Approval, Entry
from fleet.operations import reconcile
from fleet.projections.timeline import entries
from fleet.projections.timeline.entries import by_series
from fleet.wording.say import say
from fleet.wording.times import API
from tests.api.conftest import caller
from tests.caches.walking import HOST, Listeners, line, the_cache
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, Fleet, announced, open_order, seconds, viewer

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


def asked(fleet: Fleet, approval: Approval, *statuses: int) -> None:
    """Azure answers each order so; half a minute lies between them."""
    for status in statuses:
        reconcile.advance(now=fleet.now, via="beat")
        order = open_order(approval)
        fleet.delivered(order)
        fleet.receipt(order, status=status, posts=1)
        fleet.later(40)
        fleet.heard()


@pytest.fixture
def fleet(db: None) -> Fleet:
    found = Fleet(now=datetime.now(UTC) - seconds(300))
    announced(found, not_before=found.now + seconds(3600))
    asked(found, found.approve(), 500, 500, 429, 500)
    return found


def test_the_story_of_an_event_tells_it_once_with_what_it_is_made_of(fleet: Fleet) -> None:
    rows = entries.for_event(event_id=EVENT).results
    (series,) = {row.series for row in rows if row.series}
    first, *_, last = Entry.objects.filter(kind="order_answered").order_by("at")
    assert (series.count, series.first_at, series.last_at) == (4, first.at, last.at)
    said = say(series.text, API)
    assert said.startswith("Azure answered 500 (3 times) and 429 (1 time) from ")
    told = by_series(rows)
    (members,) = [members for _, members in told if members]
    # Nothing is lost, and everything stands once.
    assert [row.kind.value for row in members] == ["order_offered", "order_delivered", "order_answered"] * 4
    assert sorted(row.id for row, inside in told for row in inside or (row,)) == sorted(row.id for row in rows)
    assert len(told) == len(rows) - 11
    # Newest first, it stands where its newest entry is.
    newest = entries.fleet().results
    assert next(row for row, inside in by_series(newest) if inside) == next(row for row in newest if row.series)


def test_pages_calls_and_files_tell_it(fleet: Fleet) -> None:
    reader = viewer()
    page = logged_in(reader).get(f"/events/{EVENT}/")
    assert text_of(page).count("Azure answered 500 (3 times) and 429 (1 time)") == 1
    assert "12 entries" in text_of(page)
    assert page.content.count(b'data-key="series-') == 2
    for address in ("/timeline/", "/", f"/sets/{fleet.agents['vm1'].machine.availability_set_id}/"):
        assert "Azure answered 500 (3 times)" in text_of(logged_in(reader).get(address)), address
    told = caller(reader).get(f"events/{EVENT}/timeline/").json()["results"]
    inside = [row for row in told if row["series"]]
    assert len(inside) == 12
    assert {row["series"]["count"] for row in inside} == {4}
    assert inside[0]["series"]["id"] == inside[0]["id"]
    assert inside[0]["series"]["text"].startswith("Azure answered 500")
    file = json.loads(logged_in(reader).get(f"/events/{EVENT}/export.json").content)
    assert len([row for row in file["timeline"] if row["series"]]) == 12


def test_one_answer_and_the_last_one_are_no_series(fleet: Fleet) -> None:
    approval = Approval.objects.get()
    asked(fleet, approval, 200)
    rows = entries.for_event(event_id=EVENT).results
    assert [row.series is None for row in rows if row.data.get("azure_status") == 200] == [True]
    assert all(row.series is None for row in rows[-3:])
    # A page of a machine that was asked once tells each entry.
    for machine in {row.machine.id for row in rows if row.series and row.machine}:
        found = entries.for_machine(machine_id=machine).results
        answers = [row for row in found if row.kind == "order_answered" and row.data["azure_status"] != 200]
        assert all((row.series is not None) == (len(answers) > 1) for row in answers)
