"""Several processes write side by side about the same machines, bodies, sets and events: none waits in a circle."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import psycopg
import pytest
from django.db import connections

from fleet.domain.db_timeouts import ROLES
from fleet.gateway.committer import COMMIT_SECONDS
from fleet.models import DocumentBody, LatestDocument, Observation, PresenceRow, Sighting, Spool, WaitingReport
from fleet.operations import reports
from fleet.operations.intake.keep import Delivery
from tests.factories import Fleet, listing, the_event
from tests.holding import as_patient_as, blocked, session

pytestmark = pytest.mark.django_db(transaction=True)
WRITERS, ROUNDS, MACHINES = 3, 8, 6


def event_id(number: int) -> str:
    return f"C1AC1E00-0000-4000-8000-{number:012X}"


def round_of(fleet: Fleet, number: int) -> list[Delivery]:
    """Each machine lists one more event, which all of them name, and one less; itself it names first."""
    found = []
    for name, agent in fleet.agents.items():
        names = [name, *(other for other in fleet.agents if other != name)]
        events = [listing(event_id(known), resources=names) for known in (number, number + 1)]
        found.append(agent.delivery(agent.document(*events, at=fleet.now)))
    return found


def test_writers_that_bring_the_same_reports_in_any_order_end_without_a_deadlock(fleet: Fleet) -> None:
    fleet.enrol_set(MACHINES)
    rounds = []
    for number in range(ROUNDS):
        fleet.later(1)
        rounds.append((fleet.now, round_of(fleet, number)))
    observed, bodies = Observation.objects.count(), DocumentBody.objects.count()
    begin = Barrier(WRITERS)

    def write(place: int) -> None:
        """One process. Not through `record` itself, which would try once more what Postgres ended as a deadlock."""
        try:
            for now, deliveries in rounds:
                begin.wait(60)
                turned = deliveries[place:] + deliveries[:place]
                reports._record(turned if place % 2 else turned[::-1], now, careful=False)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(WRITERS) as writers:
        for done in [writers.submit(write, place) for place in range(WRITERS)]:
            done.result(120)
    assert Observation.objects.count() - observed == ROUNDS * MACHINES
    assert DocumentBody.objects.count() - bodies == ROUNDS * MACHINES
    assert set(LatestDocument.objects.values_list("seq", flat=True)) == {rounds[-1][1][0].reports[0].seq}
    listed = Sighting.objects.filter(gone_at__isnull=True).values_list("event__event_id", flat=True)
    assert sorted(listed) == sorted([event_id(ROUNDS - 1), event_id(ROUNDS)] * MACHINES)


KEYS = {
    "spools": (Spool, "machine_id"),
    "latest documents": (LatestDocument, "machine_id"),
    "presence": (PresenceRow, "machine_id"),
    "bodies": (DocumentBody, "hash"),
}


@pytest.mark.parametrize("what", KEYS)
def test_writer_waiting_for_the_first_row_locks_no_later_one(what: str, fleet: Fleet) -> None:
    fleet.enrol_set(MACHINES)
    fleet.later(1)
    deliveries = round_of(fleet, 0)
    model, key = KEYS[what]
    hashes = sorted(one.reports[0].data.hash for one in deliveries)  # type: ignore[union-attr]
    values = hashes if model is DocumentBody else sorted(one.machine_id for one in deliveries)
    with blocked() as begin, session() as holder, session() as other:
        take(holder, model._meta.db_table, key, values[0])
        begin(partial(reports.record, deliveries=deliveries[::-1], now=fleet.now))
        for value in values[1:]:
            # Raises where the writer, who waits, holds it already.
            take(other, model._meta.db_table, key, value)


def take(by: psycopg.Connection[tuple[object, ...]], table: str, key: str, value: object) -> None:
    """Lock this row; insert a body instead, since no row of it exists yet."""
    by.execute("SET LOCAL lock_timeout = '100ms'")
    if key == "hash":
        by.execute(
            f"INSERT INTO {table} (hash, body, readable, flags, first_received_at) VALUES (%s, '', true, '[]', now())",
            [value],
        )
    else:
        by.execute(f"SELECT FROM {table} WHERE {key} = %s FOR UPDATE", [value])


# In a storm machines of one set may speak to several processes: whose writer comes second waits for the first.


def test_second_writer_waits_for_a_commit_and_quarantines_nothing(fleet: Fleet) -> None:
    assert ROLES["writer"].lock >= COMMIT_SECONDS
    fleet.enrol_set(2)
    fleet.later(1)
    fleet.all_say(listing(), names=["vm1"])
    vm2 = fleet.agents["vm2"]
    told = vm2.delivery(vm2.document(listing(), at=fleet.now))
    with as_patient_as("writer"), session() as other:
        other.execute("SELECT FROM fleet_scheduledevent WHERE id = %s FOR UPDATE", [the_event().pk])
        # Half of what a commit takes; the test waits as long, since it is a row of Postgres that is waited for.
        threading.Timer(COMMIT_SECONDS / 2, other.rollback).start()
        began = time.monotonic()
        fleet.record(told)
        assert time.monotonic() - began > COMMIT_SECONDS / 4
    assert set(Sighting.objects.values_list("machine__resource_name", flat=True)) == {"vm1", "vm2"}
    assert not WaitingReport.objects.exists()
