"""Due times: waves, drills and cache operations are checked when due or after news, and only then."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bench.tick import DUE, populate
from fleet.models import Approval, AvailabilitySet, Cache, Drill, Maintenance, QuarantinedRow, ScheduledEvent, Wave
from fleet.operations import caches as maintenances
from fleet.operations import drills, reconcile, waves
from fleet.operations.events import scheduling
from fleet.operations.waves import begin as begin_wave
from tests.caches.walking import Listeners, line
from tests.drills.walking import Walk as DrillWalk
from tests.drills.walking import say
from tests.factories import NOW, Fleet, acting, listing, open_order, operator, seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The waves, drills and caches that ticks ask."""
    found: dict[str, list[int]] = {"waves": [], "drills": [], "caches": []}

    def noted(module: Any, name: str, what: str, ids: Callable[[Any], list[int]]) -> None:
        real = getattr(module, name)

        def asking(first: Any, *args: Any, **fields: Any) -> Any:
            found[what] += ids(first)
            return real(first, *args, **fields)

        monkeypatch.setattr(module, name, asking)

    noted(waves, "_over", "waves", list)
    noted(drills, "_check", "drills", lambda drill: [drill.pk])
    noted(maintenances, "_compute", "caches", lambda cache_id: [cache_id])
    return found


def ticked(
    fleet: Fleet, asked: dict[str, list[int]], *, after: float = 2, heard: Sequence[str] = ()
) -> dict[str, list[int]]:
    """Whom one tick asks, so many seconds later; every machine polls meanwhile, or these."""
    for rows in asked.values():
        rows.clear()
    fleet.tick(after, *heard)
    return {what: sorted(set(rows)) for what, rows in asked.items() if rows}


def with_waves(count: int) -> Fleet:
    """Build this many services of a set with two machines, each with a wave whose first event has started at Azure."""
    fleet = Fleet()
    for number in range(count):
        prefix = f"w{number}-"
        fleet.enrol_set(2, prefix=prefix, availability_set=f"set-{number}")
        AvailabilitySet.objects.filter(name=f"set-{number}").update(service=f"service-{number}")
        fleet.all_say(*events(number), names=names(number))
        begin_wave(
            actor=acting(operator(), why="because"),
            now=fleet.now,
            service=f"service-{number}",
            overrides={"set-in-flight": "one after the other"},
        )
    fleet.advance()
    for number, approval in enumerate(Approval.objects.filter(turn=1).order_by("wave")):
        order = open_order(approval)
        fleet.delivered(order)
        fleet.receipt(order)
        fleet.all_say(*events(number, status="Started"), names=names(number))
    for _ in range(4):
        fleet.tick(2)
    return fleet


def names(number: int) -> list[str]:
    return [f"w{number}-{machine}" for machine in (1, 2)]


def events(number: int, *, status: str = "Scheduled") -> list[dict[str, Any]]:
    """The events of one wave; the first is as told."""
    return [
        listing(
            f"{number:08X}-0000-4000-8000-{turn:012}",
            resources=(name,),
            event_type="Reboot",
            not_before=NOW + seconds(3600 * turn + 3600),
            status="Scheduled" if turn else status,
        )
        for turn, name in enumerate(names(number))
    ]


