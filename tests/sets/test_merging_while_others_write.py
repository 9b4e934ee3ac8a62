"""Two sets are merged while reports, bulk approvals and waves write about them: no circle of waits, no lost event."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from django.db import connections, transaction
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet, Machine, ScheduledEvent
from fleet.operations import waves
from fleet.operations.sets.changes import merge_sets
from tests.approvals.racing import a_fleet, announce, event_ids, thread_group
from tests.approvals.test_concurrent_bulk_approvals import bulk
from tests.factories import EVENT, Fleet, acting, admin, listing, operator, seconds, the_event, the_set
from tests.holding import session
from tests.processes import wait_for
from tests.searches import searched

pytestmark = pytest.mark.django_db(transaction=True)


def merge(fleet: Fleet, source: str, target: str) -> AvailabilitySet:
    return merge_sets(set_id=the_set(source).pk, into=the_set(target).pk, actor=acting(admin()), now=fleet.now)


@contextmanager
def waiting(call: Callable[[], object], table: str, row_id: int) -> Iterator[None]:
    """Run a call that waits for this row until the end of the block."""

    def run() -> None:
        try:
            call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool, session() as holder, session() as onlooker:
        holder.execute(f"SELECT FROM {table} WHERE id = %s FOR UPDATE", [row_id])
        done = pool.submit(run)
        asked = "SELECT FROM pg_locks WHERE NOT granted"
        wait_for(lambda: onlooker.execute(asked).fetchone() is not None, seconds=30, what="the call waits")
        yield
        holder.rollback()
        done.result(60)


def test_merge_that_waits_for_the_first_event_has_locked_no_later_one() -> None:
    fleet = a_fleet(2)
    first, later = event_ids(2)
    announce(fleet, "s0a", [first])
    announce(fleet, "s1a", [later])
    table = ScheduledEvent._meta.db_table
    with waiting(partial(merge, fleet, "set1", "set0"), table, the_event(first).pk), session() as wave:
        wave.execute("SET LOCAL lock_timeout = '100ms'")
        wave.execute(f"SELECT FROM {table} WHERE id = %s FOR UPDATE", [the_event(later).pk])
        wave.rollback()
    assert set(ScheduledEvent.objects.values_list("availability_set__name", flat=True)) == {"set0"}


def test_merge_that_waits_for_a_machine_has_locked_no_set_and_no_event() -> None:
    fleet = a_fleet(2)
    (event_id,) = event_ids(1)
    announce(fleet, "s1a", [event_id])
    rows = {AvailabilitySet: the_set("set1").pk, ScheduledEvent: the_event(event_id).pk}
    machine = fleet.agents["s1b"].machine.pk
    with waiting(partial(merge, fleet, "set1", "set0"), Machine._meta.db_table, machine), session() as report:
        report.execute("SET LOCAL lock_timeout = '100ms'")
        for model, pk in rows.items():
            report.execute(f"SELECT FROM {model._meta.db_table} WHERE id = %s FOR UPDATE", [pk])
        report.rollback()


def test_event_that_is_announced_during_a_merge_belongs_to_the_remaining_set() -> None:
    fleet = a_fleet(2)

    def report() -> None:
        try:
            fleet.say("s1a", listing(resources=["s1a"], not_before=fleet.now + seconds(900)))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as reporting, session() as onlooker:
        with transaction.atomic():
            merge(fleet, "set1", "set0")
            done = reporting.submit(report)
            asked = "SELECT FROM pg_locks WHERE NOT granted"
            wait_for(lambda: onlooker.execute(asked).fetchone() is not None, seconds=30, what="the report waits")
        done.result(60)
    assert the_event().availability_set.name == "set0"
    assert not the_event().sightings.filter(foreign=True).exists()
    assert fleet.approve(EVENT).state in ("GRANTED", "WAITING")


@searched("count", share=3, whole=20, variable="RACE_ROUNDS")
def test_merge_bulk_approval_wave_and_report_at_once_end_without_a_deadlock(count: int) -> None:
    fleet = a_fleet(2 * count)
    AvailabilitySet.objects.update(service="shop")
    otto, olga = operator(), operator("olga")
    overrides = dict.fromkeys(("service-in-flight", "other-open-event", "set-in-flight", "last-live-machines"), "go")
    with thread_group(4) as racing:
        for number in range(count):
            one, other = f"s{2 * number}", f"s{2 * number + 1}"
            fleet.now = timezone.now()
            fleet.heard()
            ids = event_ids(4, number + 1)
            announce(fleet, f"{one}a", ids[:2])
            announce(fleet, f"{other}a", ids[2:])
            named = [listing(event_id, resources=[f"{other}a"]) for event_id in ids[2:]]
            results = racing.at_once(
                partial(merge, fleet, f"set{2 * number + 1}", f"set{2 * number}"),
                partial(bulk, otto, ids),
                partial(waves.begin, actor=acting(olga, why="go"), events=ids, overrides=overrides, now=fleet.now),
                partial(fleet.say, f"{other}b", *named),
            )
            assert not isinstance(results[0], Refused)
            homes = ScheduledEvent.objects.filter(event_id__in=ids).values_list("availability_set__name", flat=True)
            assert set(homes) == {f"set{2 * number}"}
            for event_id in ids:
                assert Approval.objects.filter(event__event_id=event_id).count() <= 1
            Approval.objects.filter(event__event_id__in=ids).update(state="LAPSED")
            ScheduledEvent.objects.filter(event_id__in=ids).update(status="ENDED")
