"""Quarantine: one event, approval, wave, drill or cache that fails to advance is isolated, and all others advance."""

from collections.abc import Callable
from typing import Any

import pytest
from drydock_agent import wire

from fleet.domain import events, gauges
from fleet.domain.caches import maintenances
from fleet.domain.scheduling import retry_pause
from fleet.models import (
    Approval,
    AvailabilitySet,
    Cache,
    Drill,
    Maintenance,
    Notification,
    Observation,
    QuarantinedRow,
    Wave,
)
from fleet.models.facts import decisions as wave_facts
from fleet.operations import drills, reconcile, waves
from fleet.operations import drills as drilling
from fleet.operations.approvals import conditions
from fleet.operations.approvals.approve import When
from fleet.operations.drills import Wanted
from fleet.operations.waves import begin as begin_wave
from fleet.projections import blind_spots
from fleet.projections.desk.gauges import measure
from tests.caches.walking import Listeners, line
from tests.dashboard.conftest import logged_in
from tests.factories import Fleet, acting, after, listing, open_order, operator, seconds, the_event, the_set
from tests.policy.conftest import made
from tests.words import sentence

pytestmark = pytest.mark.django_db

BAD, GOOD = "BAD00000-0000-4000-8000-000000000000", "C0D00000-0000-4000-8000-000000000000"


class Played(RuntimeError):
    pass


