"""Restored databases: the backend reads agents' last acknowledgements, and asks for documents that it no longer has."""

from datetime import timedelta
from typing import Any

import pytest
from drydock_agent import wire

from fleet.models import Entry, PresenceRow, Spool
from fleet.operations.intake import keep
from fleet.projections.blind_spots import overview
from tests.factories import Agent, Fleet, document, document_data, listing, the_event
from tests.words import text

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.enrol_set(2)
    return fleet


def told(agent: Agent, upto: int, *reports: keep.ParsedReport) -> keep.Delivery:
    """Return a delivery of an agent that was acknowledged up to this number."""
    return keep.Delivery(
        machine_id=agent.machine.pk, spool=agent.spool, agent_version="9.0.0", reports=reports, acknowledged=upto
    )


def reminder(agent: Agent, at: Any, body: bytes) -> keep.ParsedReport:
    data = document_data(body, incarnation=7)
    return agent.report(wire.ReminderData(hash=data.hash, incarnation=7), at=at)


def lost() -> list[Entry]:
    return list(Entry.objects.filter(kind="reports_lost").order_by("pk"))


def test_missing_acknowledged_reports_are_recorded_once(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    (answer,) = fleet.record(told(agent, 20)).values()
    assert (answer.before, answer.acknowledged, answer.renumber_spool) == (1, 20, False)
    (line,) = lost()
    assert (line.machine_id, line.data["first"], line.data["last"]) == (agent.machine.pk, 2, 20)
    assert text(line).startswith("Reports 2 to 20 of machine vm1 are missing, although Drydock had confirmed")
    agent.seq = 20
    fleet.later(15)
    (answer,) = fleet.record(told(agent, 20, agent.document(listing(), at=fleet.now))).values()
    assert (answer.before, answer.acknowledged) == (20, 21)
    assert len(lost()) == 1
    assert the_event().status == "SCHEDULED"


def test_a_spool_that_the_database_never_had_counts_from_where_its_agent_is(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    agent.spool, agent.seq = "begun after the backup", 300
    (answer,) = fleet.record(told(agent, 300, agent.document(at=fleet.now))).values()
    assert (answer.before, answer.acknowledged) == (0, 301)
    assert [(line.data["first"], line.data["last"]) for line in lost()] == [(1, 300)]


def test_missing_reports_of_an_older_agent_have_no_single_cause(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    agent.seq = 9
    fleet.say("vm1", listing())
    (line,) = lost()
    assert (line.data["first"], line.data["last"], line.data["certain"]) == (2, 9, False)
    assert "or the agent could not send them" in text(line)


def test_answer_to_a_reminder_requests_the_unknown_document(fleet: Fleet) -> None:
    agent, unknown = fleet.agents["vm1"], document([listing()], incarnation=7)
    (answer,) = fleet.record(told(agent, 1, reminder(agent, fleet.now, unknown))).values()
    assert answer.wanted == [document_data(unknown).hash]
    assert not answer.renumber_spool
    known = document([listing()], incarnation=8)
    fleet.report("vm2", document_data(known, incarnation=8))
    (answer,) = fleet.record(told(agent, 2, reminder(agent, fleet.now, known))).values()
    assert answer.wanted == [], "another machine has sent the same bytes"


def test_agent_without_resend_restarts_and_is_a_blind_spot_until_it_reports(fleet: Fleet) -> None:
    agent, unknown = fleet.agents["vm1"], document([listing()], incarnation=7)
    fleet.later(600)
    (answer,) = fleet.record(agent.delivery(reminder(agent, fleet.now, unknown))).values()
    assert answer.renumber_spool
    fleet.later(120)
    assert [spot.names for spot in overview(now=fleet.now).spots if spot.code == "document-lacking"] == [("vm1",)]
    agent.spool, agent.seq = "anew", 0
    fleet.say("vm1", listing())
    assert not [spot for spot in overview(now=fleet.now).spots if spot.code == "document-lacking"]
    assert PresenceRow.objects.get(machine=agent.machine).lacking_since is None
    assert the_event().status == "SCHEDULED"


def test_restarts_of_an_agent_are_limited(fleet: Fleet) -> None:
    agent, unknown = fleet.agents["vm1"], document([listing()], incarnation=7)
    begun = 0
    for _ in range(200):
        fleet.later(61)
        (answer,) = fleet.record(agent.delivery(reminder(agent, fleet.now, unknown))).values()
        if answer.renumber_spool:
            begun += 1
            agent.spool, agent.seq = f"spool {begun}", 0
    assert begun < 24
    assert Spool.objects.filter(machine=agent.machine, first_seen_at__gt=fleet.now - timedelta(days=1)).count() <= 24
    (spot,) = [spot for spot in overview(now=fleet.now).spots if spot.code == "many-spools"]
    assert spot.names == ("vm1",)
