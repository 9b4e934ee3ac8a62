"""Machine identity: the agent invents none and forgets none, whatever `/metadata/instance` answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.clock import Clock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.machine import ANSWER_TIMEOUT_SECONDS, CLASSIC_SECONDS, Identity, Instance, UnknownMachine, resolve
from drydock_agent.metadata_service.client import Imds
from drydock_agent.settings.load import load
from drydock_agent.state_folder import Credential, StateFolder

from tests.agent.agents import VM_IDS, Agents, PartsFactory, SteppedClock, Unhurried
from tests.agent.fleet_double import FleetDouble, eventually
from tests.processes import free_port

REAL = VM_IDS["web-vm1"]
AN_HOUR = 3600.0
# Nothing that such an answer says makes a machine a classic one.
NO_ANSWER = [
    "instance-408",
    "instance-410",
    "instance-429",
    "instance-500",
    "instance-503",
    "instance-empty",
    "instance-garbage",
    "instance-no-vm-id",
]
CLASSIC = ["instance-404", "instance-no-compute"]


class StillUnknown(Exception):
    """An hour has passed, and the agent still asks."""


class Asking:
    """An agent's question who it is, put until an answer or for an hour of stepped time."""

    def __init__(self, folder: Path, url: str, clock: SteppedClock) -> None:
        self.state = StateFolder(folder, clock)
        self.clock = clock
        self.url = url
        self.asked = 0

    def who(
        self,
        *,
        each_time: Callable[[int], object] = lambda number: None,
        for_ever: bool = True,
        answer_timeout: float = ANSWER_TIMEOUT_SECONDS,
        **variables: str,
    ) -> Identity:
        settings = load({"DRYDOCK_FLEET_URL": "https://drydock.example", **variables})
        imds = Imds(self.url, rate_limit=Unhurried(self.clock))
        ends = self.clock.monotonic() + AN_HOUR
        self.asked = 0

        def pause(seconds: float) -> None:
            self.clock.advance(seconds)
            self.asked += 1
            each_time(self.asked)
            if self.clock.monotonic() > ends:
                raise StillUnknown

        try:
            limits: dict[str, Any] = {"answer_timeout": answer_timeout, "for_ever": for_ever}
            return resolve(settings, imds, self.state, self.clock, LogLimiter(self.clock), pause, **limits)
        finally:
            imds.close()


@pytest.fixture
def asking(tmp_path: Path, simulator: RunningSimulator, clock: SteppedClock) -> Asking:
    return Asking(tmp_path, simulator.vm_url("web-vm1"), clock)


def test_a_machine_is_its_vm_id_whatever_is_configured(asking: Asking) -> None:
    found = asking.who(DRYDOCK_MACHINE_ID="mine")
    assert (found.machine_id, found.source) == (REAL, "imds")


def test_without_a_vm_id_the_configured_id_is_required(asking: Asking, simulator: RunningSimulator) -> None:
    asking.url = simulator.vm_url("nobody")
    with pytest.raises(UnknownMachine):
        asking.who(answer_timeout=0, for_ever=False)
    identity = asking.who(DRYDOCK_MACHINE_ID="mine")
    assert (identity.machine_id, identity.source) == ("mine", "config")


def test_without_any_answer_a_machine_goes_by_what_it_remembers_and_does_not_guess(asking: Asking) -> None:
    asking.url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UnknownMachine):
        asking.who(for_ever=False)
    asking.state.keep_credential(Credential(VM_IDS["web-vm2"], "imds", "secret"))
    assert asking.who(for_ever=False) == Identity(VM_IDS["web-vm2"], "imds")


@pytest.mark.parametrize("answer", NO_ANSWER)
def test_no_answer_that_says_nothing_makes_up_a_machine(
    asking: Asking, simulator: RunningSimulator, answer: str
) -> None:
    simulator.fault("web-vm1", answer, seconds=AN_HOUR)
    with pytest.raises(StillUnknown):
        asking.who()
    assert not (asking.state.root / "machine-id").exists()


@pytest.mark.parametrize("answer", [*NO_ANSWER, *CLASSIC])
def test_a_known_machine_stays_who_it_is(asking: Asking, simulator: RunningSimulator, answer: str) -> None:
    assert asking.who().machine_id == REAL
    simulator.fault("web-vm1", answer, seconds=AN_HOUR)
    found = asking.who(DRYDOCK_MACHINE_ID="mine")
    assert (found.machine_id, found.source) == (REAL, "imds")


def test_what_an_agent_remembers_from_before_the_vm_id_was_kept_counts_as_well(
    asking: Asking, simulator: RunningSimulator
) -> None:
    asking.state.keep_credential(Credential(REAL, "imds", key="00" * 32, generation="1"))
    simulator.fault("web-vm1", "instance-no-compute", seconds=AN_HOUR)
    assert asking.who() == Identity(REAL, "imds")


@pytest.mark.parametrize("answer", CLASSIC)
def test_a_classic_machine_gets_an_id_after_ten_minutes_of_nothing_else(
    asking: Asking, simulator: RunningSimulator, clock: SteppedClock, answer: str
) -> None:
    simulator.fault("web-vm1", answer, seconds=AN_HOUR)
    begun = clock.monotonic()
    found = asking.who()
    assert (found.source, found.machine_id) == ("file", asking.state.own_machine_id())
    assert CLASSIC_SECONDS <= clock.monotonic() - begun < CLASSIC_SECONDS + 60
    # Once it has enrolled, the next start goes by that.
    asking.state.keep_credential(Credential(found.machine_id, "file", key="00" * 32, generation="1"))
    begun = clock.monotonic()
    assert asking.who().machine_id == found.machine_id
    assert clock.monotonic() - begun < 120


