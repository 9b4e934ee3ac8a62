"""Unreadable documents of a machine: the backend keeps a limited amount, and never counts them as a good poll."""

from dataclasses import replace

import pytest
from django.db.models import Sum
from django.db.models.functions import Length
from drydock_agent import wire

from fleet.domain.intake import BYTES, LEAST
from fleet.domain.states import Presence
from fleet.models import DocumentBody, Entry, Machine, Observation, PresenceRow, Sighting
from fleet.models.facts.events import machine_presence
from tests.factories import Agent, Fleet, document_data, listing, the_event

pytestmark = pytest.mark.django_db

MIB = 1024 * 1024


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.enrol_set(2)
    return fleet


def page(fleet: Fleet, agent: Agent, number: int, size: int = MIB) -> None:
    """One answer that is no document, as a delivery of its own."""
    body = (b"<html>%d" % number).ljust(size, b".")
    fleet.record(agent.delivery(agent.report(document_data(body), at=fleet.now)))


def kept() -> int:
    unreadable = DocumentBody.objects.filter(readable=False)
    return unreadable.aggregate(bytes=Sum(Length("body")))["bytes"] or 0


def present(name: str, fleet: Fleet) -> Presence:
    machine = Machine.objects.select_related("presence", "latest_document").get(resource_name=name)
    return machine_presence(machine, now=fleet.now)


def test_pages_without_end_are_acknowledged_and_only_so_much_of_them_is_kept(fleet: Fleet) -> None:
    vm1, vm2 = fleet.agents["vm1"], fleet.agents["vm2"]
    for number in range(12):
        page(fleet, vm1, number)
    assert kept() == BYTES
    left_out = DocumentBody.objects.filter(body=b"", readable=False)
    assert [row.flags for row in left_out] == [[{"code": "body-not-kept", "values": {"bytes": MIB}}]] * 4
    assert Observation.objects.filter(machine=vm1.machine, document__in=left_out).count() == 4
    assert Entry.objects.filter(kind="document_unreadable").count() == 8
    (line,) = Entry.objects.filter(kind="report_unknown")
    assert line.data["reason"]["code"] == "too-much-not-understood"
    page(fleet, vm2, 100)
    assert kept() == BYTES + MIB, "the others are counted by themselves"
    fleet.later(3601)
    page(fleet, vm1, 13)
    assert kept() == BYTES + 2 * MIB


def test_small_ones_without_end_are_counted_by_what_their_rows_cost(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    many = [agent.report(document_data(b"page %d" % number), at=fleet.now) for number in range(BYTES // LEAST + 50)]
    fleet.record(agent.delivery(*many))
    assert Entry.objects.filter(kind="document_unreadable").count() == BYTES // LEAST
    assert DocumentBody.objects.filter(body=b"").count() == 50


def test_so_are_reports_of_an_unknown_kind(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    for number in range(10):
        odd = agent.report({"text": str(number) * MIB}, kind="weather", at=fleet.now)
        fleet.record(agent.delivery(replace(odd, flag="unknown kind 'weather'")))
    sizes = [len(one.data.get("text", "")) for one in Observation.objects.filter(kind="weather").order_by("seq")]
    assert sizes == [MIB] * 7 + [0] * 3
    assert Observation.objects.filter(kind="weather").last().data["bytes"] > MIB  # type: ignore[union-attr]
    assert Entry.objects.filter(kind="report_unknown").count() == 7 + 1


def test_what_can_be_read_is_taken_all_the_same(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    for number in range(9):
        page(fleet, agent, number)
    fleet.say("vm1", listing())
    assert the_event().version == 1
    assert Sighting.objects.count() == 1


def test_after_an_answer_that_cannot_be_read_no_claim_counts_as_a_poll(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    fleet.later(10)
    page(fleet, agent, 1, size=100)
    for _ in range(9):
        fleet.later(10)
        fleet.heard()
    assert (present("vm1", fleet), present("vm2", fleet)) == (Presence.LATE, Presence.LIVE)
    newest = Observation.objects.filter(machine=agent.machine, kind="document").order_by("seq")[0]
    reminder = wire.ReminderData(hash=newest.document_id or "", incarnation=1)
    fleet.record(agent.delivery(agent.report(reminder, at=fleet.now)))
    fleet.heard()
    assert present("vm1", fleet) is Presence.LIVE
    assert PresenceRow.objects.get(machine=agent.machine).unreadable_since is None


def test_nor_does_one_that_was_claimed_before_it_came(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    read_at = fleet.now
    fleet.later(90)
    fleet.heard()
    body = agent.report(document_data(b"<html>"), at=read_at)
    fleet.record(agent.delivery(body))
    assert present("vm1", fleet) is Presence.LATE


def test_one_that_is_older_than_a_document_which_could_be_read_changes_nothing(fleet: Fleet) -> None:
    agent = fleet.agents["vm1"]
    old = agent.report(document_data(b"<html>"), at=fleet.now)
    fleet.later(1)
    fleet.record(agent.delivery(old, agent.document(listing(), at=fleet.now)))
    fleet.later(90)
    fleet.heard()
    assert present("vm1", fleet) is Presence.LIVE


def test_a_status_that_is_neither_scheduled_nor_started_is_shown_as_it_is(fleet: Fleet) -> None:
    fleet.say("vm1", listing(status="STARTED"), listing("0DD00000-0000-4000-8000-000000000000", status="Paused"))
    assert the_event().status == "STARTED"
    odd = Sighting.objects.get(event__event_id="0DD00000-0000-4000-8000-000000000000")
    assert (odd.status, odd.event.status) == ("Paused", "SCHEDULED")
