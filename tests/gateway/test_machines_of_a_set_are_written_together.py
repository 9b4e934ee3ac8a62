"""Write batches: reports of one set about the same event share a commit, and no set delays others."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st

from fleet.gateway.limits import GatewayLimits
from fleet.gateway.write_queue import Lanes, Pending
from fleet.operations.intake.keep import Delivery, ParsedReport
from fleet.projections.machines import identities_of
from tests.factories import Fleet
from tests.loops import in_a_loop

NOW = datetime.now(UTC)
# What a machine says: its number, its set, and how far its spool has counted.
SAID = tuple[int, int | None, int]


def saying(machine_id: int, seq: int = 1) -> Delivery:
    body = json.dumps({"DocumentIncarnation": seq, "Events": []})
    data = wire.DocumentData(body=body, hash="", incarnation=1, api_version="")
    return Delivery(machine_id=machine_id, spool="s", reports=[ParsedReport(seq, wire.DOCUMENT, NOW, NOW, data)])


def batches_of(*said: SAID, most: int, trouble: int | None = None) -> list[list[SAID]]:
    """Return the batches that the lanes form of these reports, put in this order."""

    async def play() -> list[list[SAID]]:
        lanes, loop = Lanes(GatewayLimits()), asyncio.get_running_loop()
        if trouble is not None:
            lanes.trouble(trouble)
        for machine_id, set_id, seq in said:
            lanes.put(Pending(saying(machine_id, seq), 1, 1, 0.0, loop.create_future(), set_id), NOW)
        found = []
        while batch := lanes.take(most) or lanes.take_troubled():
            found.append([(one.delivery.machine_id, one.set_id, one.delivery.reports[0].seq) for one in batch])
            lanes.done(batch, behind=set())
        assert (lanes.waiting(), lanes.since(1.0), lanes._reports, lanes._bytes) == (0, [], 0, 0)
        return found

    return in_a_loop(play())


def test_machines_of_a_set_that_speak_in_between_others_are_taken_up_together() -> None:
    said = [(number, number % 2, 1) for number in range(8)]
    assert batches_of(*said, most=4) == [[said[0], said[2], said[4], said[6]], [said[1], said[3], said[5], said[7]]]


def test_a_large_set_takes_turns_with_the_others() -> None:
    large, small = [(number, 1, 1) for number in range(9)], (50, 2, 1)
    assert [small in batch for batch in batches_of(*large, small, most=3)] == [False, True, False, False]


def test_machines_without_a_set_keep_their_order() -> None:
    said: list[SAID] = [(number, None, 1) for number in range(4)]
    assert batches_of(*said, most=2) == [said[:2], said[2:]]


def test_failing_machine_does_not_delay_its_set() -> None:
    assert batches_of((1, 7, 1), (2, 7, 1), most=1, trouble=1) == [[(2, 7, 1)], [(1, 7, 1)]]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=40), st.integers(1, 10), st.integers(1, 6))
def test_whatever_comes_is_taken_up_once_and_each_machine_in_its_order(
    calls: list[tuple[int, int]], most: int, trouble: int
) -> None:
    said: list[SAID] = [(machine, home or None, seq) for seq, (machine, home) in enumerate(calls, start=1)]
    # Machines stay where they are, as far as their process knows.
    homes = {machine: home for machine, home, _ in reversed(said)}
    said = [(machine, homes[machine], seq) for machine, _, seq in said]
    found = batches_of(*said, most=most, trouble=trouble)
    assert sorted(one for batch in found for one in batch) == sorted(said)
    seen: dict[int, list[int]] = defaultdict(list)
    for batch in found:
        assert len({machine for machine, *_ in batch}) == len(batch) <= most
        for machine, _, seq in batch:
            seen[machine].append(seq)
    assert all(seqs == sorted(seqs) for seqs in seen.values())


@pytest.mark.django_db
def test_credential_identifies_the_machine_with_its_set() -> None:
    machine = Fleet().enrol("vm1").machine
    found = identities_of(hashes=[machine.credential_hash])
    assert [one.set_id for one in found.values()] == [machine.availability_set_id]