def test_one_other_answer_begins_the_ten_minutes_again(asking: Asking, simulator: RunningSimulator) -> None:
    simulator.fault("web-vm1", "instance-404", seconds=AN_HOUR)

    def disturb(number: int) -> None:
        if number % 60 == 0:
            simulator.clear_faults()
            simulator.fault("web-vm1", "instance-503", count=1)
            simulator.fault("web-vm1", "instance-404", seconds=AN_HOUR)

    with pytest.raises(StillUnknown):
        asking.who(each_time=disturb)


def test_the_vm_id_ends_the_ten_minutes(asking: Asking, simulator: RunningSimulator) -> None:
    simulator.fault("web-vm1", "instance-404", seconds=AN_HOUR)
    found = asking.who(each_time=lambda number: number == 100 and simulator.clear_faults())
    assert (found.machine_id, found.source, found.former_id) == (REAL, "imds", "")


def test_where_dhcp_named_the_service_a_classic_machine_is_waited_for_as_well(
    asking: Asking, simulator: RunningSimulator
) -> None:
    simulator.fault("web-vm1", "instance-404", seconds=AN_HOUR)
    assert asking.who(for_ever=False).source == "file"
    asking.url = "http://127.0.0.1:9"
    (asking.state.root / "machine-id").unlink()
    with pytest.raises(UnknownMachine):
        asking.who(for_ever=False)


def test_one_that_was_taken_for_a_classic_machine_remembers_who_it_was(
    asking: Asking, simulator: RunningSimulator
) -> None:
    asking.state.keep_credential(Credential("made-up", "file", key="00" * 32, generation="1"))
    assert asking.who().former_id == "made-up"
    # A restart before the backend has heard of it changes nothing.
    simulator.fault("web-vm1", "instance-503", seconds=AN_HOUR)
    found = asking.who()
    assert (found.machine_id, found.source, found.former_id) == (REAL, "imds", "made-up")
    # A cloned disk is no former self.
    asking.state.keep_credential(Credential(VM_IDS["web-vm2"], "imds", key="00" * 32, generation="1"))
    simulator.clear_faults()
    assert asking.who().former_id == ""


def test_spool_of_a_made_up_id_is_continued(tmp_path: Path, clock: Clock) -> None:
    state = StateFolder(tmp_path, clock)
    made = state.open_spool("made-up")
    made.add(wire.DOCUMENT, clock.now(), {"body": "1"})
    spool_id = made.id
    made.close()
    continued = state.open_spool(REAL, former_id="made-up")
    assert (continued.id, continued.pending()) == (spool_id, 1)
    continued.close()
    others = state.open_spool(VM_IDS["web-vm2"], former_id="made-up")
    assert others.pending() == 0 and others.id != spool_id
    others.close()


def test_an_agent_says_with_its_old_key_who_it_was(agents: Agents, fleet: FleetDouble) -> None:
    ended = agents.command("once", vm="nobody", DRYDOCK_MACHINE_ID="made-up")
    assert ended.returncode == 1, "there are no events to be read of a machine that the simulator does not know"
    [first] = fleet.enrolments
    assert (first["machine_id"], first["former_id"]) == ("made-up", "")
    agents.run(DRYDOCK_MACHINE_ID="made-up")
    eventually(lambda: len(fleet.enrolments) > 1)
    second = fleet.enrolments[1]
    assert (second["machine_id"], second["former_id"]) == (REAL, "made-up")
    assert second["credential"], "what proves that it was that machine"


@pytest.mark.parametrize(
    ("answer", "complete"), [("", True), ("instance-partial", False), ("instance-wants-extended", True)]
)
def test_a_report_says_whether_the_answer_was_complete(
    parts: PartsFactory, simulator: RunningSimulator, answer: str, complete: bool
) -> None:
    made = parts()
    if answer:
        simulator.fault("web-vm1", answer, seconds=AN_HOUR)
    imds = Imds(simulator.vm_url("web-vm1"))
    instance = Instance(made.context, Identity(REAL, "imds"), imds=imds, reported=lambda: None, changed=lambda: None)
    instance.step()
    imds.close()
    [told] = made.waiting(wire.INSTANCE)
    assert told["complete"] is complete
    assert instance.resource_name() == "web-vm1"


def test_a_partial_answer_is_soon_followed_by_another_question_and_takes_no_name_away(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    made = parts()
    imds = Imds(simulator.vm_url("web-vm1"))
    known = Identity(REAL, "imds", {"vmId": REAL, "name": "web-vm1"})
    instance = Instance(made.context, known, imds=imds, reported=lambda: None, changed=lambda: None)
    assert instance.step() < AN_HOUR
    simulator.fault("web-vm1", "instance-no-vm-id", count=1)
    clock.advance(AN_HOUR)
    assert instance.step() < AN_HOUR
    clock.advance(AN_HOUR)
    assert instance.step() == AN_HOUR
    assert instance.resource_name() == "web-vm1"
    imds.close()


def test_machine_that_changed_its_identity_reports_it(parts: PartsFactory, simulator: RunningSimulator) -> None:
    made, changed, reported = parts(), threading.Event(), threading.Event()
    imds = Imds(simulator.vm_url("web-vm2"))

    def look(machine_id: str) -> float:
        context = replace(made.context, machine_id=machine_id)
        identity = Identity(machine_id, "imds")
        return Instance(context, identity, imds=imds, reported=reported.set, changed=changed.set).step()

    assert look(VM_IDS["web-vm2"]) == AN_HOUR
    assert reported.is_set() and not changed.is_set()
    reported.clear()
    look(VM_IDS["web-vm2"])
    assert not reported.is_set(), "unchanged, so not reported again"
    look(REAL)
    assert changed.is_set() and len(made.waiting(wire.INSTANCE)) == 1
    imds.close()
