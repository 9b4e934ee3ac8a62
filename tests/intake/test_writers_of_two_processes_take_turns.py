"""In a storm machines of one set may speak to several processes: whose writer comes second waits for the first."""

import threading
import time
from collections.abc import Iterator

import pytest

from fleet.domain.db_timeouts import ROLES
from fleet.gateway.committer import COMMIT_SECONDS
from fleet.models import Sighting, WaitingReport
from tests.factories import Fleet, listing, the_event
from tests.holding import as_patient_as, session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A set of two machines of which one has reported an event; this thread is the writer."""
    fleet = Fleet()
    fleet.enrol_set(2)
    fleet.later(1)
    fleet.all_say(listing(), names=["vm1"])
    with as_patient_as("writer"):
        yield fleet


def test_second_writer_waits_for_a_commit_and_quarantines_nothing(fleet: Fleet) -> None:
    assert ROLES["writer"].lock >= COMMIT_SECONDS
    vm2 = fleet.agents["vm2"]
    told = vm2.delivery(vm2.document(listing(), at=fleet.now))
    with session() as other:
        other.execute("SELECT FROM fleet_scheduledevent WHERE id = %s FOR UPDATE", [the_event().pk])
        # Half of what a commit takes; the test waits as long, since it is a row of Postgres that is waited for.
        threading.Timer(COMMIT_SECONDS / 2, other.rollback).start()
        began = time.monotonic()
        fleet.record(told)
        assert time.monotonic() - began > COMMIT_SECONDS / 4
    assert set(Sighting.objects.values_list("machine__resource_name", flat=True)) == {"vm1", "vm2"}
    assert not WaitingReport.objects.exists()
