"""Forecast of orders: the page shows the relay's own decision, and never promises what the relay does not do."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.domain.orders.next_step import Do, OrderFacts, Relay, Timeouts
from fleet.domain.states import ApprovalState, EventStatus, OrderState, Presence
from fleet.models import Approval, ScheduledEvent
from fleet.projections import orders as relaying
from fleet.projections.events.detail import event_detail
from fleet.projections.orders import ByHandRow
from tests.agent.agents import FLEET
from tests.factories import EVENT, NOW, Fleet, after, announced, listing, open_order, seconds, the_event
from tests.facts import calm, machine
from tests.words import code_of, sentence

TIMEOUTS = Timeouts.of(timedelta(seconds=3))
CLOSED = (OrderState.ANSWERED, OrderState.SUPERSEDED)
OUTCOMES = [
    ("", None, ""),
    ("answered", 400, ""),
    ("answered", 503, ""),
    ("failed", None, "it timed out"),
    ("refused", None, "expired"),
    ("refused", None, "not-listed"),
    ("refused", None, "already-started"),
]


@st.composite
def situations(draw: st.DrawFn) -> Relay:
    count = draw(st.integers(1, 5))
    machines = tuple(
        machine(
            number,
            draw(st.sampled_from([Presence.LIVE, Presence.LIVE, Presence.SILENT])),
            lists_it=draw(st.sampled_from([True, True, False])),
        )
        for number in range(count)
    )
    orders = []
    for number in range(draw(st.integers(0, 6))):
        offered = NOW - seconds(draw(st.integers(0, 20)))
        outcome, status, reason = draw(st.sampled_from(OUTCOMES))
        is_open = number == 0 and draw(st.booleans())
        delivered = draw(st.none() | st.integers(0, 4).map(lambda s, at=offered: min(NOW, at + seconds(s))))
        state = OrderState.DELIVERED if delivered else OrderState.OFFERED
        orders.append(
            OrderFacts(
                order_id=number,
                machine_id=draw(st.integers(0, count - 1)),
                state=state if is_open else draw(st.sampled_from(CLOSED)),
                offered_at=offered,
                delivered_at=delivered,
                outcome="" if is_open else outcome,
                azure_status=None if is_open else status,
                reason="" if is_open else reason,
            )
        )
    facts = calm(
        status=draw(st.sampled_from([EventStatus.SCHEDULED] * 4 + [EventStatus.STARTED, EventStatus.ENDED])),
        not_before=draw(st.none() | st.integers(-5, 60).map(lambda s: NOW + seconds(s))),
        resources=("vm0",),
        machines=machines,
    )
    state = draw(st.sampled_from([ApprovalState.RELAYING] * 4 + list(ApprovalState)))
    return Relay(state, facts, orders, NOW, TIMEOUTS)


@given(situations(), st.lists(st.integers(0, 4000), max_size=12))
def test_relay_offers_the_forecast_machine_at_the_forecast_time(relay: Relay, moments: list[int]) -> None:
    told = relay.forecast()
    for hundredths in moments:
        at = NOW + timedelta(milliseconds=10 * hundredths)
        if told is None or at < told.at:
            assert replace(relay, now=at).next_step().do is not Do.OFFER
    if told is not None:
        step = replace(relay, now=told.at).next_step()
        assert (step.do, step.machine) == (Do.OFFER, told.machine)


@pytest.mark.django_db
def test_the_event_tells_who_is_asked_next_and_then_the_relay_asks_it(fleet: Fleet, approval: Approval) -> None:
    fleet.delivered(open_order(approval))
    found = event_detail(event_id=EVENT, now=fleet.now)
    told = found.event.approval.next_asked
    assert (told.machine.resource_name, told.silent.resource_name) == ("vm2", "vm1")
    assert sentence(told.sentence) == "vm2 receives the next order at 2022-04-11 22:12:04 UTC if vm1 does not answer."
    assert relaying.approval(approval_id=approval.pk, now=fleet.now) == found.event.approval
    fleet.later(2.9)
    fleet.advance()
    assert open_order(approval).machine.resource_name == "vm1"
    fleet.later(0.1)
    assert fleet.now == told.at
    fleet.advance()
    assert open_order(approval).machine.resource_name == "vm2"


@pytest.mark.django_db
def test_when_every_agent_refuses_the_approval_ends_and_does_not_blame_azure(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    announced(fleet, resources=("vm1",))
    approval = fleet.approve()
    for name, reason in (("vm1", "not-listed"), ("vm2", "expired")):
        assert open_order(approval).machine.resource_name == name
        fleet.receipt(open_order(approval), outcome="refused", status=None, reason=reason)
        fleet.later(1)
        fleet.advance()
    orders = event_detail(event_id=EVENT, now=fleet.now).event.approval.orders
    assert {one.said.values["reason"] for one in orders} == {"not-listed", "expired"}
    assert (after(approval).state, code_of(approval.reason)) == ("REFUSED", "nobody-would")
    assert "(vm1: the newest document of the machine does not list the event; vm2: " in sentence(approval.reason)


@pytest.mark.django_db
def test_an_agent_that_has_read_started_stops_the_asking_until_its_document_is_here(fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    fleet.receipt(open_order(approval), outcome="refused", status=None, reason="already-started")
    fleet.later(2)
    fleet.advance()
    assert approval.orders.count() == 1
    fleet.later(5)
    fleet.advance()
    assert approval.orders.count() == 2


# Manual steps: if no agent passes an approval on, the page offers working commands to copy.


def told(fleet: Fleet) -> ByHandRow | None:
    found = event_detail(event_id=EVENT, now=fleet.now)
    return found.by_hand


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")))
def test_no_event_id_can_add_words_to_the_command(event_id: str) -> None:
    words = shlex.split(linux_command(event_id))
    assert len(words) == len(shlex.split(linux_command("A")))
    assert json.loads(words[words.index("--data") + 1]) == {"StartRequests": [{"EventId": event_id}]}
    body = windows_command(event_id).split("-Body '", 1)[1].rsplit("' -Uri", 1)[0]
    # Within single quotes only a quote is special to PowerShell; doubled it stands for itself.
    assert "'" not in body.replace("''", "")
    assert json.loads(body.replace("''", "'")) == {"StartRequests": [{"EventId": event_id}]}


@pytest.fixture
def simulator(tmp_path: Any) -> Iterator[RunningSimulator]:
    with RunningSimulator(FLEET) as running:
        yield running


@pytest.mark.flow
def test_the_command_for_linux_starts_the_event_and_is_seen_as_approved_elsewhere(
    simulator: RunningSimulator, db: None
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    event_id = simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    command = linux_command(event_id).replace("http://169.254.169.254", simulator.vm_url("web-vm1"))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    started = simulator.events.get(event_id)
    assert (started["status"], started["started_by"]) == ("Started", "approval")

    fleet = Fleet()
    fleet.enrol_set(1)
    fleet.all_say(listing(event_id, resources=["vm1"]))
    fleet.later(10)
    fleet.all_say(listing(event_id, status="Started", resources=["vm1"]))
    assert the_event(event_id).approved_elsewhere


@pytest.mark.django_db
def test_while_agents_answer_no_manual_steps_are_shown(fleet: Fleet, event: ScheduledEvent) -> None:
    assert told(fleet) is None
    approval = fleet.approve()
    fleet.delivered(open_order(approval))
    fleet.later(4)
    fleet.advance()
    assert told(fleet) is None
    fleet.receipt(open_order(approval))
    fleet.later(60)
    assert told(fleet) is None, "Azure has answered 200: it only waits for other tenants"


@pytest.mark.django_db
def test_without_a_live_machine_the_commands_name_the_event_as_the_machine_spelled_it(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.later(1)
    fleet.all_say(listing(EVENT.lower(), resources=["vm2"], not_before=fleet.now + seconds(900)))
    fleet.later(90)
    found = told(fleet)
    assert found.reason.code == "by-hand-nobody-lists-it"
    assert found.event_id == EVENT.lower()
    assert EVENT.lower() in found.linux and EVENT.lower() in found.windows
    assert [one.machine.resource_name for one in found.machines] == ["vm2", "vm1"], "the one that it hits first"


@pytest.mark.django_db
def test_unanswered_orders_are_reported_with_machine_names(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.approve()
    fleet.advance()
    for _ in range(5):
        fleet.tick(3)
    found = told(fleet)
    assert sentence(found.reason).startswith("vm1, vm2, vm3, vm4, vm5")
    assert found.reason.code == "by-hand-nobody-answers"


@pytest.mark.django_db
def test_refused_by_every_agent_or_past_not_before(fleet: Fleet) -> None:
    fleet.enrol_set(1)
    announced(fleet, resources=("vm1",))
    approval = fleet.approve()
    fleet.receipt(open_order(approval), outcome="refused", status=None, reason="expired")
    fleet.later(1)
    fleet.advance()
    found = told(fleet)
    assert found is not None and found.reason.code == "by-hand-everyone-refused"
    fleet.now += timedelta(seconds=900)
    assert told(fleet) is None, "from NotBefore on Azure may start it at any moment"