def test_a_wave_is_asked_when_its_events_or_the_settings_have_news_and_not_even_read_before(
    asked: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    fleet = with_waves(3)
    every = list(Wave.objects.order_by("pk").values_list("pk", flat=True))
    with connection.execute_wrapper(_no_row_of("fleet_wave", "fleet_drill", "fleet_maintenance")):
        assert ticked(fleet, asked) == {}
    scheduling.make_due(scheduling.Q(approvals__wave=every[1]))
    assert ticked(fleet, asked)["waves"] == [every[1]]
    assert "waves" not in ticked(fleet, asked)
    # Where there are more than a tick takes, each has its turn.
    with monkeypatch.context() as patch:
        patch.setattr(waves, "PORTION", 2)
        waves.make_due(scheduling.Q())
        taken = [ticked(fleet, asked).get("waves", []) for _ in range(3)]
    assert [len(one) for one in taken] == [2, 1, 0]
    assert sorted(pk for one in taken for pk in one) == every
    settings.WAVE_RETURN_SECONDS += 1
    assert ticked(fleet, asked)["waves"] == every


def test_a_wave_whose_machine_is_to_return_is_asked_by_every_tick(asked: Any) -> None:
    fleet = with_waves(1)
    (wave,) = Wave.objects.all()
    # The machine that is hit says no more; the other one sees that the event is over.
    fleet.all_say(events(0)[1], names=["w0-2"])
    for _ in range(4):
        ticked(fleet, asked, after=80, heard=["w0-2"])
    assert Approval.objects.get(turn=1).event.status == "ENDED"
    for _ in range(3):
        assert ticked(fleet, asked, heard=["w0-2"])["waves"] == [wave.pk]
    fleet.all_say(events(0)[1], names=["w0-1"])
    ticked(fleet, asked)
    assert Approval.objects.get(turn=2).state in ("GRANTED", "RELAYING")


def test_a_drill_is_asked_at_its_times_and_when_its_set_has_news(asked: Any) -> None:
    walk = DrillWalk(Fleet(), notice_seconds=300).announced()
    for _ in range(3):
        ticked(walk.fleet, asked)
    assert "drills" not in ticked(walk.fleet, asked)
    say(walk.fleet, "vm1", walk.began["vm1"], "announced")
    assert ticked(walk.fleet, asked)["drills"] == [walk.drill_id]
    ticked(walk.fleet, asked)
    assert "drills" not in ticked(walk.fleet, asked)
    left = (Drill.objects.get().ends_by - walk.fleet.now).total_seconds()
    assert "drills" not in ticked(walk.fleet, asked, after=left - 3)
    assert ticked(walk.fleet, asked, after=3)["drills"] == [walk.drill_id]


def test_an_operation_on_a_cache_is_computed_at_its_times_only(asked: Any) -> None:
    fleet = Listeners()
    fleet.enrol_set(1)
    starts = (fleet.now + seconds(60)).strftime("%Y-%m-%dT%H:%M:%S")
    fleet.hear("vm1", f"{line('NodeMaintenanceStarting')}|StartTimeInUTC|{starts}")
    row = Maintenance.objects.get()
    assert row.status == "STARTING"
    assert "caches" not in ticked(fleet, asked), "it was computed as it was heard"
    assert "caches" not in ticked(fleet, asked, after=50)
    assert ticked(fleet, asked, after=10)["caches"] == [row.cache_id]
    assert Maintenance.objects.get().status == "UNDER_WAY"
    assert "caches" not in ticked(fleet, asked, after=600)
    ticked(fleet, asked, after=1200)
    assert Maintenance.objects.get().status == "END_NOT_SEEN"


def test_caches_that_cannot_be_computed_hold_up_no_others(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Listeners()
    fleet.enrol_set(1)
    starts = (fleet.now + seconds(60)).strftime("%Y-%m-%dT%H:%M:%S")
    for name in ("bad1", "bad2", "good"):
        host = f"{name}.redis.cache.windows.net"
        fleet.hear("vm1", f"{line('NodeMaintenanceStarting')}|StartTimeInUTC|{starts}", host=host)
    real = maintenances.compute_operations

    def played(cache: Cache, *args: Any, **fields: Any) -> Any:
        if cache.host.startswith("bad"):
            raise ValueError("no such luck")
        return real(cache, *args, **fields)

    monkeypatch.setattr(maintenances, "compute_operations", played)
    monkeypatch.setattr(maintenances, "PORTION", 1)
    fleet.later(60)
    for _ in range(4):
        ticked(fleet, asked)
    assert Maintenance.objects.get(cache__host__startswith="good").status == "UNDER_WAY"
    assert QuarantinedRow.objects.filter(what="cache").count() == 2
    monkeypatch.setattr(maintenances, "compute_operations", real)
    monkeypatch.setattr(maintenances, "PORTION", 100)
    ticked(fleet, asked, after=120)
    ticked(fleet, asked, after=12)
    assert set(Maintenance.objects.values_list("status", flat=True)) == {"UNDER_WAY"}


def _no_row_of(*tables: str) -> Any:
    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if any(f"FROM {table}\n" in sql or f'FROM "{table}"' in sql for table in tables):
            assert context["cursor"].rowcount == 0, sql
        return result

    return wrapper


def test_a_tick_takes_no_more_than_a_portion_whatever_plan_postgres_chooses(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    fleet.enrol_set(2)
    due = fleet.now + seconds(900)
    fleet.all_say(*(listing(f"BAC10600-0000-4000-8000-{number:012}", not_before=due) for number in range(12)))
    scheduling.make_all_due()
    monkeypatch.setattr(scheduling, "PORTION", 4)
    with connection.cursor() as cursor:
        # A table that seems to hold one row is joined row by row.
        cursor.execute("UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname = 'fleet_scheduledevent'")
        cursor.execute("SET LOCAL enable_hashjoin = off")
        cursor.execute("SET LOCAL enable_mergejoin = off")
    assert len(scheduling.take(now=fleet.now, decided=False)) == 4


# Idle ticks: without due work a tick runs a fixed number of queries and reads no open row.


# Of this transaction, in which the whole test plays.
READ = """SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
    FROM pg_stat_xact_user_tables WHERE relname LIKE 'fleet!_%' ESCAPE '!'"""
EVENTS, MACHINES, OTHERS = 110, 2, 50
# Postgres's planner reads the first and the last entry of an index.
PLANNING = 10


def test_an_idle_tick_reads_nothing_that_is_open() -> None:
    with connection.cursor() as cursor:
        populate(cursor.execute, person=operator().pk, events=EVENTS, machines=MACHINES, others=OTHERS)
        while _due(cursor):
            reconcile.advance(now=timezone.now(), via="beat")
        cursor.execute("ANALYZE")
        # A small table is read from end to end; the planner takes these for large ones.
        cursor.execute("UPDATE pg_class SET reltuples = 1000 * reltuples WHERE relname LIKE 'fleet!_%' ESCAPE '!'")
        # What Postgres said of its tables before that look is kept for the whole of a transaction.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        before = _read(cursor)
        with CaptureQueriesContext(connection) as asked:
            did = reconcile.advance(now=timezone.now(), via="beat")
        read = {table: rows - before.get(table, 0) for table, rows in _read(cursor).items()}
    assert (did.ran, did.looked_at) == (True, 0)
    # Who has turned is found by one look at everybody's presence.
    assert read.pop("fleet_presencerow") <= EVENTS * MACHINES + PLANNING
    assert {table: rows for table, rows in read.items() if rows > PLANNING} == {}
    # Two of them are the savepoint that a transaction is in a test.
    assert len(asked) <= 30


def _due(cursor: Any) -> int:
    cursor.execute(DUE)
    return int(cursor.fetchone()[0])


def _read(cursor: Any) -> dict[str, int]:
    cursor.execute(READ)
    return dict(cursor.fetchall())


# A changed rule makes all due that is open. A tick takes a part of that, and what is on its way to Azure first.


BACKLOG, PORTION, PORTIONS = 24, 4, 2


@pytest.fixture
def backlog(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(scheduling, "PORTION", PORTION)
    monkeypatch.setattr(reconcile, "MOST_PORTIONS", PORTIONS)
    fleet = Fleet()
    fleet.enrol_set(2)
    due = fleet.now + seconds(900)
    ids = [f"BAC10600-0000-4000-8000-{number:012}" for number in range(BACKLOG)]
    fleet.all_say(*(listing(event_id, not_before=due) for event_id in ids))
    calm(fleet)
    return fleet


def calm(fleet: Fleet) -> None:
    """Tick until the news is gone through."""
    for _ in range(BACKLOG // PORTION):
        if fleet.advance().looked_at < PORTION * PORTIONS:
            return


def test_an_order_that_is_overdue_is_given_to_the_next_machine_by_the_first_tick(backlog: Fleet) -> None:
    last = ScheduledEvent.objects.order_by("-pk")[0]
    approval = backlog.approve(last.event_id, overrides={"other-event": "all the same"})
    calm(backlog)
    first = open_order(approval)
    backlog.delivered(first)
    calm(backlog)
    backlog.later(settings.ORDER_ANSWER_SECONDS + 1)
    backlog.heard()
    scheduling.make_all_due()
    did = backlog.advance()
    assert did.looked_at < PORTION * (PORTIONS + 1), "and no more"
    assert open_order(approval).machine_id != first.machine_id


def test_the_backlog_is_gone_through_tick_by_tick(backlog: Fleet) -> None:
    scheduling.make_all_due()
    looked = [backlog.advance().looked_at for _ in range(BACKLOG // (PORTION * PORTIONS))]
    assert looked == [PORTION * PORTIONS] * len(looked)
    assert backlog.advance().looked_at == 0
