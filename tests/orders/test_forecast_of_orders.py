"""Forecast of orders: the page shows the relay's own decision, and never promises what the relay does not do."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from azure_simulator.child_process import RunningSimulator
from django.conf import LazySettings
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.domain.orders.next_step import Do, OrderFacts, Relay, Timeouts
from fleet.domain.states import ApprovalState, EventStatus, OrderState, Presence
from fleet.models import Approval, ScheduledEvent
from fleet.operations.orders import advance
from fleet.projections import orders as relaying
from fleet.projections.events.detail import event_detail
from fleet.projections.orders import ByHandRow
from fleet.projections.orders import approval as detail
from tests.agent.agents import FLEET
from tests.factories import EVENT, NOW, Fleet, after, announced, listing, open_order, seconds, the_event
from tests.facts import calm, machine
from tests.words import code_of, sentence

pytestmark = pytest.mark.django_db

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


def test_unanswered_orders_are_reported_with_machine_names(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.approve()
    fleet.advance()
    for _ in range(5):
        fleet.tick(3)
    found = told(fleet)
    assert sentence(found.reason).startswith("vm1, vm2, vm3, vm4, vm5")
    assert found.reason.code == "by-hand-nobody-answers"


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


# Whatever ORDER_ANSWER_SECONDS is: what pages call overdue is what the relay has stopped waiting for.


SENT, ANSWERED = 1, 2


def overdue(approval: Approval, fleet: Fleet) -> list[int]:
    """Which steps the page marks."""
    row = detail(approval_id=approval.pk, now=fleet.now)
    return [number for number, step in enumerate(row.steps) if step.state == "overdue"]


@pytest.fixture(params=[3, 40])
def answer(request: pytest.FixtureRequest, settings: LazySettings, fleet: Fleet) -> int:
    """So long an answer is waited for, while an event is announced."""
    announced(fleet)
    settings.ORDER_ANSWER_SECONDS = float(request.param)
    return int(request.param)


def test_a_step_is_overdue_only_after_the_relay_has_turned_to_another_machine(fleet: Fleet, answer: int) -> None:
    approval = fleet.approve()
    fleet.advance()
    fleet.tick(answer - 0.1)
    assert (open_order(approval).machine.resource_name, overdue(approval, fleet)) == ("vm1", [])
    fleet.later(0.1)
    fleet.advance()
    assert (open_order(approval).machine.resource_name, overdue(approval, fleet)) == ("vm2", [])
    fleet.later(answer + 0.1)
    assert overdue(approval, fleet) == [SENT]
    (underway,) = advance.steps([approval.event_id], fleet.now).values()
    step = underway.step
    assert step.do is Do.OFFER and step.machine is not None and step.machine.name == "vm3"


def test_an_answer_is_overdue_after_two_more_machines_could_have_been_asked(fleet: Fleet, answer: int) -> None:
    approval = fleet.approve()
    fleet.delivered(open_order(approval))
    for _ in range(3):
        assert overdue(approval, fleet) == []
        fleet.tick(answer)
    fleet.later(0.1)
    assert overdue(approval, fleet) == [ANSWERED]
    assert approval.orders.count() == 4


def test_the_way_without_agents_is_shown_when_five_machines_have_kept_silent(fleet: Fleet, answer: int) -> None:
    fleet.approve()
    fleet.advance()
    for number in range(6):
        found = event_detail(event_id=EVENT, now=fleet.now)
        assert found is not None and (found.by_hand is not None) == (number == 5)
        fleet.now += timedelta(seconds=answer)
        fleet.heard()
        fleet.advance()


# While Azure is busy it is asked less and less, at most twenty times, and the last minute is for trying.


def facts(not_before: datetime | None, machines: int = 6) -> EventFacts:
    return calm(not_before=not_before, resources=("vm0",), machines=tuple(map(machine, range(machines))))


def asked(event: EventFacts, *, for_seconds: int, **answer: Any) -> list[float]:
    """Every order is answered so, at once; the seconds from now at which orders were offered."""
    orders: list[OrderFacts] = []
    for second in range(for_seconds):
        now = NOW + timedelta(seconds=second)
        relay = Relay(ApprovalState.RELAYING, event, orders, now, TIMEOUTS)
        step = relay.next_step()
        if step.do is not Do.OFFER or step.machine is None:
            told = relay.forecast()
            assert told is None or told.at > now
            continue
        orders.append(
            OrderFacts(
                order_id=UUID(int=len(orders) * 7919),
                machine_id=step.machine.machine_id,
                state=OrderState.ANSWERED,
                offered_at=now,
                delivered_at=now,
                answered_at=now,
                outcome="answered",
                **{"posts": 1, **answer},
            )
        )
    return [(order.offered_at - NOW).total_seconds() for order in orders]


@pytest.mark.parametrize("status", [202, 429, 500, 503])
@pytest.mark.parametrize("machines", [1, 6])
def test_it_is_asked_after_longer_and_longer_pauses_and_at_most_twenty_times(status: int, machines: int) -> None:
    event = facts(NOW + timedelta(seconds=900), machines)
    times = asked(event, for_seconds=899, azure_status=status)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] <= 3 and pauses[1] <= 3 and pauses[2] <= 6
    assert all(22 <= pause <= 38 for pause in pauses[6:15])
    assert (sum(at < 840 for at in times), sum(at >= 840 for at in times)) == (17, 3)


def test_without_a_not_before_attempts_are_limited() -> None:
    assert len(asked(facts(None), for_seconds=3000, azure_status=500)) == 17


def test_retry_after_is_honoured_but_not_into_the_last_minute() -> None:
    event = facts(NOW + timedelta(seconds=300))
    times = asked(event, for_seconds=299, azure_status=503, retry_after_seconds=100)
    assert times[:4] == [0, 100, 200, 240]
    assert all(after - before <= 15 for before, after in pairwise(times[3:]))


def test_agents_that_do_not_count_are_taken_to_have_asked_three_times() -> None:
    event = facts(NOW + timedelta(seconds=900))
    assert len(asked(event, for_seconds=899, azure_status=500, posts=None)) == 7


def test_a_machine_that_does_not_know_the_event_keeps_no_other_waiting() -> None:
    assert asked(facts(NOW + timedelta(seconds=900), 3), for_seconds=3, azure_status=404) == [0, 1, 2]


def test_what_an_agent_refused_itself_did_not_reach_azure() -> None:
    order = OrderFacts(UUID(int=1), 1, OrderState.ANSWERED, NOW, outcome="refused")
    assert order.asked == 0
    assert replace(order, outcome="failed", posts=3).asked == 3
