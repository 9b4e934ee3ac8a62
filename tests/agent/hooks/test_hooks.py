"""Prepare and recover: when hooks run, and what is reported of them."""

import json

import pytest
from drydock_agent.hooks.progress import names

from tests.agent.agents import full_disk
from tests.agent.hooks.conftest import Stage

PREPARED = ["prepare begin running", "prepare hook 10-a succeeded", "prepare end succeeded"]
RECOVERED = ["recover begin running", "recover hook 10-b succeeded", "recover end succeeded"]


def test_an_event_that_names_the_machine_is_prepared_for_once(stage: Stage) -> None:
    stage.hooks.add("prepare", "20-z")
    stage.hooks.add("prepare", "10-a")
    machine = stage.start()
    machine.look()
    event_id = stage.announce()
    for _ in range(3):
        machine.look()
    assert stage.hooks.lines() == [f"prepare 10-a {event_id}", f"prepare 20-z {event_id}"]
    assert machine.said() == [
        "prepare begin running",
        "prepare hook 10-a succeeded",
        "prepare hook 20-z succeeded",
        "prepare end succeeded",
    ]
    assert {data["event_id"] for data in machine.reports()} == {event_id}
    ended = machine.reports()[1]
    assert (ended["exit_status"], ended["late"], 0 <= ended["seconds"] < 5) == (0, False, True)


