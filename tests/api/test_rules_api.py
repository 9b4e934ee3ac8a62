"""Rules, dry runs and no-approval windows through the API."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.models import Entry, Rule
from fleet.operations.policy import apply
from tests import factories
from tests.api.conftest import Caller, problem

pytestmark = pytest.mark.django_db

FREEZES = {
    "name": "Short freezes", "reason": "No user notices.", "action": "approve_now", "event_types": ["Freeze"],
    "max_duration_seconds": 8,
}  # fmt: skip
WINDOW = {"name": "Sale", "reason": "The shop is full.", "weekdays": [4, 5], "from_time": "18:00", "time_zone": "UTC"}


@pytest.fixture(autouse=True)
def no_rule_yet(db: None) -> None:
    Rule.objects.all().delete()


def test_a_rule_is_made_read_changed_moved_and_deleted(admin: Caller, viewer: Caller) -> None:
    made = admin.post("rules/", FREEZES)
    assert made.status_code == 201
    body = made.json()
    assert (body["enabled"], body["in_force"], body["position"], body["author"]) == (False, False, 1, "ada")
    assert body["wording"] == "Approve now: Freeze events, with an announced duration of at most 8 s."
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    second = admin.post("rules/", {**FREEZES, "name": "second", "position": 1, "expires_at": later}).json()
    assert 3590 < second["seconds_left"] <= 3600
    listed = viewer.get("rules/")
    assert [row["name"] for row in listed.json()["results"]] == ["second", "Short freezes"]
    address = f"rules/{body['id']}/"
    changed = admin("PATCH", address, {"enabled": True, "position": 1, "from_time": "22:00", "until_time": None})
    assert (changed.json()["enabled"], changed.json()["position"], changed.json()["from_time"]) == (True, 1, "22:00")
    viewer.get(address)
    entry = Entry.objects.filter(kind="rule_changed").latest("pk")
    assert (entry.via, entry.token_name, factories.who(entry)) == ("api", "tests", "ada")
    assert admin.delete(address).status_code == 204
    problem(viewer.get(address), 404, "not-found")
    problem(admin.delete(address), 404, "not-found")
    problem(admin("PATCH", address, {"enabled": False}), 404, "not-found")


def test_a_dry_run_of_a_saved_or_unsaved_rule_writes_nothing(
    fleet: factories.Fleet, admin: Caller, viewer: Caller
) -> None:
    factories.freeze_completed(fleet)
    count = Entry.objects.count()
    answer = viewer.post("rules/dry-run/", {"rule": {"action": "approve_now", "event_types": ["Freeze"]}})
    body = answer.json()
    assert body["sentence"] == "Would have approved 1 of 1; 1 of them was approved by a user."
    assert (body["events"][0]["approved_by"], body["events"][0]["would"]) == ("otto", "approve")
    assert (Entry.objects.count(), Rule.objects.count()) == (count, 0)
    made = admin.post("rules/", FREEZES).json()
    assert viewer.post("rules/dry-run/", {"id": made["id"]}).json()["approve"] == 1
    assert viewer.post("rules/dry-run/", {"id": made["id"], "rule": {"max_duration_seconds": 1}}).json()["matched"] == 0
    assert viewer.post("rules/dry-run/", {"id": made["id"], "until": "2020-01-01T00:00:00Z"}).json()["considered"] == 0
    problem(viewer.post("rules/dry-run/", {"id": 999999}), 404, "not-found")
    problem(viewer.post("rules/dry-run/", {}), 422, "validation")
    wrong = problem(viewer.post("rules/dry-run/", {"rule": {"action": "dance"}}), 422, "validation")
    assert [error["field"] for error in wrong["errors"]] == ["rule.action"]


def test_windows_are_made_read_and_deleted(admin: Caller, viewer: Caller) -> None:
    made = admin.post("no-approval-windows/", WINDOW)
    assert (made.status_code, made.json()["wording"]) == (201, "Fri, Sat, from 18:00 (UTC), for every set")
    address = f"no-approval-windows/{made.json()['id']}/"
    assert admin.delete(address).status_code == 204
    assert viewer.get("no-approval-windows/").json()["results"] == []
    problem(viewer.get(address), 404, "not-found")
    problem(admin.delete(address), 404, "not-found")


def test_an_approval_names_the_rule_and_its_wording(fleet: factories.Fleet, admin: Caller) -> None:
    rule = admin.post("rules/", {**FREEZES, "enabled": True}).json()
    event = factories.announced(fleet)
    assert apply.decide(now=fleet.now) == 1
    answer = admin.get(f"events/{event.event_id}/")
    approval = answer.json()["approval"]
    assert (approval["rule"], approval["via"]) == ({"id": rule["id"], "name": rule["name"]}, "rule")
    assert approval["rule_wording"] == rule["wording"]
    assert admin.get(f"rules/{rule['id']}/").json()["approvals"] == 1
