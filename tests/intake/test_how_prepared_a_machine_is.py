"""Preparation state: it follows from the hook results that a machine reports."""

from datetime import timedelta

import pytest
from drydock_agent import wire

from fleet.domain.intake import Prepared, prepared_of
from fleet.models import Entry, Preparation, ScheduledEvent
from tests.factories import EVENT, Fleet, announced, seconds, the_event
from tests.words import text

pytestmark = pytest.mark.django_db


def say(fleet: Fleet, name: str, phase: str, step: str, outcome: str, **fields: object) -> None:
    data = wire.HookData(event_id=EVENT.lower(), phase=phase, step=step, outcome=outcome, **fields)  # type: ignore[arg-type]
    fleet.report(name, data)


def word(name: str) -> Prepared:
    return prepared_of(Preparation.objects.get(machine__resource_name=name))


def test_a_machine_is_preparing_then_prepared_and_each_hook_is_an_entry(fleet: Fleet, event: ScheduledEvent) -> None:
    say(fleet, "vm1", "prepare", "begin", "running")
    assert word("vm1") is Prepared.PREPARING
    say(fleet, "vm1", "prepare", "hook", "succeeded", hook="10-drain", exit_status=0, seconds=3.21, output="drained\n")
    say(fleet, "vm1", "prepare", "end", "succeeded", seconds=3.3)
    assert word("vm1") is Prepared.PREPARED
    kinds = Entry.objects.filter(event=event, kind__startswith="hook").order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["hooks_began", "hook_succeeded", "hooks_ended"]
    line = Entry.objects.get(event=event, kind="hook_succeeded")
    assert text(line) == "Machine vm1: prepare hook 10-drain succeeded after 3.2 s."
    assert line.data["output"] == "drained\n"


def test_a_failed_hook_is_named_and_its_output_kept(fleet: Fleet, event: ScheduledEvent) -> None:
    say(fleet, "vm1", "prepare", "begin", "running", late=True)
    say(fleet, "vm1", "prepare", "hook", "failed", hook="10-drain", exit_status=3, seconds=1.0, output="no\x00luck")
    say(fleet, "vm1", "prepare", "end", "failed")
    assert word("vm1") is Prepared.FAILED
    row = Preparation.objects.get()
    assert (row.prepare_failed_hook, row.late) == ("10-drain", True)
    assert "failed with status 3" in text(Entry.objects.get(kind="hook_failed"))
    assert Entry.objects.filter(kind="hook_late").count() == 1


def test_a_machine_without_hooks_has_nothing_to_prepare_and_makes_no_noise(fleet: Fleet, event: ScheduledEvent) -> None:
    before = Entry.objects.count()
    say(fleet, "vm1", "prepare", "end", "nothing")
    assert word("vm1") is Prepared.NOTHING
    assert Entry.objects.count() == before


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (["recover begin running"], Prepared.RECOVERING),
        (["recover begin running", "recover end succeeded"], Prepared.RECOVERED),
        # Azure lists the event again after the recovery.
        (["recover end succeeded", "prepare plan planned"], Prepared.PLANNED),
        (["recover end succeeded", "prepare begin running"], Prepared.PREPARING),
    ],
)
def test_after_the_preparation_the_newest_phase_counts(fleet: Fleet, steps: list[str], found: Prepared) -> None:
    announced(fleet)
    for step in ("prepare end succeeded", *steps):
        say(fleet, "vm1", *step.split(), planned_at=fleet.now + seconds(60) if "plan" in step else None)
    assert word("vm1") is found


