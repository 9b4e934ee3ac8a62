"""Prepare that is planned for later: when it is planned, moved, brought forward and dropped."""

import json
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from drydock_agent.clock import to_text
from drydock_agent.hooks.events import IDLE_SECONDS, PLAN_CHECK_SECONDS
from drydock_agent.hooks.progress import prepare_at
from drydock_agent.settings.load import load

from tests.agent.hooks.conftest import Stage
from tests.agent.machine_hooks import Machine

PREPARED = ["prepare begin running", "prepare hook 10-a succeeded", "prepare end succeeded"]
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