def test_advice_and_events_of_other_machines_are_prepared_for_by_no_hook(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    machine = stage.start()
    other = stage.announce("web-vm2")
    machine.look()
    stage.simulator.events.cancel(other)
    machine.look()
    # Until the last of this fixture's simulator forgets it: nothing starts it.
    event_id = stage.announce(type="SpotRebalanceRecommendation")
    machine.look()
    machine.look()
    assert (stage.hooks.lines(), machine.said()) == ([], [])
    assert stage.simulator.events.all()[-1]["EventId"] == event_id


NAMED = (["web-vm1"], ["WEB-VM1"], ["_web-vm1"], ["other", "_Web-Vm1"], "web-vm1")
NOT_NAMED = (["web-vm10"], ["__web-vm1"], [], None, [None, 7, {"name": "web-vm1"}])


def test_names_are_compared_without_case_and_without_the_old_underscore() -> None:
    for resources in (*NAMED, *NOT_NAMED):
        assert names({"Resources": resources}, "Web-VM1") is (resources in NAMED), resources
        assert not names({"Resources": resources}, "")


def test_an_event_that_appears_as_started_is_prepared_for_late(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a", 'echo "$DRYDOCK_LATE $DRYDOCK_EVENT_STATUS"')
    machine, _ = stage.announced(starts_as="Started")
    assert machine.said() == PREPARED
    assert all(data["late"] for data in machine.reports())
    assert machine.reports()[1]["output"] == "1 Started\n"


def test_the_start_of_the_event_or_of_the_agent_runs_nothing(stage: Stage) -> None:
    machine, event_id = stage.prepared()
    machine.close()
    again = stage.start()
    again.work()
    stage.simulator.events.start(event_id)
    again.look()
    assert again.said() == PREPARED
    stage.simulator.events.complete(event_id)
    again.look()
    again.look()
    assert again.said() == PREPARED + RECOVERED


def test_recovering_follows_a_cancellation_too_and_knows_the_last_status(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    stage.hooks.add("recover", "10-b", 'echo "$DRYDOCK_EVENT_STATUS $DRYDOCK_PREPARED"')
    machine, cancelled = stage.announced()
    stage.simulator.events.cancel(cancelled)
    machine.look()
    completed = stage.announce()
    machine.look()
    stage.simulator.events.start(completed)
    machine.look()
    stage.simulator.events.complete(completed)
    machine.look()
    outputs = [data["output"] for data in machine.reports() if data["phase"] == "recover" and data["step"] == "hook"]
    assert outputs == ["Scheduled succeeded\n", "Started succeeded\n"]


@pytest.mark.parametrize("fault", ["empty", "garbage", "status-503", "reset", "incarnation-reset", "incarnation-jump"])
def test_unreadable_answers_and_incarnations_that_jump_run_nothing(stage: Stage, fault: str) -> None:
    machine, _ = stage.prepared()
    stage.simulator.fault("web-vm1", fault, count=2)
    for _ in range(3):
        machine.look()
    assert machine.said() == PREPARED


def test_event_that_ended_while_the_agent_was_stopped_is_recovered_at_the_first_document(stage: Stage) -> None:
    machine, event_id = stage.prepared()
    machine.close()
    stage.simulator.events.start(event_id)
    stage.simulator.events.complete(event_id)
    stage.simulator.fault("web-vm1", "empty", count=1)
    again = stage.start(boot=lambda: "after the reboot")
    again.look()
    assert again.said() == PREPARED
    again.look()
    assert again.said() == PREPARED + RECOVERED
    again.close()
    third = stage.start()
    third.look()
    assert third.said() == PREPARED + RECOVERED


def test_an_event_that_went_before_preparing_began_is_not_recovered_from(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    stage.hooks.add("recover", "10-b")
    machine = stage.start()
    first, second = stage.announce(), stage.announce()
    machine.poll()
    machine.hooks.step()
    stage.simulator.events.cancel(second)
    machine.look()
    assert {data["event_id"] for data in machine.reports()} == {first}


def test_hooks_of_two_events_never_take_turns_and_know_of_the_other_event(stage: Stage) -> None:
    for name in ("10-a", "20-b"):
        stage.hooks.add("prepare", name, 'echo "$DRYDOCK_OTHER_EVENTS"')
        stage.hooks.add("recover", name, 'echo "$DRYDOCK_OTHER_EVENTS"')
    machine = stage.start()
    first, second = stage.announce(), stage.announce("web-vm1", "web-vm2")
    stage.announce("web-vm2")
    machine.look()
    stage.simulator.events.cancel(first)
    machine.look()
    stage.simulator.events.cancel(second)
    machine.look()
    assert stage.hooks.lines() == [
        f"{phase} {name} {event_id}"
        for phase, event_id in (("prepare", first), ("prepare", second), ("recover", first), ("recover", second))
        for name in ("10-a", "20-b")
    ]
    others = [data["output"].strip() for data in machine.reports() if data["hook"] == "10-a"]
    assert others == [second, first, second, ""]


def test_preparing_for_one_event_goes_before_recovering_from_another(stage: Stage) -> None:
    machine, first = stage.prepared()
    stage.simulator.events.cancel(first)
    second = stage.announce()
    machine.look()
    assert stage.hooks.lines() == [f"prepare 10-a {first}", f"prepare 10-a {second}", f"recover 10-b {first}"]


def test_an_event_that_goes_in_the_middle_of_preparing_is_recovered_from_at_once(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    stage.hooks.add("prepare", "20-long")
    stage.hooks.add("recover", "10-b")
    machine = stage.start()
    event_id = stage.announce()
    machine.poll()
    machine.hooks.step()
    machine.hooks.step()
    stage.simulator.events.cancel(event_id)
    machine.look()
    assert machine.said() == [*PREPARED[:2], "prepare end failed", *RECOVERED]
    assert machine.reports()[2]["output"] == "The event was gone before all had run. Not run: 20-long."


@pytest.mark.parametrize("recovers", [False, True])
def test_that_nothing_prepares_is_said_once_for_an_event(stage: Stage, recovers: bool) -> None:
    if recovers:
        stage.hooks.add("recover", "10-b")
    machine, event_id = stage.announced()
    stage.simulator.events.cancel(event_id)
    machine.look()
    assert machine.said() == ["prepare end nothing", *(RECOVERED if recovers else [])]


def test_the_event_comes_as_json_as_azure_said_it_and_no_secret_comes_with_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRYDOCK_JOIN_TOKEN", "secret")
    stage.hooks.add("prepare", "10-a", "cat")
    stage.hooks.add("prepare", "20-b", "env | grep ^DRYDOCK_ | sort")
    machine = stage.start(timeout=30)
    event_id = stage.announce("web-vm1", "web-vm2", type="Freeze", description="a b", duration_seconds=9)
    machine.look()
    event = json.loads(machine.reports()[1]["output"])
    [listed] = json.loads(machine.imds.scheduled_events())["Events"]
    assert event == listed
    variables = dict(line.split("=", 1) for line in machine.reports()[2]["output"].splitlines())
    assert len(variables.pop("DRYDOCK_RUN")) == 32
    expected = {"PHASE": "prepare", "DRILL": "0", "LATE": "0", "PREPARED": "", "OTHER_EVENTS": "", "EVENT_ID": event_id}
    expected |= {"EVENT_TYPE": "Freeze", "EVENT_STATUS": "Scheduled", "EVENT_SOURCE": "Platform", "DESCRIPTION": "a b"}
    expected |= {"NOT_BEFORE": event["NotBefore"], "DURATION_SECONDS": "9", "RESOURCE_TYPE": "VirtualMachine"}
    expected |= {"RESOURCES": "web-vm1,web-vm2", "RESOURCE_NAME": "web-vm1", "HOOK_TIMEOUT_SECONDS": "30"}
    expected["MACHINE_ID"] = "00000000-0000-4000-8000-000000000001"
    assert variables == {f"DRYDOCK_{name}": value for name, value in expected.items()}


def test_nothing_runs_while_the_machine_has_no_name_and_what_is_listed_then_is_not_missed(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    nameless = stage.start(name="")
    stage.announce()
    nameless.look()
    assert nameless.said() == []
    nameless.close()
    named = stage.start()
    named.look()
    named.close()
    assert len(stage.hooks.lines()) == 1
    remembered = stage.start(name="")
    stage.announce()
    remembered.look()
    assert len(stage.hooks.lines()) == 2, "the name is remembered where the metadata cannot be read"


def test_a_full_disk_stops_no_hook_and_what_they_did_is_reported_later(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a", "echo done")
    stage.hooks.ran.touch()
    machine = stage.start()
    machine.look()
    event_id = stage.announce()
    with full_disk(machine.spool):
        machine.poll()
        machine.work()
        assert machine.said() == []
    assert stage.hooks.lines() == [f"prepare 10-a {event_id}"]
    machine.look()
    assert machine.said() == PREPARED
