"""Rules: admins create, change, order, switch and delete them, and the timeline records each change with old values."""

from collections.abc import Callable
from datetime import time
from functools import partial

import pytest

from fleet.models import Entry, NoApprovalWindow, Rule
from fleet.operations.policy import rules
from tests.approvals.asking import refused
from tests.factories import NOW, acting, admin, seconds, who
from tests.policy.conftest import change_rule, made, window
from tests.words import text

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_rule_yet(db: None) -> None:
    Rule.objects.all().delete()


def newest(kind: str) -> Entry:
    return Entry.objects.filter(kind=kind).latest("pk")


def order() -> list[str]:
    return list(Rule.objects.filter(deleted_at__isnull=True).order_by("position").values_list("name", flat=True))


def refused_fields(call: Callable[[], object]) -> list[str]:
    """The fields at fault in a call that is refused."""
    refusal = refused(call)
    assert refusal.code == "validation"
    return [error["field"] for error in refusal.details["errors"]]


def test_new_rule_is_disabled_and_last() -> None:
    first = made(name="first", enabled=False)
    second = rules.create_rule(
        rules.RuleRequestSerializer(
            data={"name": " second ", "reason": "r", "action": "hold", "event_types": ["Reboot", "Freeze", "Freeze"]}
        ),
        actor=acting(admin(), via="api", token_name="ci"),
        now=NOW,
    )
    assert (first.enabled, first.position, second.position) == (False, 1, 2)
    assert (second.name, second.event_types, second.author) == ("second", ["Freeze", "Reboot"], admin())
    entry = newest("rule_created")
    assert (who(entry), entry.via, entry.token_name, entry.why) == ("ada", "api", "ci", "r")
    assert entry.before is None
    assert text(entry) == "ada created the rule “second” (off): Leave it to Azure: Freeze or Reboot events."
    assert made(name="third", position=1).position == 1
    assert order() == ["third", "first", "second"]


def test_a_change_tells_what_stood_before_and_after_and_nothing_else() -> None:
    row = made(name="a", max_duration_seconds=8, from_time=time(8))
    change_rule(row, by=acting(admin("bea"), why="safer"), max_duration_seconds=5)
    entry = newest("rule_changed")
    assert (who(entry), entry.why) == ("bea", "safer")
    assert entry.before == {"max_duration_seconds": 8}
    assert (entry.after or {})["max_duration_seconds"] == 5
    assert "at most 5 s" in text(entry)
    assert Rule.objects.get().author == admin()
    count = Entry.objects.count()
    change_rule(row, max_duration_seconds=5)
    assert Entry.objects.count() == count


def test_switching_and_moving_a_rule_are_recorded() -> None:
    rows = [made(name=name, enabled=False) for name in "abc"]
    change_rule(rows[0], enabled=True)
    assert text(newest("rule_changed")) == "ada switched the rule “a” on: Approve now: every event."
    rules.move(rule_id=rows[2].pk, actor=acting(admin()), now=NOW, steps=-1)
    assert text(newest("rule_changed")) == "ada moved the rule “c” to position 2."
    change_rule(rows[0], position=3)
    assert order() == ["c", "b", "a"]
    rules.move(rule_id=rows[2].pk, actor=acting(admin()), now=NOW, steps=-1)
    assert order() == ["c", "b", "a"]
    assert sorted(Rule.objects.values_list("position", flat=True)) == [1, 2, 3]


def test_a_deleted_rule_leaves_the_order_and_stays_for_its_decisions() -> None:
    rows = [made(name=name) for name in "ab"]
    rules.delete_rule(rule_id=rows[0].pk, actor=acting(admin()), now=NOW)
    rows[0].refresh_from_db()
    assert (rows[0].enabled, rows[0].deleted_at) == (False, NOW)
    assert order() == ["b"]
    assert Rule.objects.get(name="b").position == 1
    assert (newest("rule_deleted").before or {})["enabled"] is True
    delete = partial(rules.delete_rule, rule_id=rows[0].pk, actor=acting(admin()), now=NOW)
    for call in (delete, partial(change_rule, rows[0], enabled=False)):
        assert refused(call).code == "not-found"
    made(name="a")


