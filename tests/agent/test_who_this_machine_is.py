"""Machine identity: the agent invents none and forgets none, whatever `/metadata/instance` answers."""

import threading
from collections.abc import Callable
from contextlib import closing
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

from tests.agent.agents import VM_IDS, Agents, Parts, SteppedClock, Unhurried
from tests.agent.fleet_double import eventually
from tests.processes import free_port

REAL = VM_IDS["web-vm1"]
AN_HOUR = 3600.0
# Nothing that such an answer says makes a machine a classic one.
NO_ANSWER = [f"instance-{kind}" for kind in (408, 410, 429, 500, 503, "empty", "garbage", "error", "no-vm-id")]
KEY = {"key": "00" * 32, "generation": "1"}
CLASSIC = ["instance-404", "instance-no-compute"]


class StillUnknown(Exception):
    """An hour has passed, and the agent still asks."""


class Asking:
    """An agent's question who it is, put until an answer or for an hour of stepped time."""

    def __init__(self, folder: Path, simulator: RunningSimulator, clock: SteppedClock) -> None:
        self.state = StateFolder(folder, clock)
        self.simulator = simulator
        self.clock = clock
        self.url = simulator.vm_url("web-vm1")
        self.asked = 0

    def fault(self, fault: str, **more: Any) -> None:
        """The machine gets this answer; for the whole hour, unless `more` says otherwise."""
        self.simulator.fault("web-vm1", fault, **(more or {"seconds": AN_HOUR}))

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
    return Asking(tmp_path, simulator, clock)


def test_a_machine_is_its_vm_id_and_without_one_the_configured_id_is_required(asking: Asking) -> None:
    asking.url = asking.simulator.vm_url("nobody")
    with pytest.raises(UnknownMachine):
        asking.who(answer_timeout=0, for_ever=False)
    identity = asking.who(DRYDOCK_MACHINE_ID="mine")
    assert (identity.machine_id, identity.source) == ("mine", "config")
    asking.url = asking.simulator.vm_url("web-vm1")
    identity = asking.who(DRYDOCK_MACHINE_ID="mine")
    assert (identity.machine_id, identity.source) == (REAL, "imds")


def test_without_any_answer_a_machine_goes_by_what_it_remembers_and_does_not_guess(asking: Asking) -> None:
    asking.url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UnknownMachine):
        asking.who(for_ever=False)
    asking.state.keep_credential(Credential(VM_IDS["web-vm2"], "imds", "secret"))
    assert asking.who(for_ever=False) == Identity(VM_IDS["web-vm2"], "imds")


@pytest.mark.parametrize("answer", NO_ANSWER)
def test_no_answer_that_says_nothing_makes_up_a_machine(asking: Asking, answer: str) -> None:
    asking.fault(answer)
    with pytest.raises(StillUnknown):
        asking.who()
    assert not (asking.state.root / "machine-id").exists()


@pytest.mark.parametrize("answer", [*NO_ANSWER, *CLASSIC])
def test_a_known_machine_stays_who_it_is(asking: Asking, answer: str) -> None:
    assert asking.who().machine_id == REAL
    asking.fault(answer)
    identity = asking.who(DRYDOCK_MACHINE_ID="mine")
    assert (identity.machine_id, identity.source) == (REAL, "imds")


def test_what_an_agent_remembers_from_before_the_vm_id_was_kept_counts_as_well(asking: Asking) -> None:
    asking.state.keep_credential(Credential(REAL, "imds", **KEY))
    asking.fault("instance-no-compute")
    assert asking.who() == Identity(REAL, "imds")


@pytest.mark.parametrize("answer", CLASSIC)
def test_a_classic_machine_gets_an_id_after_ten_minutes_of_nothing_else(asking: Asking, answer: str) -> None:
    asking.fault(answer)
    begun = asking.clock.monotonic()
    identity = asking.who()
    assert (identity.source, identity.machine_id) == ("file", asking.state.own_machine_id())
    assert CLASSIC_SECONDS <= asking.clock.monotonic() - begun < CLASSIC_SECONDS + 60
    # Once it has enrolled, the next start goes by that.
    asking.state.keep_credential(Credential(identity.machine_id, "file", **KEY))
    begun = asking.clock.monotonic()
    assert asking.who().machine_id == identity.machine_id
    assert asking.clock.monotonic() - begun < 120


def test_one_other_answer_begins_the_ten_minutes_again_and_the_vm_id_ends_them(asking: Asking) -> None:
    asking.fault("instance-404")

    def disturb(number: int) -> None:
        if number % 60 == 0:
            asking.simulator.clear_faults()
            asking.fault("instance-503", count=1)
            asking.fault("instance-404")

    with pytest.raises(StillUnknown):
        asking.who(each_time=disturb)
    identity = asking.who(each_time=lambda number: number == 100 and asking.simulator.clear_faults())
    assert (identity.machine_id, identity.source, identity.former_id) == (REAL, "imds", "")


def test_where_dhcp_named_the_service_a_classic_machine_is_waited_for_as_well(asking: Asking) -> None:
    asking.fault("instance-404")
    assert asking.who(for_ever=False).source == "file"
    asking.url = "http://127.0.0.1:9"
    (asking.state.root / "machine-id").unlink()
    with pytest.raises(UnknownMachine):
        asking.who(for_ever=False)


