"""Channels, routes and the log through the API: who sees what, who may what, and what a caller gets back."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.notifications.models import Channel, DeliveryAttempt, MessageDelivery, Route
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.messages.sent import a_route, channel, delivered, told

pytestmark = pytest.mark.django_db
SAID = {"route": "all", "wording": "To hook: everything."}
HOOK = {"name": "hook", "kind": "webhook", "url": "https://hooks.example.org/s3cr3t"}
MAIL = {"name": "me", "kind": "mail", "recipients": ["v@example.org"], "own": True}


@pytest.fixture
def admin(db: None) -> Caller:
    Route.objects.all().delete()
    return caller(factories.admin())


@pytest.fixture
def viewer(db: None) -> Caller:
    """A viewer at the pages: tokens of viewers only read."""
    found = Caller()
    found.client.force_login(factories.viewer())
    return found


def test_a_channels_secret_is_in_the_answers_that_make_it_and_in_no_other(admin: Caller) -> None:
    body = admin.post("channels/", HOOK).json()
    address = f"channels/{body['id']}/"
    assert body["secret"].startswith("whsec_")
    assert (body["kind"], body["health"], body["own"], body["takes_messages"]) == ("webhook", "new", False, True)
    assert body["settings"] == {"url": HOOK["url"]}
    read = admin.get(address)
    assert "secret" not in read.json() and body["secret"] not in read.content.decode()
    changed = admin("PATCH", address, {"enabled": False, "time_zone": "Europe/Berlin"}).json()
    assert (changed["health"], changed["settings"]["time_zone"]) == ("off", "Europe/Berlin")
    rotated = admin.post(f"{address}rotate/").json()
    assert rotated["secret"] != body["secret"] and rotated["earlier_secret_until"] is not None
    assert admin.delete(address).status_code == 204
    for call in (admin.get(address), admin("PATCH", address, {"enabled": True}), admin.post(f"{address}rotate/")):
        problem(call, 404, "not-found")
    made = admin.post("channels/", {"name": "p", "kind": "pagerduty", "routing_key": "0123456789abcdef" * 2}).json()
    assert (made["secrets_set"], made["settings"], made["secret"]) == (["routing_key"], {}, None)


def test_who_only_looks_sees_names_and_health_and_nothing_of_what_others_have_alone(
    admin: Caller, viewer: Caller
) -> None:
    admin.post("channels/", HOOK)
    admin.post("channels/", {**MAIL, "name": "ada's"})
    private = Channel.objects.get(name="ada's")
    a_route("ada's", owner=admin.user, channel=private)
    delivered(private, datetime.now(UTC))
    (row,) = viewer.get("channels/").json()["results"]
    assert (row["name"], row["health"], row["can_change"]) == ("hook", "new", False)
    assert all(row[name] is None for name in ("settings", "secrets_set", "last_answer", "last_error"))
    assert viewer.get("routes/").json()["results"] == viewer.get("messages/").json()["results"] == []
    problem(viewer.get(f"channels/{private.pk}/"), 404, "not-found")


def test_a_token_that_only_reads_makes_nothing_that_outlives_it(admin: Caller) -> None:
    reads, approves = caller(admin.user, "read"), caller(admin.user, "read", "approve")
    problem(reads.post("channels/", MAIL), 403, "not-permitted")
    assert approves.post("channels/", MAIL).status_code == 201


def test_a_route_is_answered_as_it_was_sent(admin: Caller, viewer: Caller) -> None:
    hook = admin.post("channels/", HOOK).json()["id"]
    lists = {"moments": ["event.first_seen"], "event_types": ["Reboot"], "sources": ["Platform"], "weekdays": []}
    place = {"severities": ["critical", "warning"], "set_pattern": "web*", "service": "shop", "resource_group": "rg"}
    hours = {"from_time": "22:00", "until_time": "07:00", "time_zone": "Europe/Berlin"}
    body = {"name": "night", "channel": hook, **lists, **place, **hours}
    row = admin.post("routes/", body).json()
    shown = {**body, "channel": {"id": hook, "name": "hook", "kind": "webhook"}}
    assert {name: row[name] for name in body} == shown
    address = f"routes/{row['id']}/"
    changed = admin("PATCH", address, {"from_time": None, "unclaimed_after_seconds": 120, "moments": []}).json()
    assert (changed["version"], changed["from_time"], changed["event_types"]) == (2, None, ["Reboot"])
    admin("PATCH", f"channels/{hook}/", {"enabled": False})
    (listed,) = viewer.get("routes/").json()["results"]
    assert (listed["channel_disabled"], listed["can_change"]) == (True, False)
    refused = problem(admin("PATCH", address, {"moments": ["event.first_seen"]}), 422, "validation")
    assert refused["errors"][0]["field"] == "moments"
    assert admin.delete(address).status_code == 204
    problem(admin.get(address), 404, "not-found")


def test_a_repeated_test_answers_with_what_the_channel_said(admin: Caller) -> None:
    hook = admin.post("channels/", HOOK).json()["id"]
    body = admin.post(f"channels/{hook}/test/", Idempotency_Key="k").json()
    assert (body["state"], body["ok"], body["attempts"]) == ("QUEUED", None, [])
    problem(admin.post(f"channels/{hook}/test/"), 422, "validation")
    now, tried = datetime.now(UTC), {"ok": False, "status": 410, "error": "gone", "answer": "no such hook"}
    delivery = MessageDelivery.objects.get()
    DeliveryAttempt.objects.create(delivery=delivery, number=1, at=now, ended_at=now, **tried)
    MessageDelivery.objects.update(state="GIVEN_UP")
    body = admin.post(f"channels/{hook}/test/", Idempotency_Key="k").json()
    assert (body["state"], body["ok"]) == ("GIVEN_UP", False)
    assert (body["attempts"][0]["status"], body["attempts"][0]["answer"]) == (410, "no such hook")


def test_the_log_is_read_and_filtered(admin: Caller) -> None:
    now = datetime.now(UTC)
    hook, other = channel("hook"), channel("other")
    way = a_route("all", channel=hook)
    event = factories.freeze_completed(factories.Fleet(now=now))
    rows = [delivered(hook, now - timedelta(minutes=n), route=way, data=SAID, event=event) for n in range(3)]
    waits = told(other, now - timedelta(days=2), moment="event.ended")
    without_route = told(None, now - timedelta(days=3))
    row, *others, waiting, _ = admin.get("messages/").json()["results"]
    assert [each["id"] for each in (row, *others, waiting)] == [one.pk for one in (*rows, waits)]
    assert (row["event"], row["channel"]["name"], row["state"]) == (event.event_id, "hook", "TOLD")
    assert (row["attempts"][0]["took_seconds"], row["attempts"][0]["answer"]) == (0.5, "ok")
    assert (row["route"]["wording"], row["can_redeliver"]) == ("To hook: everything.", True)
    assert waiting["next_attempt_at"] is not None

    def found(query: str) -> list[int]:
        return [row["id"] for row in admin.get(f"messages/?{query}").json()["results"]]

    assert found(f"channel={other.pk}") == found("moment=event.ended") == found("state=WAITING") == [waits.pk]
    assert found("state=UNROUTED") == [without_route.pk]
    assert found(f"event={event.event_id.lower()}") == [one.pk for one in rows]
    assert found("since=" + (now - timedelta(seconds=30)).isoformat().replace("+00:00", "Z")) == [rows[0].pk]
    problem(admin.get("messages/?state=LOST"), 422, "validation")
