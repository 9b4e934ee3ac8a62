"""Waves on the real rows: begun whole or not at all, one after the other, stopped by themselves."""

from typing import Any

import pytest

from fleet.domain.actor import DRYDOCK
from fleet.domain.states import ApprovalState
from fleet.models import Approval, AvailabilitySet, Entry, Wave
from fleet.models.facts.decisions import whose_turn
from fleet.operations import waves
from fleet.operations.approvals import approve, claims, conditions
from fleet.operations.orders.advance import close
from fleet.projections import waves as projections
from fleet.projections.events.detail import event_detail
from fleet.projections.timeline import entries
from tests import factories
from tests.approvals.asking import refused
from tests.factories import Fleet, acting, after, listing, open_order, operator, seconds
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db

FIRST, SECOND, THIRD = (f"0A1B2C3D-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))


class Walk:
    """A service of two sets, three machines in one and two in the other, with three events that wait."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.fleet.enrol_set(3)
        self.fleet.enrol_set(2, prefix="db", availability_set="db")
        AvailabilitySet.objects.update(service="shop")
        due = ((FIRST, "vm1", 900), (SECOND, "vm2", 1800), (THIRD, "db1", 2700))
        self.open: dict[str, dict[str, Any]] = {
            event_id: {"resources": (name,), "not_before": self.fleet.now + seconds(count), "event_type": "Reboot"}
            for event_id, name, count in due
        }
        self.fleet.later(1)
        self.tell()

    def tell(self, silent: str = "") -> None:
        """Every machine reports what is open in its set; `silent` says nothing."""
        for prefix in ("vm", "db"):
            here = [listing(one, **known) for one, known in self.open.items() if known["resources"][0][:2] == prefix]
            names = [name for name in self.fleet.agents if name[:2] == prefix and name != silent]
            self.fleet.all_say(*here, names=names)

    def begin(self, *event_ids: str, **fields: Any) -> Wave:
        by = acting(operator(), why="patch night")
        return waves.begin(actor=by, events=event_ids, now=self.fleet.now, **fields)

    def goes(self, event_id: str, *, silent: str = "") -> None:
        """Azure answers 200, the event starts, and is gone."""
        approval = Approval.objects.get(event__event_id=event_id, state__in=["GRANTED", "RELAYING"])
        self.fleet.receipt(open_order(approval))
        self.fleet.later(5)
        self.open[event_id]["status"] = "Started"
        self.tell()
        self.fleet.later(30)
        del self.open[event_id]
        self.fleet.later(1)
        self.tell(silent)
        self.fleet.advance()

    def states(self) -> list[str]:
        return list(Approval.objects.filter(wave__isnull=False).order_by("turn").values_list("state", flat=True))


def test_wave_runs_in_sequence_and_reports_its_end() -> None:
    walk = Walk()
    wave = walk.begin(service="shop")
    assert walk.states() == ["GRANTED", "WAITING", "WAITING"], "the soonest first, and at once"
    found = event_detail(event_id=SECOND, now=walk.fleet.now)
    assert (found.event.approval.wave, found.event.approval.turn) == (wave.pk, 2)
    shown = projections.detail(wave_id=wave.pk, now=walk.fleet.now)
    assert shown.reason.code == "wave-waits-for-order"
    told = [one.sentence.code for one in shown.members]
    assert told == ["wave-member-on-its-way", "wave-waits-for-order", "wave-member-ahead"]
    walk.goes(FIRST)
    assert walk.states() == ["CONFIRMED", "GRANTED", "WAITING"]
    walk.goes(SECOND)
    walk.goes(THIRD)
    assert walk.states() == ["CONFIRMED"] * 3
    walk.fleet.advance()
    assert (after(wave).state, code_of(wave.reason), sentence(wave.reason)[:6]) == ("DONE", "wave-summary", "3 of 3")
    lines = Entry.objects.filter(kind__startswith="wave").order_by("id")
    assert [(line.kind, factories.who(line)) for line in lines] == [("wave_began", "otto"), ("wave_ended", "Drydock")]
    assert [row.kind for row in entries.fleet(size=500).results if row.kind.startswith("wave")], "it can be shown"


def test_the_next_waits_for_the_machine_of_the_one_before_and_the_wave_stops_when_it_stays_away(settings: Any) -> None:
    settings.WAVE_RETURN_SECONDS = 120
    walk = Walk()
    wave = walk.begin(FIRST, SECOND, THIRD)
    walk.goes(FIRST, silent="vm1")
    # The event is not over before vm1 is known to be silent: its word counts as long as it is live.
    reasons = set()
    for _ in range(8):
        assert walk.states() == ["CONFIRMED", "WAITING", "WAITING"], "vm1 has said nothing since the end"
        shown = projections.detail(wave_id=wave.pk, now=walk.fleet.now)
        reasons.add(shown.reason.code)
        walk.fleet.later(20)
        walk.tell("vm1")
        walk.fleet.advance()
        if walk.states()[1] == "WITHDRAWN":
            break
    assert reasons == {"wave-waits-for-end", "wave-waits-for-return"}
    assert walk.states() == ["CONFIRMED", "WITHDRAWN", "WITHDRAWN"]
    assert after(wave).state == "STOPPED"
    assert code_of(wave.reason) == "wave-not-back"
    entry = Entry.objects.get(kind="wave_stopped")
    assert sentence(wave.reason) in text(entry)
    left = Approval.objects.get(event__event_id=SECOND)
    assert sentence(left.reason) == f"Wave {wave.pk} stopped: {sentence(wave.reason)}"
    found = event_detail(event_id=SECOND, now=walk.fleet.now)
    assert found is not None and found.event.needs_decision


def test_machine_that_returns_in_time_and_another_event_that_azure_starts_meanwhile_are_waited_for() -> None:
    walk = Walk()
    wave = walk.begin(FIRST, SECOND)
    other = "0A1B2C3D-0000-4000-8000-000000000009"
    walk.open[other] = {"resources": ("vm3",), "event_type": "Reboot", "status": "Started"}
    walk.goes(FIRST, silent="vm1")
    walk.fleet.later(30)
    walk.tell()
    walk.fleet.advance()
    assert walk.states() == ["CONFIRMED", "WAITING"], "vm3 is down, in another fault domain"
    shown = projections.detail(wave_id=wave.pk, now=walk.fleet.now)
    assert (shown.reason.code, shown.members[1].sentence.code) == ("wave-kept", "wave-kept")
    assert "Another event of this set is under way" in sentence(shown.reason)
    del walk.open[other]
    walk.fleet.later(1)
    walk.tell()
    walk.fleet.advance()
    assert walk.states() == ["CONFIRMED", "GRANTED"]


def test_an_event_that_is_withdrawn_cancelled_or_too_late_is_left_out() -> None:
    walk = Walk()
    wave = walk.begin(FIRST, SECOND, THIRD)
    second = Approval.objects.get(event__event_id=SECOND)
    conditions.withdraw(approval_id=second.pk, actor=acting(operator(), why="not this one"), now=walk.fleet.now)
    walk.goes(FIRST)
    assert walk.states() == ["CONFIRMED", "WITHDRAWN", "GRANTED"]
    walk.fleet.later(1)
    del walk.open[THIRD]
    walk.tell()
    walk.fleet.later(10)
    walk.tell()
    walk.fleet.advance()
    walk.fleet.advance()
    assert after(wave).state == "DONE"
    assert (code_of(wave.reason), sentence(wave.reason)[:6]) == ("wave-summary", "1 of 3")
    assert "Reboot of vm2 (otto withdrew" in sentence(wave.reason)


def test_stopped_wave_continues_only_dispatched_events() -> None:
    walk = Walk()
    wave = walk.begin(FIRST, SECOND)
    waves.stop(wave_id=wave.pk, actor=acting(operator("olga"), why="the load is rising"), now=walk.fleet.now)
    assert (after(wave).state, sentence(wave.reason)) == ("STOPPED", "olga stopped the wave. “the load is rising”")
    assert walk.states() == ["GRANTED", "WITHDRAWN"]
    again = refused(lambda: waves.stop(wave_id=wave.pk, actor=acting(operator()), now=walk.fleet.now))
    assert again.code == "too-late"
    assert refused(lambda: waves.stop(wave_id=99, actor=acting(operator()), now=walk.fleet.now)).code == "unknown-wave"


def test_wave_begins_whole_or_is_refused_with_its_guards() -> None:
    walk = Walk()
    walk.fleet.approve(SECOND, by=operator("olga"))
    claims.hold(event_id=THIRD, actor=acting(operator(), why="the books are closed tonight"), now=walk.fleet.now)
    error = refused(lambda: walk.begin(FIRST, SECOND, THIRD))
    assert error.code == "guarded"
    codes = {one["event_id"]: one["code"] for one in error.details["events"]}
    assert codes == {SECOND: "already-decided", THIRD: "guarded"}
    assert not Wave.objects.exists() and Approval.objects.count() == 1
    wave = walk.begin(FIRST, THIRD, overrides={"held": "agreed with accounting"})
    third = Approval.objects.get(event__event_id=THIRD)
    assert [one["reason"] for one in third.overrides] == ["agreed with accounting"]
    assert refused(lambda: walk.begin(FIRST, THIRD)).details["wave"] == wave.pk


def test_what_a_wave_takes() -> None:
    walk = Walk()
    assert refused(lambda: walk.begin(FIRST)).code == "validation"
    assert refused(lambda: walk.begin(FIRST, "NO-SUCH-EVENT")).code == "unknown-event"
    AvailabilitySet.objects.filter(name="db").update(service="other")
    assert "belong to one service" in sentence(refused(lambda: walk.begin(FIRST, THIRD)))
    AvailabilitySet.objects.filter(name="web").update(second_person=True)
    error = refused(lambda: walk.begin(FIRST, SECOND))
    assert "propose this event separately" in sentence(error.details["events"][0]["sentence"])
    assert not Approval.objects.exists()


def test_one_turn_at_a_time_also_when_two_workers_look_at_once() -> None:
    walk = Walk()
    wave = walk.begin(FIRST, SECOND, THIRD)
    first, now = Approval.objects.get(event__event_id=FIRST), walk.fleet.now
    facts = approve.load_facts_locked(first.event_id, now=now)
    close(first, ApprovalState.WITHDRAWN, DRYDOCK, facts=facts, now=now, reason="out of the way")
    once = whose_turn({wave.pk}, now=walk.fleet.now)
    assert once == whose_turn({wave.pk}, now=walk.fleet.now) and len(once) == 1
    walk.fleet.advance()
    assert walk.states() == ["WITHDRAWN", "GRANTED", "WAITING"]
    assert whose_turn({wave.pk}, now=walk.fleet.now) == set()
