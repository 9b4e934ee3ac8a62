"""Rules match as they are worded: any field, any limit, any hour; unknown durations are never short."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.approvals.guards import ACCEPTABLE, EventFacts, Guard, HoldFacts, WindowFacts
from fleet.domain.event_types import TYPES
from fleet.domain.intake import Prepared
from fleet.domain.policy import rules as policy
from fleet.domain.policy.rules import Action, RuleAction, StandingRule, first_match, is_matching, verdict, wording
from tests import words
from tests.facts import calm, machine

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
VM1, VM2 = machine(1), machine(2)
facts = partial(
    calm, not_before=NOW + timedelta(minutes=15), machines=(VM1, VM2), set_service="shop", set_resource_group="shop-rg"
)


def rule(**fields: Any) -> StandingRule:
    return StandingRule(**{"name": "r", "reason": "because", "action": "approve_now", "enabled": True, **fields})


names = st.sampled_from(["web", "workers", "db-1", ""])
optional_seconds = st.none() | st.integers(0, 7200)
events = st.builds(
    facts,
    event_type=st.sampled_from(TYPES),
    source=st.sampled_from([*policy.SOURCES, ""]),
    duration_seconds=st.none() | st.integers(-1, 100),
    not_before=st.none() | st.integers(-100, 100_000).map(lambda s: NOW + timedelta(seconds=s)),
    set_name=names,
    set_service=names,
    set_resource_group=names,
)
rules = st.builds(
    rule,
    action=st.sampled_from(list(Action)).map(str),
    event_types=st.lists(st.sampled_from(list(TYPES)), max_size=2).map(tuple),
    sources=st.lists(st.sampled_from(policy.SOURCES), max_size=1).map(tuple),
    min_duration_seconds=optional_seconds,
    max_duration_seconds=optional_seconds,
    unknown_duration=st.booleans(),
    set_pattern=st.sampled_from(["", "web", "w*", "?b-1"]),
    service=st.sampled_from(["", "w*"]),
    resource_group=st.sampled_from(["", "*"]),
    weekdays=st.lists(st.integers(0, 6), max_size=3, unique=True).map(tuple),
    from_time=st.none() | st.times(),
    until_time=st.none() | st.times(),
    time_zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
    min_notice_seconds=optional_seconds,
    max_notice_seconds=optional_seconds,
    expires_at=st.none() | st.integers(-100, 100).map(lambda s: NOW + timedelta(seconds=s)),
    enabled=st.booleans(),
    deleted=st.booleans(),
)
# Each takes one condition away; with all of them taken, a rule matches everything.
WIDER: list[dict[str, Any]] = [
    {"event_types": ()},
    {"sources": ()},
    {"min_duration_seconds": None, "max_duration_seconds": None},
    {"unknown_duration": True},
    {"set_pattern": "", "service": "", "resource_group": ""},
    {"weekdays": (), "from_time": None, "until_time": None},
    {"min_notice_seconds": None},
    {"max_notice_seconds": None},
    {"min_notice_seconds": None, "max_notice_seconds": None},
    {"expires_at": None},
    {"enabled": True},
    {"deleted": False},
]


@given(rules, events, st.sampled_from(WIDER))
def test_taking_a_condition_away_never_loses_an_event(
    one: StandingRule, event: EventFacts, wider: dict[str, Any]
) -> None:
    if is_matching(one, event, now=NOW):
        assert is_matching(replace(one, **wider), event, now=NOW)


@given(rules, events)
def test_no_rule_matches_a_drill_or_if_it_is_off_expired_or_deleted(one: StandingRule, event: EventFacts) -> None:
    for gone in ({"enabled": False}, {"deleted": True}, {"expires_at": NOW}):
        assert not is_matching(replace(one, **gone), event, now=NOW)
    assert not is_matching(one, replace(event, drill=True), now=NOW)


@given(rules.filter(lambda one: not one.unknown_duration), events, st.sampled_from([None, -1]))
def test_an_unknown_duration_is_never_short(one: StandingRule, event: EventFacts, unknown: int | None) -> None:
    limited = replace(one, max_duration_seconds=one.max_duration_seconds or 0)
    assert not is_matching(limited, replace(event, duration_seconds=unknown), now=NOW)


@given(st.lists(rules, max_size=5), events)
def test_the_first_that_matches_decides(several: list[StandingRule], event: EventFacts) -> None:
    found = first_match(several, event, now=NOW)
    hits = [one for one in several if is_matching(one, event, now=NOW)]
    assert found is (hits[0] if hits else None)
    assert verdict(several, event, now=NOW).rule is found


@given(rules)
def test_every_rule_has_one_sentence_that_names_all_it_says(one: StandingRule) -> None:
    text = words.sentence(wording(one))
    assert text.endswith(".")
    assert "\n" not in text
    for word in (*one.event_types, *one.sources, one.set_pattern, one.service, one.resource_group):
        assert word in text
    hours = one.weekdays or one.from_time or one.until_time
    assert not hours or one.time_zone in text
    assert (one.expires_at is not None) == ("; until " in text)


@pytest.mark.parametrize(
    ("condition", "hits", "misses"),
    [
        ({"event_types": ("Freeze",)}, {}, {"event_type": "Reboot"}),
        ({"event_types": ("Freeze",)}, {"event_type": "freeze"}, {"event_type": ""}),
        ({"sources": ("User",)}, {"source": "User"}, {"source": "Platform"}),
        ({"sources": ("User",)}, {"source": "user"}, {"source": ""}),
        ({"max_duration_seconds": 8}, {"duration_seconds": 8}, {"duration_seconds": 9}),
        ({"min_duration_seconds": 3}, {"duration_seconds": 3}, {"duration_seconds": 2}),
        ({"max_duration_seconds": 8}, {"duration_seconds": 0}, {"duration_seconds": -1}),
        ({"max_duration_seconds": 8, "unknown_duration": True}, {"duration_seconds": None}, {"duration_seconds": 9}),
        ({"set_pattern": "W*"}, {}, {"set_name": "db"}),
        ({"set_pattern": "*"}, {}, {"set_kind": "provisional"}),
        ({"service": "shop"}, {}, {"set_service": ""}),
        ({"resource_group": "SHOP-?G"}, {}, {"set_resource_group": "other"}),
        ({"min_notice_seconds": 900}, {}, {"not_before": NOW + timedelta(seconds=899)}),
        ({"max_notice_seconds": 900}, {}, {"not_before": NOW + timedelta(seconds=901)}),
        ({"max_notice_seconds": 900}, {}, {"not_before": None}),
    ],
)
def test_each_condition_is_met_or_not(condition: dict[str, Any], hits: dict[str, Any], misses: dict[str, Any]) -> None:
    assert is_matching(rule(**condition), facts(**hits), now=NOW)
    assert not is_matching(rule(**condition), facts(**misses), now=NOW)


def test_hours_are_those_of_the_rules_time_zone_and_may_pass_midnight() -> None:
    night = rule(weekdays=(0,), from_time=time(22), until_time=time(6), time_zone="America/New_York")
    monday_night = datetime(2026, 3, 3, 4, 0, tzinfo=UTC)  # 23:00 on Monday in New York
    assert is_matching(night, facts(not_before=None), now=monday_night)
    assert is_matching(night, facts(not_before=None), now=monday_night + timedelta(hours=6))
    assert not is_matching(night, facts(not_before=None), now=monday_night + timedelta(hours=7))
    assert not is_matching(night, facts(not_before=None), now=monday_night + timedelta(days=1))


def test_a_guard_that_the_rule_does_not_accept_leaves_it_to_people() -> None:
    window = facts(windows=(WindowFacts(name="sales", reason="the shop is full"),))
    found = verdict([rule()], window, now=NOW)
    assert (found.does, [guard.code for guard in found.against]) == (RuleAction.GUARDED, ["no-approval-window"])
    assert verdict([rule(accepts=("no-approval-window",))], window, now=NOW).does is RuleAction.APPROVE
    # A rule that is stopped does not hand on to the next one.
    assert verdict([rule(), rule(accepts=ACCEPTABLE)], window, now=NOW).does is RuleAction.GUARDED


def test_a_second_person_a_hold_or_a_guard_that_blocks_is_never_accepted() -> None:
    everything = rule(accepts=ACCEPTABLE)
    for fields in (
        {"second_person": True},
        {"resources": ("vm1", "vm2"), "event_type": "Reboot"},
        {"machines": (replace(VM1, lists_it=False),)},
        {"not_before": NOW},
        {"hold": HoldFacts(by="ada", at=NOW, reason="mine")},
    ):
        found = verdict([everything], facts(**fields), now=NOW)
        assert found.does is RuleAction.GUARDED, fields
        assert all(isinstance(guard, Guard) for guard in found.against)


def test_a_rule_that_waits_for_preparation_does_not_mind_that_a_machine_prepares() -> None:
    busy = facts(machines=(replace(VM1, prepared=Prepared.PREPARING), VM2))
    assert verdict([rule()], busy, now=NOW).does is RuleAction.GUARDED
    assert verdict([rule(action="approve_when_prepared")], busy, now=NOW).does is RuleAction.APPROVE


def test_hold_and_leave_end_the_search() -> None:
    assert verdict([rule(action="hold"), rule()], facts(), now=NOW).does is RuleAction.HOLD
    assert verdict([rule(action="leave"), rule()], facts(), now=NOW).does is RuleAction.LEAVE
    assert verdict([rule(event_types=("Reboot",), action="leave"), rule()], facts(), now=NOW).does is RuleAction.APPROVE
    assert verdict([], facts(), now=NOW).does is RuleAction.NOTHING


def test_a_sound_rule_has_no_fault_and_a_plain_wording() -> None:
    sound = rule(
        event_types=("Freeze", "Reboot"),
        sources=("Platform",),
        min_duration_seconds=0,
        max_duration_seconds=8,
        unknown_duration=True,
        set_pattern="web*",
        weekdays=(0, 4),
        from_time=time(8),
        until_time=time(18),
        time_zone="Europe/Berlin",
        min_notice_seconds=120,
        accepts=("no-approval-window", "lost-for-good"),
        expires_at=NOW + timedelta(days=1),
    )
    assert not [*policy.faults(sound, now=NOW)]
    assert words.sentence(wording(sound)) == (
        "Approve now: Freeze or Reboot events, with source Platform, with an announced duration of 0 s to 8 s, or with"
        " unknown duration, in sets named “web*”, with at least 2 min left until NotBefore, on Mon, Fri, 08:00 to 18:00"
        " (Europe/Berlin); even if it falls into hours without approvals or something is lost for good; until"
        " 2026-03-03 12:00:00 UTC."
    )
    assert set(policy.SAID) < set(StandingRule.__slots__)