def test_rule_without_an_author_gets_the_admin_who_enables_it() -> None:
    row = made(enabled=False)
    Rule.objects.update(author=None)
    change_rule(row, by=acting(admin("bea")), enabled=True)
    assert Rule.objects.get().author == admin("bea")


def test_what_makes_no_sense_is_refused_and_writes_nothing() -> None:
    row = made(name="mine")
    made(name="Taken")
    for position in (0, 3):
        assert refused_fields(partial(change_rule, row, position=position)) == ["position"]
    for fields, field in (
        ({"reason": "  "}, "reason"),
        ({"name": "taken"}, "name"),
        ({"action": "dance"}, "action"),
        ({"event_types": ["Frie ze"]}, "event_types"),
        ({"event_types": ["freeze"]}, "event_types"),
        ({"event_types": ["SpotRebalanceRecommendation"]}, "event_types"),
        ({"sources": ["Azure"]}, "sources"),
        ({"accepts": ["set-in-flight"]}, "accepts"),
        ({"action": "hold", "accepts": ["hook-failed"]}, "accepts"),
        ({"min_duration_seconds": -1}, "min_duration_seconds"),
        ({"min_duration_seconds": 9, "max_duration_seconds": 8}, "max_duration_seconds"),
        ({"min_notice_seconds": 60, "max_notice_seconds": 30}, "max_notice_seconds"),
        ({"max_notice_seconds": 2**31}, "max_notice_seconds"),
        ({"weekdays": [7]}, "weekdays"),
        ({"set_pattern": "x" * 201}, "set_pattern"),
        ({"name": "x" * 201}, "name"),
        ({"name": "\u200b"}, "name"),
        ({"expires_at": NOW}, "expires_at"),
        ({"time_zone": "Mars/Base"}, "time_zone"),
        ({"time_zone": "../etc/passwd"}, "time_zone"),
        ({"colour": "red"}, "colour"),
    ):
        count = Entry.objects.count()
        for call in (partial(made, **({"name": "new"} | fields)), partial(change_rule, row, **fields)):
            assert refused_fields(call) == [field]
        assert Entry.objects.count() == count


def test_an_expired_rule_needs_a_new_expiry_to_be_switched_on_again() -> None:
    row = made(expires_at=NOW + seconds(60), enabled=False)
    later = NOW + seconds(61)
    change_rule(row, at=later, reason="kept for the record")
    assert refused_fields(partial(change_rule, row, at=later, enabled=True)) == ["expires_at"]
    change_rule(row, at=later, expires_at=None, enabled=True)
    assert Rule.objects.get().enabled


def test_a_window_is_made_and_deleted_with_its_words() -> None:
    row = window(weekdays=[4, 0], from_time=time(18), until_time=time(22), time_zone="Europe/Berlin", service="shop")
    assert row.weekdays == [0, 4]
    entry = newest("window_created")
    assert text(entry) == (
        "ada created the no-approval window “sales”: Mon, Fri, 18:00 to 22:00 (Europe/Berlin), for the service “shop”."
        " “the shop is full”"
    )
    assert (entry.via, entry.token_name, (entry.after or {})["from_time"]) == ("api", "ci", "18:00:00")
    rules.delete_window(window_id=row.pk, actor=acting(admin()), now=NOW)
    assert (newest("window_deleted").before or {})["name"] == "sales"
    delete = partial(rules.delete_window, window_id=row.pk, actor=acting(admin()), now=NOW)
    assert refused(delete).code == "not-found"


def test_a_window_that_makes_no_sense_is_refused() -> None:
    for values, field in (
        ({"name": ""}, "name"),
        ({"reason": ""}, "reason"),
        ({}, "ends_at"),
        ({"weekdays": [8]}, "weekdays"),
        ({"time_zone": "Nowhere"}, "time_zone"),
        ({"weekdays": [4], "starts_at": NOW + seconds(1)}, "starts_at"),
        ({"ends_at": NOW}, "ends_at"),
        ({"starts_at": NOW + seconds(9), "ends_at": NOW + seconds(5)}, "ends_at"),
        ({"colour": "red"}, "colour"),
    ):
        assert refused_fields(partial(window, **values)) == [field]
        assert not NoApprovalWindow.objects.exists()
