"""Manual steps: if no agent passes an approval on, the page offers working commands to copy."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.models import ScheduledEvent
from fleet.projections.events.detail import event_detail
from fleet.projections.orders import ByHandRow
from tests.agent.agents import FLEET
from tests.factories import EVENT, Fleet, announced, listing, open_order, seconds, the_event
from tests.words import sentence


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
