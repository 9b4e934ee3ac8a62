"""Routes match what they name, where and when they name it; pauses between attempts grow and stay bounded."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.people import Place, Rights
from fleet.domain.sets import PROVISIONAL
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import (
    LONGEST_ASKED_SECONDS,
    LONGEST_SECONDS,
    MessageFacts,
    StandingRoute,
    due_at,
    matches,
    may_receive,
    pause_seconds,
)

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


OF_THE_INSTALLATION = facts(moment=NotificationType.AUDIT_FAILED, event_type="", source="", place=None)
OF_A_CACHE = facts(
    moment=NotificationType.MAINTENANCE_ANNOUNCED, event_type="", source="", place=Place("cache", "", "shop")
)


def wants(what: MessageFacts, at: datetime = NOW, **fields: Any) -> bool:
    return matches(StandingRoute(**fields), what, now=at)


def test_empty_route_matches_everything() -> None:
    assert all(wants(what) for what in (facts(), facts(drill=True), OF_THE_INSTALLATION, OF_A_CACHE))


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
        ({"deleted": False}, {"deleted": True}),
    ],
)
def test_route_matches_what_it_names_and_nothing_else(named: dict[str, Any], other: dict[str, Any]) -> None:
    assert wants(facts(), **named)
    assert not wants(facts(), **other)


def test_route_with_a_place_matches_no_provisional_set_and_not_the_installation() -> None:
    assert wants(facts(place=UNNAMED))
    assert not wants(facts(place=UNNAMED), service="shop")
    assert not wants(OF_THE_INSTALLATION, service="*")
    assert not wants(OF_THE_INSTALLATION, event_types=("Reboot",))


def test_cache_matches_by_service_only() -> None:
    assert wants(OF_A_CACHE, service="shop")
    assert not wants(OF_A_CACHE, set_pattern="web")


def test_unclaimed_step_is_due_after_the_first_sighting() -> None:
    step = StandingRoute(unclaimed_after_seconds=120)
    assert step.step is NotificationType.UNCLAIMED
    assert matches(step, facts(), now=NOW)
    assert due_at(step, facts(), now=NOW) == NOW + timedelta(minutes=2)
    assert not any(
        matches(step, facts(moment=moment), now=NOW)
        for moment in NotificationType
        if moment != NotificationType.FIRST_SEEN
    )


def test_undecided_step_is_due_before_the_deadline() -> None:
    step = StandingRoute(before_decide_by_seconds=60)
    assert step.step is NotificationType.UNDECIDED
    assert not matches(step, facts(), now=NOW)
    sooner = facts(moment=NotificationType.CHANGED, decide_by=NOW + timedelta(minutes=5))
    assert matches(step, sooner, now=NOW)
    assert due_at(step, sooner, now=NOW) == NOW + timedelta(minutes=4)


def test_hours_of_a_step_apply_when_it_is_due() -> None:
    night = {"from_time": time(22), "until_time": time(7)}
    evening = NOW.replace(hour=21, minute=59)
    assert not wants(facts(at=evening), at=evening, **night)
    assert wants(facts(at=evening), at=evening, unclaimed_after_seconds=120, **night)


VIEWER, APPROVER = Rights(frozenset({"viewer"})), Rights(frozenset({"approver"}))
PROPOSED = facts(moment=NotificationType.PROPOSED, by="ada")


def test_proposal_goes_to_other_users_who_may_consent() -> None:
    assert not may_receive(VIEWER, ("vic",), PROPOSED, scoped=False)
    assert may_receive(APPROVER, ("ben",), PROPOSED, scoped=False)
    assert not may_receive(APPROVER, ("ada",), PROPOSED, scoped=False)
    elsewhere = Rights(frozenset({"approver"}), (("service", "bank"),))
    assert not may_receive(elsewhere, ("ben",), PROPOSED, scoped=False)


def test_reader_gets_only_their_scopes() -> None:
    assert not may_receive(Rights(), "nobody", facts(), scoped=False)
    bank = Rights(frozenset({"viewer"}), (("service", "bank"),))
    shop = Rights(frozenset({"viewer"}), (("service", "shop"),))
    assert may_receive(bank, ("vic",), facts(), scoped=False)
    assert not may_receive(bank, ("vic",), facts(), scoped=True)
    assert may_receive(shop, ("vic",), facts(), scoped=True)
    assert may_receive(shop, ("vic",), OF_A_CACHE, scoped=True)
    assert not may_receive(shop, ("vic",), OF_THE_INSTALLATION, scoped=True)
    assert not may_receive(shop, ("vic",), facts(place=UNNAMED), scoped=True)
    assert may_receive(Rights(frozenset({"admin"}), bank.scopes), "ada", facts(), scoped=True)


@pytest.mark.parametrize("named", ["approval.refused", "approval.withdrawn", "event.started", "approval.corrected"])
def test_route_that_names_an_end_matches_its_correction(named: str) -> None:
    corrected = facts(moment=NotificationType.CORRECTED)
    assert wants(corrected, moments=(named,))
    assert not wants(corrected, moments=("event.claimed",))


def test_pauses_grow_and_stay_bounded() -> None:
    pauses = [pause_seconds(failures, chance=1) for failures in range(1, 12)]
    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses[-1] == LONGEST_SECONDS == pause_seconds(10_000, chance=1)


@given(st.integers(1, 10**6), st.floats(0, 1), st.none() | st.floats(0, 1e9))
def test_a_receiver_may_ask_for_more_but_not_for_ever(failures: int, chance: float, asked: float | None) -> None:
    pause = pause_seconds(failures, chance=chance, requested=asked)
    assert 1 <= pause <= LONGEST_ASKED_SECONDS
    assert pause >= min(asked or 0, LONGEST_ASKED_SECONDS)