def test_a_plan_is_shown_until_the_hooks_begin_and_a_moved_one_replaces_it(fleet: Fleet, event: ScheduledEvent) -> None:
    for seconds_ahead in (3600, 600):
        say(fleet, "vm1", "prepare", "plan", "planned", planned_at=fleet.now + seconds(seconds_ahead))
    assert word("vm1") is Prepared.PLANNED
    assert Preparation.objects.get().prepare_planned_at == fleet.now + seconds(600)
    lines = list(Entry.objects.filter(kind="hooks_planned").order_by("id"))
    assert text(lines[1]) == f"Machine vm1 plans to prepare at {fleet.now + seconds(600):%Y-%m-%d %H:%M:%S} UTC."
    assert len(lines) == 2 and lines[0].event_id is not None
    say(fleet, "vm1", "prepare", "begin", "running")
    assert word("vm1") is Prepared.PREPARING


def test_a_word_behind_a_newer_one_is_history(fleet: Fleet, event: ScheduledEvent) -> None:
    agent = fleet.agents["vm1"]
    late = agent.report(wire.HookData(event_id=EVENT, phase="prepare", step="begin", outcome="running"), at=fleet.now)
    say(fleet, "vm1", "prepare", "end", "succeeded")
    fleet.record(agent.delivery(late))
    assert word("vm1") is Prepared.PREPARED


def test_unusable_hook_folder_is_recorded_with_its_reason(fleet: Fleet, event: ScheduledEvent) -> None:
    say(fleet, "vm1", "prepare", "end", "failed", output="The folder is writable for everybody.")
    assert word("vm1") is Prepared.FAILED
    assert text(Entry.objects.get(kind="hooks_ended")).endswith("failed. “The folder is writable for everybody.”")


@pytest.mark.parametrize("lost", [False, True])
def test_what_hooks_did_is_taken_again_where_a_restored_database_lost_it_and_nowhere_else(
    fleet: Fleet, event: ScheduledEvent, lost: bool
) -> None:
    agent, first = fleet.agents["vm1"], fleet.now
    said = [("begin", "running", ""), ("hook", "failed", "10-drain"), ("end", "failed", "")]
    if not lost:
        for step, outcome, name in said:
            say(fleet, "vm1", "prepare", step, outcome, hook=name)
    fleet.later(300)
    again = [
        wire.HookData(event_id=EVENT, phase="prepare", step=step, outcome=outcome, hook=name, again=True)
        for step, outcome, name in said
    ]
    fleet.record(agent.delivery(*(agent.report(data, at=first) for data in again)))
    row = Preparation.objects.get(machine=agent.machine)
    assert (row.prepare_outcome, row.prepare_failed_hook) == ("failed", "10-drain")
    assert (row.prepare_began_at, row.prepare_ended_at) == (first, first)
    kinds = Entry.objects.filter(machine=agent.machine, kind__startswith="hook").values_list("kind", flat=True)
    assert sorted(kinds) == ["hook_failed", "hooks_began", "hooks_ended"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_plan_is_taken_again_where_it_was_lost(fleet: Fleet, event: ScheduledEvent, lost: bool) -> None:
    planned_at = fleet.now + timedelta(days=6)
    for again in (True,) if lost else (False, True):
        say(fleet, "vm1", "prepare", "plan", "planned", again=again, planned_at=planned_at)
    assert Preparation.objects.get().prepare_planned_at == planned_at
    assert Entry.objects.filter(kind="hooks_planned").count() == 1


# A machine of another set cannot write to an event by knowing its EventId.


def test_what_its_hooks_say_is_not_about_the_event(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.enrol("admin", availability_set="db")
    say(fleet, "admin", "prepare", "end", "failed")
    say(fleet, "admin", "prepare", "plan", "planned", planned_at=fleet.now + seconds(60))
    assert not Preparation.objects.exists()
    line = Entry.objects.get(kind="hooks_ended")
    assert (line.event_id, line.availability_set_id) == (None, None)
    # Another machine of the set speaks for itself only.
    say(fleet, "vm1", "prepare", "end", "failed")
    assert Preparation.objects.get().machine.resource_name == "vm1"
    assert Entry.objects.filter(kind="hooks_ended", event=the_event()).count() == 1
