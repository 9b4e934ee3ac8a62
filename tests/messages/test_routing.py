"""Routes match what they name, where and when they name it; pauses between attempts grow and stay bounded."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.history import MILESTONES
from fleet.domain.people import Place, Rights
from fleet.domain.sets import PROVISIONAL
from fleet.models import Cache, Entry
from fleet.models.people import Scope
from fleet.notifications import dry_run, routing
from fleet.notifications.models import Route
from fleet.notifications.notification_types import ROUTED_ENTRIES, NotificationType
from fleet.notifications.routing import MessageFacts, may_receive, pause_seconds
from tests import factories
from tests.factories import Fleet
from tests.plans import is_answered_by
from tests.words import sentence

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
WEB = Place("availability_set", "web", "shop", "shop-rg")
UNNAMED = Place(PROVISIONAL, "web", "shop", "shop-rg")


def facts(**fields: Any) -> MessageFacts:
    known: dict[str, Any] = {
        "moment": NotificationType.FIRST_SEEN,
        "at": NOW,
        "severity": "warning",
        "event_type": "Reboot",
        "source": "Platform",
        "place": WEB,
    }
    return MessageFacts(**{**known, **fields})


INSTALLATION = facts(moment=NotificationType.AUDIT_FAILED, event_type="", source="", place=None)
CACHE = Place("cache", "", "shop")
OF_A_CACHE = facts(moment=NotificationType.MAINTENANCE_ANNOUNCED, event_type="", source="", place=CACHE)


def wants(what: MessageFacts, at: datetime = NOW, **fields: Any) -> bool:
    return Route(**fields).matches(what, now=at)


@pytest.mark.parametrize(
    ("named", "other"),
    [
        ({"moments": ("event.first_seen", "event.ended")}, {"moments": ("event.ended",)}),
        ({"event_types": ("reboot",)}, {"event_types": ("Freeze",)}),
        ({"sources": ("Platform",)}, {"sources": ("User",)}),
        ({"severities": ("critical", "warning")}, {"severities": ("critical",)}),
        ({"set_pattern": "W*"}, {"set_pattern": "db*"}),
        ({"service": "shop"}, {"service": "bank"}),
        ({"resource_group": "shop-??"}, {"resource_group": "other"}),
        ({"weekdays": (0,)}, {"weekdays": (1,)}),
        (
            {"from_time": time(13), "until_time": time(14), "time_zone": "Europe/Berlin"},
            {"from_time": time(12, 1), "until_time": time(13)},
        ),
        ({"enabled": True}, {"enabled": False}),
        ({"deleted_at": None}, {"deleted_at": NOW}),
    ],
)
def test_route_matches_what_it_names_and_nothing_else(named: dict[str, Any], other: dict[str, Any]) -> None:
    assert wants(facts(), **named)
    assert not wants(facts(), **other)


def test_route_with_a_place_matches_no_provisional_set_and_not_the_installation() -> None:
    for what, fields, matched in (
        *((each, {}, True) for each in (facts(), facts(drill=True), facts(place=UNNAMED), INSTALLATION, OF_A_CACHE)),
        (facts(place=UNNAMED), {"service": "shop"}, False),
        (INSTALLATION, {"service": "*"}, False),
        (INSTALLATION, {"event_types": ("Reboot",)}, False),
        (OF_A_CACHE, {"service": "shop"}, True),
        (OF_A_CACHE, {"set_pattern": "web"}, False),
    ):
        assert wants(what, **fields) is matched, (what, fields)


def test_unclaimed_step_is_due_after_the_first_sighting() -> None:
    step = Route(unclaimed_after_seconds=120)
    assert step.step is NotificationType.UNCLAIMED
    assert step.due_at(facts(), now=NOW) == NOW + timedelta(minutes=2)
    matching = [moment for moment in NotificationType if step.matches(facts(moment=moment), now=NOW)]
    assert matching == [NotificationType.FIRST_SEEN]


def test_undecided_step_is_due_before_the_deadline() -> None:
    step = Route(before_decide_by_seconds=60)
    assert step.step is NotificationType.UNDECIDED
    assert not step.matches(facts(), now=NOW)
    sooner = facts(moment=NotificationType.CHANGED, decide_by=NOW + timedelta(minutes=5))
    assert step.matches(sooner, now=NOW)
    assert step.due_at(sooner, now=NOW) == NOW + timedelta(minutes=4)


def test_hours_of_a_step_apply_when_it_is_due() -> None:
    night, evening = {"from_time": time(22), "until_time": time(7)}, NOW.replace(hour=21, minute=59)
    assert not wants(facts(at=evening), at=evening, **night)
    assert wants(facts(at=evening), at=evening, unclaimed_after_seconds=120, **night)


BANK, SHOP = (("service", "bank"),), (("service", "shop"),)


@pytest.mark.parametrize(
    ("group", "scopes", "what", "scoped", "allowed"),
    [
        # A proposal goes to other users who may consent.
        ("viewer", (), PROPOSED := facts(moment=NotificationType.PROPOSED, by="ada"), False, False),
        ("approver", (), PROPOSED, False, True),
        ("approver", (), facts(moment=NotificationType.PROPOSED, by="vic"), False, False),
        ("approver", BANK, PROPOSED, False, False),
        # Readers get only their scopes.
        ("", (), facts(), False, False),
        ("viewer", BANK, facts(), False, True),
        ("viewer", BANK, facts(), True, False),
        ("viewer", SHOP, facts(), True, True),
        ("viewer", SHOP, OF_A_CACHE, True, True),
        ("viewer", SHOP, INSTALLATION, True, False),
        ("viewer", SHOP, facts(place=UNNAMED), True, False),
        ("admin", BANK, facts(), True, True),
    ],
)
def test_users_get_what_they_may_read_and_proposals_to_which_they_may_consent(
    group: str, scopes: Any, what: MessageFacts, scoped: bool, allowed: bool
) -> None:
    rights = Rights(frozenset({group} - {""}), scopes)
    assert may_receive(rights, ("vic",), what, scoped=scoped) is allowed


@pytest.mark.parametrize("named", ["approval.refused", "approval.withdrawn", "event.started", "approval.corrected"])
def test_route_that_names_an_end_matches_its_correction(named: str) -> None:
    corrected = facts(moment=NotificationType.CORRECTED)
    assert wants(corrected, moments=(named,))
    assert not wants(corrected, moments=("event.claimed",))


@given(st.integers(1, 10**6), st.floats(0, 1), st.none() | st.floats(0, 1e9))
def test_pauses_grow_and_stay_bounded_whatever_a_receiver_asks(
    failures: int, chance: float, asked: float | None
) -> None:
    pause = pause_seconds(failures, chance=chance, requested=asked)
    assert max(1, min(asked or 0, routing.LONGEST_ASKED_SECONDS)) <= pause <= routing.LONGEST_ASKED_SECONDS
    assert asked or pause <= routing.LONGEST_SECONDS
    assert [pause_seconds(count, chance=1) for count in range(1, 5)] == [2, 4, 8, 16]


# Route dry runs: they count past notifications by type, week and night hours, at a constant cost.


def tried(fleet: Fleet, person: User | None = None, at: datetime | None = None, **said: Any) -> dry_run.RouteDryRun:
    return dry_run.dry_run(route=Route(**said), now=at or fleet.now, person=person)


def moments(found: dry_run.RouteDryRun) -> dict[str, int]:
    return {one.moment: one.messages for one in found.by_notification_type}


def test_what_happened_is_counted_and_the_newest_stand_by_name(fleet: Fleet) -> None:
    event = factories.freeze_completed(fleet)
    found = tried(fleet)
    assert moments(found) == dict.fromkeys(["event.first_seen", "approval.decided", "event.started", "event.ended"], 1)
    assert sentence(found.sentence) == "In the last 30 days: 4 notifications, 4 at night."
    last = found.newest[0]
    assert (last.moment, last.event, last.event_type) == ("event.ended", event.event_id, "Freeze")
    assert last.severity == "info" and last.set is not None and last.set.name == "web"
    assert ([week.messages for week in found.by_week], len(found.unknown), found.more) == ([4], 3, False)
    # A route that names something counts that.
    assert tried(fleet, event_types=("Reboot",)).messages == 0
    assert tried(fleet, severities=("info",), set_pattern="w*").messages == 4
    found = tried(fleet, moments=("event.ended",), enabled=False)
    assert (found.messages, found.considered) == (1, 4)
    assert (found.wording.code, found.wording.values["moments"]) == ("route", ["event.ended"])
    assert sentence(tried(fleet, service="none").sentence) == "In the last 30 days: no notification."
    assert tried(fleet, at=fleet.now + timedelta(days=31)).considered == 0


def test_nights_weeks_and_hours_are_those_of_the_route() -> None:
    sunday = Fleet(now=datetime(2022, 4, 10, 23, 30, tzinfo=UTC))
    factories.announced(sunday)
    for zone, night, begins in (("UTC", 1, "2022-04-04"), ("Pacific/Auckland", 0, "2022-04-11")):
        found = tried(sunday, time_zone=zone)
        assert (found.outside_working_hours, found.by_week[0].begins) == (night, begins)
    for begins_at, ends_at, count in ((7, 22, 0), (22, 7, 1)):
        assert tried(sunday, from_time=time(begins_at), until_time=time(ends_at)).messages == count


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


def test_preview_of_too_many_events_uses_the_newest_and_states_it(fleet: Fleet, monkeypatch: Any) -> None:
    factories.announced(fleet)
    monkeypatch.setattr(dry_run, "MOST", 1)
    fleet.say("vm1", *(factories.listing(f"E-{number}") for number in range(3)))
    found = tried(fleet, moments=("event.first_seen",))
    assert (found.messages, found.more) == (1, True)


def test_cache_maintenances_count_by_their_service(fleet: Fleet) -> None:
    cache = Cache.objects.create(host="c.redis.cache.windows.net", service="shop", created_at=factories.NOW)
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
    for count in (1, 20):
        fleet.say("vm1", *(factories.listing(f"E-{number}") for number in range(count)))
        with django_assert_num_queries(3):
            tried(fleet)


def test_the_past_is_read_by_index_however_long_the_timeline_is(fleet: Fleet) -> None:
    factories.freeze_completed(fleet)
    since = fleet.now - dry_run.LOOKS_BACK
    assert is_answered_by(dry_run.events_since(since), "event_newest")
    assert is_answered_by(dry_run.upkeep_since(since), "entry_of_milestones")
    assert is_answered_by(dry_run.entries_of([1, 2, 3]), "entry_by_event")
    caches = {kind.value for kind in ROUTED_ENTRIES if kind.value.startswith("maintenance_")}
    assert caches == {kind.value for kind in dry_run.OF_CACHES} <= set(MILESTONES)
