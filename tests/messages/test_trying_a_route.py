"""Route dry runs: they count past notifications by type, week and night hours, at a constant cost."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.domain.history import MILESTONES
from fleet.models import Cache, Entry
from fleet.models.people import Scope
from fleet.notifications import dry_run
from fleet.notifications.notification_types import TYPE_OF_ENTRY
from fleet.notifications.routing import StandingRoute
from tests import factories
from tests.factories import NOW, Fleet
from tests.plans import is_answered_by
from tests.words import sentence, sentences

pytestmark = pytest.mark.django_db


def tried(fleet: Fleet, person: User | None = None, at: datetime | None = None, **said: Any) -> dry_run.RouteDryRun:
    return dry_run.dry_run(route=StandingRoute(**said), now=at or fleet.now, person=person)


def moments(found: dry_run.RouteDryRun) -> dict[str, int]:
    return {one.moment: one.messages for one in found.by_notification_type}


def test_what_happened_is_counted_and_the_newest_stand_by_name(fleet: Fleet) -> None:
    event = factories.freeze_completed(fleet)
    found = tried(fleet)
    assert moments(found) == {
        "event.first_seen": 1,
        "approval.decided": 1,
        "event.started": 1,
        "event.ended": 1,
    }
    assert sentence(found.sentence) == "In the last 30 days: 4 notifications, 4 at night."
    newest = found.newest[0]
    assert (newest.moment, newest.event, newest.event_type, newest.severity) == (
        "event.ended", event.event_id, "Freeze", "info",
    )  # fmt: skip
    assert newest.set is not None and newest.set.name == "web"
    assert [week.messages for week in found.by_week] == [4]
    assert len(sentences(found.unknown)) == 3
    assert not found.more


def test_a_route_that_names_something_counts_that(fleet: Fleet) -> None:
    factories.freeze_completed(fleet)
    assert tried(fleet, event_types=("Reboot",)).messages == 0
    assert tried(fleet, severities=("info",), set_pattern="w*").messages == 4
    found = tried(fleet, moments=("event.ended",), enabled=False)
    assert (found.messages, found.considered) == (1, 4)
    assert (found.wording.code, found.wording.values["moments"]) == ("route", ["event.ended"])
    assert sentence(tried(fleet, service="none").sentence) == "In the last 30 days: no notification."


def test_nights_and_weeks_are_those_of_the_routes_zone() -> None:
    sunday = Fleet(now=datetime(2022, 4, 10, 23, 30, tzinfo=UTC))
    factories.announced(sunday)
    found = tried(sunday)
    assert (found.outside_working_hours, found.by_week[0].begins) == (1, "2022-04-04")
    found = tried(sunday, time_zone="Pacific/Auckland")
    assert (found.outside_working_hours, found.by_week[0].begins) == (0, "2022-04-11")


def test_hours_of_the_route_count_at_the_time_of_each(fleet: Fleet) -> None:
    factories.announced(fleet)
    assert tried(fleet, from_time=time(7), until_time=time(22)).messages == 0
    assert tried(fleet, from_time=time(22), until_time=time(7)).messages == 1


def test_escalation_counts_only_while_unclaimed(fleet: Fleet) -> None:
    event = factories.announced(fleet)
    assert tried(fleet, unclaimed_after_seconds=120).newest[0].at == event.first_seen_at + timedelta(minutes=2)
    assert event.not_before is not None
    assert tried(fleet, before_decide_by_seconds=60).newest[0].at < event.not_before - timedelta(seconds=60)
    at = event.first_seen_at + timedelta(seconds=60)
    Entry.objects.create(kind="event_claimed", at=at, event=event, actor="ada", via="page", text="")
    assert tried(fleet, unclaimed_after_seconds=120).messages == 0
    assert tried(fleet, unclaimed_after_seconds=30).messages == 1
    assert tried(fleet, before_decide_by_seconds=60).messages == 1


def test_an_older_event_is_not_looked_at(fleet: Fleet) -> None:
    factories.freeze_completed(fleet)
    assert tried(fleet, at=fleet.now + timedelta(days=31)).considered == 0


def test_preview_of_too_many_events_uses_the_newest_and_states_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.announced(fleet)
    monkeypatch.setattr(dry_run, "MOST", 1)
    fleet.say("vm1", *(factories.listing(f"E-{number}") for number in range(3)))
    found = tried(fleet, moments=("event.first_seen",))
    assert (found.messages, found.more) == (1, True)


def test_cache_maintenances_count_by_their_service(fleet: Fleet) -> None:
    cache = Cache.objects.create(host="c.redis.cache.windows.net", service="shop", created_at=NOW)
    Entry.objects.create(kind="maintenance_scheduled", at=fleet.now, cache=cache, text="")
    assert moments(tried(fleet, service="shop")) == {"maintenance.announced": 1}
    assert tried(fleet, set_pattern="c*").messages == 0
    assert tried(fleet).newest[0].cache is not None


def test_for_one_alone_what_they_may_not_hear_is_left_out(fleet: Fleet, settings: Any) -> None:
    factories.freeze_completed(fleet)
    vera = factories.viewer()
    assert tried(fleet, person=vera).messages == 4
    settings.SCOPED_READ_ACCESS = True
    Scope.objects.create(user=vera, kind="name", pattern="db")
    assert tried(fleet, person=User.objects.get(pk=vera.pk)).messages == 0


def test_it_costs_the_same_whatever_happened(fleet: Fleet, django_assert_num_queries: Any) -> None:
    factories.announced(fleet)
    with django_assert_num_queries(3):
        tried(fleet)
    fleet.say("vm1", *(factories.listing(f"E-{number}") for number in range(20)))
    with django_assert_num_queries(3):
        tried(fleet)


def test_the_past_is_read_by_index_however_long_the_timeline_is(fleet: Fleet) -> None:
    factories.freeze_completed(fleet)
    since = fleet.now - dry_run.LOOKS_BACK
    assert is_answered_by(dry_run.events_since(since), "event_newest")
    assert is_answered_by(dry_run.upkeep_since(since), "entry_of_milestones")
    assert is_answered_by(dry_run.entries_of([1, 2, 3]), "entry_by_event")


def test_cache_entries_of_the_dry_run_are_indexed() -> None:
    caches = {kind.value for kind in TYPE_OF_ENTRY if kind.value.startswith("maintenance_")}
    assert caches == {kind.value for kind in dry_run.OF_CACHES} <= set(MILESTONES)
