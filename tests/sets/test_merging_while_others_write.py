"""Two sets are merged while reports, bulk approvals and waves write about them: no circle of waits, no lost event."""

from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet, Machine, ScheduledEvent
from fleet.operations import waves
from fleet.operations.sets.changes import merge_sets
from tests.approvals.racing import a_fleet, announce, event_ids, thread_group
from tests.approvals.test_several_are_decided_together import bulk
from tests.factories import EVENT, Fleet, acting, admin, listing, operator, seconds, the_event, the_set
from tests.holding import blocked, session
from tests.searches import searched

pytestmark = pytest.mark.django_db(transaction=True)


def merge(fleet: Fleet, source: str, target: str) -> AvailabilitySet:
    return merge_sets(set_id=the_set(source).pk, into=the_set(target).pk, actor=acting(admin()), now=fleet.now)


def lock(by: psycopg.Connection[Any], model: type[Model], pk: int) -> None:
    """Lock this row in another session. Raises an error if it is locked already."""
    by.execute("SET LOCAL lock_timeout = '100ms'")
    by.execute(f"SELECT FROM {model._meta.db_table} WHERE id = %s FOR UPDATE", [pk])


def test_merge_that_waits_for_the_first_event_has_locked_no_later_one() -> None:
    fleet = a_fleet(2)
    first, later = event_ids(2)
    announce(fleet, "s0a", [first])
    announce(fleet, "s1a", [later])
    with blocked() as begin, session() as holder, session() as wave:
        lock(holder, ScheduledEvent, the_event(first).pk)
        begin(partial(merge, fleet, "set1", "set0"))
        lock(wave, ScheduledEvent, the_event(later).pk)
    assert set(ScheduledEvent.objects.values_list("availability_set__name", flat=True)) == {"set0"}


def test_merge_that_waits_for_a_machine_has_locked_no_set_and_no_event() -> None:
    fleet = a_fleet(2)
    (event_id,) = event_ids(1)
    announce(fleet, "s1a", [event_id])
    rows = {AvailabilitySet: the_set("set1").pk, ScheduledEvent: the_event(event_id).pk}
    with blocked() as begin, session() as holder, session() as report:
        lock(holder, Machine, fleet.agents["s1b"].machine.pk)
        begin(partial(merge, fleet, "set1", "set0"))
        for model, pk in rows.items():
            lock(report, model, pk)


def test_event_that_is_announced_during_a_merge_belongs_to_the_remaining_set() -> None:
    fleet = a_fleet(2)
    event = listing(resources=["s1a"], not_before=fleet.now + seconds(900))
    with blocked() as begin, transaction.atomic():
        merge(fleet, "set1", "set0")
        begin(partial(fleet.say, "s1a", event))
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
