"""Prepare and recover: when hooks run, when they are planned for later, and what is reported of them."""

import json
import re
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from drydock_agent.clock import to_text
from drydock_agent.hooks.events import IDLE_SECONDS, PLAN_CHECK_SECONDS
from drydock_agent.hooks.progress import names, prepare_at
from drydock_agent.settings.load import load

from tests.agent.agents import Machine, full_disk
from tests.agent.hooks.conftest import Stage
from tests.processes import ROOT

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
    assert machine.said() == [*PREPARED[:2], "prepare hook 20-z succeeded", PREPARED[2]]
    assert {data["event_id"] for data in machine.reports()} == {event_id}
    ended = machine.reports()[1]
    assert (ended["exit_status"], ended["late"], 0 <= ended["seconds"] < 5) == (0, False, True)


def test_advice_and_events_of_other_machines_are_prepared_for_by_no_hook(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    machine = stage.start()
    other = stage.announce("web-vm2")
    machine.look()
    stage.happens("cancel", other, machine)
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
    stage.happens("start", event_id, again)
    assert again.said() == PREPARED
    stage.happens("complete", event_id, again)
    again.look()
    assert again.said() == PREPARED + RECOVERED


def test_recovering_follows_a_cancellation_too_and_knows_the_last_status(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a")
    stage.hooks.add("recover", "10-b", 'echo "$DRYDOCK_EVENT_STATUS $DRYDOCK_PREPARED"')
    machine, cancelled = stage.announced()
    stage.happens("cancel", cancelled, machine)
    completed = stage.announce()
    machine.look()
    stage.happens("start", completed, machine)
    stage.happens("complete", completed, machine)
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
    stage.happens("cancel", second, machine)
    assert {data["event_id"] for data in machine.reports()} == {first}


def test_hooks_of_two_events_never_take_turns_and_know_of_the_other_event(stage: Stage) -> None:
    for name in ("10-a", "20-b"):
        stage.hooks.add("prepare", name, 'echo "$DRYDOCK_OTHER_EVENTS"')
        stage.hooks.add("recover", name, 'echo "$DRYDOCK_OTHER_EVENTS"')
    machine = stage.start()
    first, second = stage.announce(), stage.announce("web-vm1", "web-vm2")
    stage.announce("web-vm2")
    machine.look()
    stage.happens("cancel", first, machine)
    stage.happens("cancel", second, machine)
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
    stage.happens("cancel", event_id, machine)
    assert machine.said() == [*PREPARED[:2], "prepare end failed", *RECOVERED]
    assert machine.reports()[2]["output"] == "The event was gone before all had run. Not run: 20-long."


@pytest.mark.parametrize("recovers", [False, True])
def test_that_nothing_prepares_is_said_once_for_an_event(stage: Stage, recovers: bool) -> None:
    if recovers:
        stage.hooks.add("recover", "10-b")
    machine, event_id = stage.announced()
    stage.happens("cancel", event_id, machine)
    assert machine.said() == ["prepare end nothing", *(RECOVERED if recovers else [])]


def test_the_event_comes_as_azure_said_it_and_without_secrets(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
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
    page = (ROOT / "docs" / "admin" / "hooks.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(DRYDOCK_\w+)` \|", page, re.MULTILINE)) == sorted([*variables, "DRYDOCK_RUN"])


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


PLANNED = "prepare plan planned"
WEEK = timedelta(days=7)


def minutes_of(text: str) -> Any:
    return load({"DRYDOCK_FLEET_URL": "https://drydock.example", "DRYDOCK_PREPARE_MINUTES": text}).prepare_minutes


def listed(event_id: str = "E-1", **fields: Any) -> dict[str, Any]:
    event = {"EventId": event_id, "EventType": "Redeploy", "EventStatus": "Scheduled", "Resources": ["web-vm1"]}
    return {**event, **fields}


class Planning:
    """web-vm1 with a prepare hook, whose metadata service lists what the test says."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.clock = stage, stage.clock
        self.hook = stage.hooks.add("prepare", "10-a", 'echo "late $DRYDOCK_LATE"')
        self.machine = stage.start()
        self.not_before = (self.clock.now() + WEEK).replace(microsecond=0)

    def see(self, *events: dict[str, Any]) -> float:
        """The metadata service lists these events. Return the seconds until the next check of the hooks."""
        self.machine.hooks.update_listed(json.dumps({"DocumentIncarnation": 1, "Events": events}).encode())
        return self.work()

    def announce(self, *event_ids: str, not_before: datetime | None = None) -> float:
        text = format_datetime(not_before or self.not_before, usegmt=True)
        return self.see(*(listed(event_id, NotBefore=text) for event_id in event_ids or ("E-1",)))

    def work(self) -> float:
        while (pause := self.machine.hooks.step()) == 0.0:
            pass
        return pause

    def restart(self, **settings: Any) -> Machine:
        self.machine.close()
        self.machine = self.stage.start(**settings)
        return self.machine

    def planned(self) -> list[datetime]:
        return [datetime.fromisoformat(data["planned_at"]) for data in self.machine.reports() if data["step"] == "plan"]


@pytest.fixture
def it(stage: Stage) -> Planning:
    return Planning(stage)


def test_an_event_a_week_ahead_is_prepared_for_an_hour_before(it: Planning) -> None:
    assert it.announce() == PLAN_CHECK_SECONDS
    assert it.machine.said() == [PLANNED] and it.planned() == [it.not_before - timedelta(hours=1)]
    it.clock.advance((WEEK - timedelta(minutes=61)).total_seconds())
    it.work()
    assert it.stage.hooks.lines() == []
    it.clock.advance(61)
    assert it.work() == IDLE_SECONDS
    assert it.machine.said() == [PLANNED, *PREPARED]
    it.see()
    assert it.machine.said() == [PLANNED, *PREPARED, "recover end nothing"]


NO_TIME = [None, "", "soon", ["a"], "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"]
NO_TIME.append("Fri, 31 Dec 9999 23:59:59 GMT")


@pytest.mark.parametrize("fields", [*({"NotBefore": text} for text in NO_TIME), {"EventStatus": "Started"}])
def test_without_a_later_time_the_machine_prepares_at_once(it: Planning, fields: dict[str, Any]) -> None:
    it.see(listed(**{"NotBefore": "", **fields}))
    assert it.machine.said() == PREPARED


@pytest.mark.parametrize(
    ("setting", "event_type", "before"),
    [
        ("60", "Redeploy", 60),
        ("now", "Redeploy", None),
        ("10,Redeploy=120", "Redeploy", 120),
        ("10,Redeploy=120", "Freeze", 10),
        ("Freeze=5", "Redeploy", 60),
        ("Freeze=5", "freeze", 5),
        ("120, redeploy=now", "Redeploy", None),
        ("0.5", "Quarantine", 0.5),
    ],
)
def test_the_time_is_set_by_type(setting: str, event_type: str, before: float | None) -> None:
    at = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)
    for text in ("Tue, 01 Dec 2026 12:00:00 GMT", "Sun, 01 Dec 2026 12:00:00 GMT", "2026-12-01T12:00:00Z"):
        expected = None if before is None else at - timedelta(minutes=before)
        assert prepare_at(listed(EventType=event_type, NotBefore=text), minutes_of(setting)) == expected


def test_an_event_of_another_machine_is_not_planned(it: Planning) -> None:
    text = format_datetime(it.not_before, usegmt=True)
    it.see(listed(Resources=["web-vm2"], NotBefore=text), listed("E-2", EventType="SpotRebalanceRecommendation"))
    assert it.machine.said() == []


def test_where_nothing_prepares_or_the_folder_is_refused_this_is_reported_at_once(it: Planning) -> None:
    it.hook.parent.chmod(0o777)
    it.announce()
    it.hook.parent.chmod(0o755)
    it.hook.unlink()
    it.announce("E-1", "E-2")
    assert it.machine.said() == ["prepare end failed", "prepare end nothing"]


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_moved_notbefore_moves_the_plan(it: Planning, hours: float) -> None:
    it.announce()
    moved = it.not_before + timedelta(hours=hours)
    for _ in range(2):
        it.announce(not_before=moved)
    assert it.planned() == [at - timedelta(hours=1) for at in (it.not_before, moved)]
    it.announce(not_before=it.clock.now() + timedelta(minutes=5))
    assert it.machine.said() == [PLANNED, PLANNED, *PREPARED]


def test_a_cancelled_event_drops_its_plan_and_is_not_recovered_from(it: Planning) -> None:
    it.stage.hooks.add("recover", "10-b")
    it.announce()
    assert it.see() == IDLE_SECONDS
    it.clock.advance(WEEK.total_seconds())
    it.work()
    assert it.machine.said() == [PLANNED]


def test_a_start_prepares_at_once_and_late(it: Planning) -> None:
    it.announce()
    it.see(listed(EventStatus="Started", NotBefore=""))
    assert it.machine.said() == [PLANNED, *PREPARED]
    assert it.machine.reports()[2]["output"] == "late 1\n"


def test_a_decided_start_prepares_at_once_and_for_this_event_only(it: Planning) -> None:
    it.announce("E-1", "E-2")
    it.machine.hooks.prepare_now(["e-2", "E-3"])
    assert it.machine.hooks.wake.is_set()
    it.work()
    assert it.stage.hooks.lines() == ["prepare 10-a E-2"]
    assert it.machine.reports()[3]["output"] == "late 0\n"
    # A notice for an event that is not listed does nothing later.
    it.announce("E-1", "E-2", "E-3")
    assert it.stage.hooks.lines() == ["prepare 10-a E-2"]


def test_with_a_backend_that_reports_no_decisions_nothing_is_planned(it: Planning) -> None:
    it.announce()
    it.machine.hooks.prepare_now(None)
    it.work()
    assert it.machine.said() == [PLANNED, *PREPARED]
    it.see()
    it.announce("E-2")
    assert it.machine.said()[-3:] == PREPARED
    it.machine.hooks.prepare_now([])
    it.announce("E-2", "E-3")
    assert it.machine.said()[-1] == PLANNED


def test_a_plan_survives_a_restart_and_is_reported_once(it: Planning) -> None:
    it.announce()
    it.restart()
    assert it.work() == IDLE_SECONDS, "without a document nothing is known"
    it.announce()
    assert it.machine.said() == [PLANNED]
    it.restart(prepare_minutes=minutes_of("Redeploy=120"))
    it.announce()
    assert it.planned()[1:] == [it.not_before - timedelta(hours=2)], "the setting was changed"
    it.clock.advance(WEEK.total_seconds())
    it.restart()
    it.announce()
    assert it.machine.said() == [PLANNED, PLANNED, *PREPARED]


def test_a_wrong_clock_prepares_early_never_late(it: Planning) -> None:
    server_clock = it.machine.context.server_clock
    server_clock.contact(it.clock.now(), it.clock.monotonic())
    it.announce()
    it.clock.step(-3 * WEEK.total_seconds())
    it.work()
    assert it.machine.said() == [PLANNED], "a step alone changes no plan"
    it.clock.advance((WEEK - timedelta(minutes=59)).total_seconds())
    it.work()
    assert it.machine.said() == [PLANNED, *PREPARED], "the backend's clock counts, without the backend"
    it.clock.step(8 * WEEK.total_seconds())
    it.announce("E-1", "E-2", not_before=it.clock.now() - timedelta(days=1))
    assert it.machine.said()[4:] == PREPARED


def test_hooks_of_a_planned_event_wait_for_those_of_another_and_no_longer_than_their_timeout(it: Planning) -> None:
    it.stage.hooks.add("prepare", "05-hang", 'test "$DRYDOCK_EVENT_ID" = E-1 && sleep 60; true')
    it.restart(timeout=0.5)
    it.announce("E-1", "E-2")
    it.clock.advance((WEEK - timedelta(minutes=30)).total_seconds())
    it.work()
    ended = [data for data in it.machine.reports() if data["step"] == "end"]
    assert [(data["event_id"], data["outcome"]) for data in ended] == [("E-1", "timed-out"), ("E-2", "succeeded")]


def test_plans_of_a_thousand_events_are_reported_and_kept(it: Planning) -> None:
    names = [f"E-{number}" for number in range(1000)]
    assert it.announce(*names) == PLAN_CHECK_SECONDS
    assert len(it.machine.spool.batch(2000, 1 << 30)) == 1000
    it.machine.hooks.prepare_now(names[:3])
    it.work()
    assert len(it.stage.hooks.lines()) == 3
    assert len(it.machine.spool.batch(2000, 1 << 30)) == 1009


def test_plans_are_reported_again_to_a_backend_that_lost_them(it: Planning) -> None:
    it.announce()
    it.machine.hooks.resend()
    it.work()
    first, again = it.machine.reports()
    assert (first["again"], again["again"]) == (False, True)
    assert first["planned_at"] == again["planned_at"] == to_text(it.not_before - timedelta(hours=1))