def breaker(patch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what lets a function of a module fail whenever one of its arguments is as told."""

    def broken(module: Any, name: str, is_bad: Callable[..., bool]) -> None:
        real = getattr(module, name)

        def played(*args: Any, **kwargs: Any) -> Any:
            if is_bad(*args, **kwargs):
                raise Played("\0no such luck")
            return real(*args, **kwargs)

        patch.setattr(module, name, played)

    return broken


@pytest.fixture
def break_when(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return breaker(monkeypatch)


def of_bad(witnesses: Any, **_: Any) -> bool:
    return any(w.listing is not None and w.listing.description == "bad" for w in witnesses)


def break_computing(break_when: Callable[..., None]) -> None:
    break_when(events, "compute_state", of_bad)
    break_when(reconcile, "compute_state", of_bad)


def both(fleet: Fleet) -> tuple[dict[str, Any], dict[str, Any]]:
    fleet.enrol_set(2)
    at = fleet.now + seconds(900)
    bad = listing(BAD, not_before=at, Description="bad")
    return bad, listing(GOOD, not_before=at, resources=("vm2",))


def quarantined() -> dict[str, int]:
    return {row.what: row.row_id for row in QuarantinedRow.objects.all()}


def test_reports_about_an_event_that_cannot_be_computed_are_kept_and_the_others_counted(
    break_when: Any, fleet: Fleet
) -> None:
    bad, good = both(fleet)
    break_computing(break_when)
    fleet.all_say(bad, good)
    assert the_event(GOOD).version == 1
    assert the_event(BAD).version == 0
    assert Observation.objects.filter(kind="document").count() == 4
    assert quarantined() == {"event": the_event(BAD).pk}
    assert "Played" in QuarantinedRow.objects.get().reason
    assert any(one.gauge is gauges.QUARANTINED and one.values == {("event",): 1} for one in measure(now=fleet.now))
    # It is shown among the blind spots.
    (spot,) = [spot for spot in blind_spots.overview(now=fleet.now).spots if spot.code == "set-aside"]
    assert sentence(spot.reason).startswith(f"The event {BAD} cannot be processed: Played")
    assert f'href="/events/{BAD}/"' in logged_in(operator()).get("/blind-spots/").content.decode()


def test_reconciliation_continues_retries_and_clears_the_quarantine(
    break_when: Any, monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    bad, good = both(fleet)
    fleet.all_say(bad, good)
    approval = fleet.approve(GOOD)
    with monkeypatch.context() as patch:
        break_computing(breaker(patch))
        for _ in range(20):
            fleet.later(5)
            fleet.heard()
            assert fleet.advance().ran
        row = QuarantinedRow.objects.get()
        assert (row.what, row.row_id) == ("event", the_event(BAD).pk)
        assert row.tries == 4, "after 0, 10, 30 and 70 seconds"
        assert open_order(approval).machine_id
    fleet.tick(retry_pause(row.tries).total_seconds())
    assert not QuarantinedRow.objects.exists()


def test_an_approval_that_waits_goes_without_the_others(break_when: Any, fleet: Fleet) -> None:
    bad, good = both(fleet)
    fleet.all_say(bad, good)
    reasons = {"other-event": "both"}
    for event_id in (BAD, GOOD):
        fleet.approve(event_id, when=When.TIME, due_at=fleet.now + seconds(10), overrides=reasons)
    break_when(conditions, "next_wait", lambda approval, facts, *_, **__: facts.event_id == BAD)
    fleet.tick(11)
    assert quarantined() == {"approval": Approval.objects.get(event__event_id=BAD).pk}
    assert Approval.objects.get(event__event_id=BAD).state == "WAITING"
    assert Approval.objects.get(event__event_id=GOOD).state != "WAITING"


def test_stages_that_fail_whole_do_not_keep_the_later_ones(break_when: Any, fleet: Fleet) -> None:
    _, good = both(fleet)
    fleet.all_say(good)
    made()
    for module in (drills, waves, conditions):
        break_when(module, "advance", lambda **_: True)
    with pytest.raises(Played):
        fleet.advance()
    assert Approval.objects.filter(event__event_id=GOOD).exists()


def test_a_cache_that_cannot_be_computed_keeps_its_lines_and_makes_up_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Listeners()
    fleet.enrol_set(2)
    bad, good = "bad.redis.cache.windows.net", "good.redis.cache.windows.net"
    with monkeypatch.context() as patch:
        breaker(patch)(
            maintenances,
            "operations_of",
            lambda rows: any(Notification.objects.get(raw_hash=row.key[:64]).cache.host == bad for row in rows),
        )
        lines = [wire.RedisData(cache=host, raw=line("NodeMaintenanceStarting") + f"|X|{host}") for host in (bad, good)]
        fleet.report("vm1", *lines)
        assert Notification.objects.count() == 2
        assert quarantined() == {"cache": Cache.objects.get(host=bad).pk}
        assert list(Maintenance.objects.values_list("cache__host", flat=True)) == [good]
    fleet.later(11)
    fleet.advance()
    assert not QuarantinedRow.objects.exists()
    assert Maintenance.objects.filter(cache__host=bad).count() == 1


def two_sets() -> Fleet:
    fleet = Fleet()
    fleet.enrol_set(2)
    fleet.enrol_set(2, prefix="db", availability_set="db")
    return fleet


def test_a_drill_that_cannot_be_advanced_does_not_keep_the_other_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = two_sets()
    bad, good = drill_of(fleet, "db"), drill_of(fleet, "web")
    with monkeypatch.context() as patch:
        breaker(patch)(drills, "_ending", lambda drill, now: drill.pk == bad.pk)
        fleet.now = max(bad.ends_by, good.ends_by) + seconds(1)
        fleet.heard()
        fleet.advance()
        assert quarantined() == {"drill": bad.pk}
        assert (after(bad).closed_at is None, after(good).closed_at is None) == (True, False)
    fleet.tick(11)
    assert after(bad).closed_at is not None
    assert quarantined() == {}


def drill_of(fleet: Fleet, name: str) -> Drill:
    actor = acting(operator(), why="every spring")
    return drilling.begin(set_id=the_set(name).pk, actor=actor, now=fleet.now, wanted=Wanted())


@pytest.mark.parametrize("where", ["ending", "whose turn"])
def test_a_wave_that_cannot_be_advanced_stops_no_other_and_no_rule(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = two_sets()
    AvailabilitySet.objects.filter(name="web").update(service="shop")
    AvailabilitySet.objects.filter(name="db").update(service="books")
    at = fleet.now + seconds(1800)
    for event_id, prefix in ((GOOD, "vm"), (BAD, "db")):
        second = event_id.replace("-4000-", "-4001-")
        both_of = [listing(one, resources=[prefix + "1"], not_before=at) for one in (event_id, second)]
        fleet.all_say(*both_of, names=[prefix + "1", prefix + "2"])
    actor = acting(operator(), why="so")
    good, bad = (begin_wave(actor=actor, service=one, now=fleet.now) for one in ("shop", "books"))
    with monkeypatch.context() as patch:
        module = waves if where == "ending" else wave_facts
        breaker(patch)(module, "judge", lambda members, **_: any(one.set_id == the_set("db").pk for one in members))
        # Azure takes both back, so both waves are over.
        fleet.later(5)
        fleet.all_say()
        fleet.enrol("new1", availability_set="new")
        fleet.say("new1", listing("2E000000-0000-4000-8000-000000000009", resources=["new1"], not_before=at))
        made()
        for _ in range(3):
            fleet.tick(2)
        assert bad.pk in QuarantinedRow.objects.filter(what="wave").values_list("row_id", flat=True)
        assert Wave.objects.get(pk=good.pk).state != "RUNNING"
        assert Approval.objects.filter(event__event_id__startswith="2E").exists(), "rules continue"
    for _ in range(3):
        fleet.tick(11)
    assert Wave.objects.get(pk=bad.pk).state != "RUNNING"
    assert quarantined() == {}
