"""A state folder that was put back speaks with a spool that a newer one followed: its word counts again."""

import pytest

from fleet.models import Entry, LatestDocument, Observation, Spool
from fleet.operations.intake import keep
from tests.factories import EVENT, Fleet, announced, listing, the_event

pytestmark = pytest.mark.django_db
OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"


@pytest.fixture
def fleet() -> Fleet:
    """vm1 has begun a second spool, and the first one speaks again, under its old numbers."""
    fleet = Fleet()
    announced(fleet)
    agent = fleet.agents["vm1"]
    old, seq = agent.spool, agent.seq
    agent.spool, agent.seq = "the second", 0
    fleet.later(600)
    fleet.say("vm1", listing())
    fleet.later(600)
    agent.spool, agent.seq = old, seq
    fleet.heard()
    return fleet


def empty(fleet: Fleet) -> keep.Delivery:
    return fleet.agents["vm1"].delivery()


def reused() -> list[Entry]:
    return list(Entry.objects.filter(kind="spool_reused"))


def test_agent_with_a_reused_spool_restarts_and_its_newest_report_counts(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    (answer,) = fleet.record(empty(fleet)).values()
    assert answer.renumber_spool
    (line,) = reused()
    assert line.machine_id == agent.machine.pk
    # As the agent does then.
    agent.spool, agent.seq = "the third", 0
    fleet.later(1)
    (answer,) = fleet.record(agent.delivery(agent.document(listing(OTHER), at=fleet.now))).values()
    assert not answer.renumber_spool
    assert the_event(OTHER).status == "SCHEDULED"
    assert LatestDocument.objects.get(machine=agent.machine).epoch == 3


def test_late_reports_of_an_old_spool_are_kept_and_change_no_vote(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    late = agent.delivery(agent.document(at=fleet.now))
    (answer,) = fleet.record(late).values()
    assert answer.renumber_spool
    assert Observation.objects.filter(machine=agent.machine, epoch=1, seq=agent.seq).exists()
    assert LatestDocument.objects.get(machine=agent.machine).epoch == 2
    assert the_event(EVENT).sightings.get(machine=agent.machine).gone_at is None
    assert len(reused()) == 1


def test_a_delivery_that_was_acknowledged_before_is_no_news(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    agent.seq -= 1
    repeated = agent.delivery(agent.document(listing(), at=fleet.now))
    fleet.record(repeated)
    assert reused() == []


def test_reuse_is_recorded_once_for_each_newer_spool(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    for _ in range(5):
        fleet.later(15)
        fleet.record(empty(fleet))
    assert len(reused()) == 1
    old = agent.spool
    agent.spool = "the third"
    fleet.record(empty(fleet))
    agent.spool = old
    fleet.record(empty(fleet))
    assert len(reused()) == 2


def test_two_agents_with_one_identity_restart_a_limited_number_of_times() -> None:
    fleet = Fleet()
    fleet.enrol_set(1)
    agent = fleet.agents["vm1"]
    spools, begun = ["a", "b"], 0
    for _ in range(300):
        for index in (0, 1):
            fleet.later(7)
            agent.spool = spools[index]
            (answer,) = fleet.record(agent.delivery()).values()
            if answer.renumber_spool:
                begun += 1
                spools[index] = f"spool {begun}"
    assert 3 < begun <= 24
    assert Spool.objects.count() <= 25
