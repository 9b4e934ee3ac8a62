"""The clock of a worker, a sender and beat jumps by minutes and hours, in both directions."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from django.test import Client

from fleet.accounts import tasks as account_tasks
from fleet.audit import tasks as audit_tasks
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, LastRun, OpenTrouble, WrongClock
from fleet.models.driver import query
from fleet.notifications import router
from fleet.notifications import tasks as notification_tasks
from fleet.operations import blind_spots, clock
from fleet.projections.desk.status_bar import overview
from fleet.relay import counts as beat_clock
from fleet.relay import tasks
from tests.factories import Fleet, operator

JUMPS = [3 * 3600.0, -600.0]
# Each task that decides: its module, what it calls, and its arguments.
DECIDING: dict[str, tuple[Any, Any, str, tuple[Any, ...]]] = {
    "relay_approval": (tasks, tasks.reconcile, "advance_new_approval", (1,)),
    "relay_approvals": (tasks, tasks.reconcile, "advance_new_approvals", ([(1, {})],)),
    "follow": (tasks, tasks.reconcile, "advance_dependents", ([1],)),
    "advance": (tasks, tasks.reconcile, "advance", ()),
    "tidy_up": (account_tasks, account_tasks.tokens, "tidy_up", ()),
    "retain": (audit_tasks, audit_tasks.retention, "retain", ()),
}

SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(db: None, monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set this process's own clock to so many seconds ahead."""
    ahead = [0.0]

    class Own(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=ahead[0])

    def put(seconds: float) -> None:
        ahead[0] = seconds

    monkeypatch.setattr(clock, "datetime", Own)
    monkeypatch.setattr(clock, "_recorded", clock._Recorded())
    return put


def database_time() -> datetime:
    ((time,),) = query("SELECT clock_timestamp()")
    return cast(datetime, time)


@pytest.mark.parametrize("seconds", JUMPS)
def test_the_time_is_the_databases_whatever_the_process_shows(set_clock: SetClock, seconds: float) -> None:
    set_clock(seconds)
    before = database_time()
    found = clock.now()
    assert before - timedelta(seconds=60) < found <= database_time()
    assert not clock.may_clock_decide()
    assert clock.skew() == pytest.approx(seconds, abs=60)
    set_clock(0)
    assert clock.may_clock_decide()


@pytest.mark.parametrize("name", DECIDING)
def test_a_worker_with_a_wrong_clock_does_nothing_that_decides(
    set_clock: SetClock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    done: list[str] = []
    module, place, function, arguments = DECIDING[name]
    monkeypatch.setattr(place, function, lambda *_, **__: done.append(name))
    set_clock(600)
    getattr(module, name)(*arguments)
    assert done == []
    set_clock(0)
    getattr(module, name)(*arguments)
    assert done == [name]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_jump_of_the_worker_leaves_no_mark_and_others_take_over(set_clock: SetClock, seconds: float) -> None:
    set_clock(seconds)
    tasks.advance()
    assert not LastRun.objects.exists()
    set_clock(0)
    tasks.advance()
    assert LastRun.objects.get(name=LastRun.RECONCILE).ran_at <= database_time()


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_sender_with_a_wrong_clock_routes_and_sends_nothing(
    set_clock: SetClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    begun: list[int] = []
    monkeypatch.setattr(notification_tasks.delivery, "schedule", lambda: [(1, datetime(2020, 1, 1, tzinfo=UTC))])
    one = notification_tasks.Worker()
    monkeypatch.setattr(one, "_begin", begun.append)
    set_clock(seconds)
    one._round("celery")
    assert begun == [] and not LastRun.objects.filter(name=router.NAME).exists()
    set_clock(0)
    one._round("celery")
    assert begun == [1]
    assert LastRun.objects.get(name=router.NAME).ran_at <= database_time()


def test_a_web_process_with_a_wrong_clock_does_not_stand_in_for_the_sender(
    set_clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(notification_tasks.worker, "start", lambda *, via: started.append(via))
    set_clock(600)
    notification_tasks.tell_if_quiet()
    assert started == []
    set_clock(0)
    notification_tasks.tell_if_quiet()
    assert started == ["web"]


@pytest.mark.parametrize("seconds", JUMPS)
def test_beat_keeps_its_schedule_through_a_jump(set_clock: SetClock, seconds: float) -> None:
    app = Celery("jumps", set_as_current=False)
    beat_clock._use_database_clock(SimpleNamespace(app=app))
    entry = ScheduleEntry(name="advance", task="advance", schedule=2.0, app=app)
    set_clock(seconds)
    entry = next(entry)
    assert 0 <= entry.is_due().next <= 2
    set_clock(0)
    # Not in three hours, and not all that was due in between.
    assert 0 <= entry.is_due().next <= 2
    assert abs((entry.last_run_at - datetime.now(UTC)).total_seconds()) < 60


def test_a_wrong_clock_is_shown_told_and_over(set_clock: SetClock, client: Client) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    fleet.enrol_set(1)
    blind_spots.compare(now=clock.now(), via="beat")
    set_clock(600)
    clock.measure()
    row = WrongClock.objects.get()
    assert row.skew_seconds == pytest.approx(600, abs=60)
    now = clock.now() + timedelta(seconds=11)
    assert [doubt.code for doubt in overview(now=now).doubts if doubt.code == "clocks-wrong"] == ["clocks-wrong"]
    assert "clocks-wrong" in notification_tasks.troubles(now=now)
    client.force_login(operator())
    assert "Wrong server clocks</span> <b>1</b>" in client.get("/drills/").content.decode()
    blind_spots.compare(now=now, via="beat")
    assert OpenTrouble.objects.filter(code="clocks-wrong").exists()
    told = Entry.objects.filter(kind=EntryKind.COVERAGE_OPENED.value)
    assert [(line.data["code"], line.data["count"]) for line in told] == [("clocks-wrong", 1)]

    set_clock(0)
    clock.measure()
    # The row is no longer renewed.
    later = now + timedelta(minutes=4)
    blind_spots.compare(now=later, via="beat")
    assert not OpenTrouble.objects.filter(code="clocks-wrong").exists()
    assert not WrongClock.objects.exists()