def test_one_that_was_taken_for_a_classic_machine_remembers_who_it_was(asking: Asking) -> None:
    asking.state.keep_credential(Credential("made-up", "file", **KEY))
    assert asking.who().former_id == "made-up"
    # A restart before the backend has heard of it changes nothing.
    asking.fault("instance-503")
    identity = asking.who()
    assert (identity.machine_id, identity.source, identity.former_id) == (REAL, "imds", "made-up")
    # A cloned disk is no former self.
    asking.state.keep_credential(Credential(VM_IDS["web-vm2"], "imds", **KEY))
    asking.simulator.clear_faults()
    assert asking.who().former_id == ""


def test_spool_of_a_made_up_id_is_continued(tmp_path: Path, clock: Clock) -> None:
    state = StateFolder(tmp_path, clock)
    with closing(state.open_spool("made-up")) as spool:
        spool.add(wire.DOCUMENT, clock.now(), {"body": "1"})
    with closing(state.open_spool(REAL, former_id="made-up")) as continued:
        assert (continued.id, continued.pending()) == (spool.id, 1)
    with closing(state.open_spool(VM_IDS["web-vm2"], former_id="made-up")) as others:
        assert others.pending() == 0 and others.id != spool.id


def test_an_agent_says_with_its_old_key_who_it_was(agents: Agents) -> None:
    ended = agents.command("once", vm="nobody", DRYDOCK_MACHINE_ID="made-up")
    assert ended.returncode == 1, "there are no events to be read of a machine that the simulator does not know"
    [first] = agents.fleet.enrolments
    assert (first["machine_id"], first["former_id"]) == ("made-up", "")
    agents.run(DRYDOCK_MACHINE_ID="made-up")
    eventually(lambda: len(agents.fleet.enrolments) > 1)
    second = agents.fleet.enrolments[1]
    assert (second["machine_id"], second["former_id"]) == (REAL, "made-up")
    assert second["credential"], "what proves that it was that machine"


def instance_of(parts: Parts, identity: Identity) -> Instance:
    return Instance(parts.context, identity, imds=parts.imds, reported=lambda: None, changed=lambda: None)


@pytest.mark.parametrize(
    ("answer", "complete"), [("", True), ("instance-partial", False), ("instance-wants-extended", True)]
)
def test_a_report_says_whether_the_answer_was_complete(parts: Parts, answer: str, complete: bool) -> None:
    parts.restart(node_name="aks-web-21922338-vmss00001b")
    if answer:
        parts.fault(answer, seconds=AN_HOUR)
    instance = instance_of(parts, Identity(REAL, "imds"))
    instance.step()
    [report] = parts.waiting(wire.INSTANCE)
    assert (report["complete"], report["node_name"]) == (complete, "aks-web-21922338-vmss00001b")
    assert instance.resource_name() == "web-vm1"


def test_upgraded_agent_reports_its_instance_metadata_again(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, reports in (("0.2.0", 1), ("0.2.0", 1), ("0.2.1", 2)):
        monkeypatch.setattr("drydock_agent.machine.agent_version", lambda version=version: version)
        instance_of(parts, Identity(REAL, "imds", {"vmId": REAL, "name": "web-vm1"})).step()
        assert len(parts.waiting()) == reports


def test_a_partial_answer_is_soon_followed_by_another_question_and_takes_no_name_away(parts: Parts) -> None:
    instance = instance_of(parts, Identity(REAL, "imds", {"vmId": REAL, "name": "web-vm1"}))
    assert instance.step() < AN_HOUR
    parts.fault("instance-no-vm-id", count=1)
    parts.clock.advance(AN_HOUR)
    assert instance.step() < AN_HOUR
    parts.clock.advance(AN_HOUR)
    assert instance.step() == AN_HOUR
    assert instance.resource_name() == "web-vm1"


def test_the_instance_metadata_is_read_at_the_start_and_hourly(parts: Parts) -> None:
    instance = instance_of(parts, Identity(REAL, "imds"))
    with parts.requests() as paths:
        for _ in range(4):
            assert instance.step() > 0
            parts.clock.advance(1800)
    read = [path for path in paths if "/metadata/instance" in path]
    assert len(read) == 2, "at 0:00 and at 1:00, not at 0:30 and 1:30"


def test_machine_that_changed_its_identity_reports_it(parts: Parts) -> None:
    changed, reported = threading.Event(), threading.Event()
    imds = Imds(parts.simulator.vm_url("web-vm2"))

    def look(machine_id: str) -> float:
        context = replace(parts.context, machine_id=machine_id)
        identity = Identity(machine_id, "imds")
        return Instance(context, identity, imds=imds, reported=reported.set, changed=changed.set).step()

    assert look(VM_IDS["web-vm2"]) == AN_HOUR
    assert reported.is_set() and not changed.is_set()
    reported.clear()
    look(VM_IDS["web-vm2"])
    assert not reported.is_set(), "unchanged, so not reported again"
    look(REAL)
    assert changed.is_set() and len(parts.waiting(wire.INSTANCE)) == 1
    imds.close()
