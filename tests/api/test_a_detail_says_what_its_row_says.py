"""API details: each field of a detail equals the same field of the row in the list."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from fleet.operations import waves
from fleet.operations.drills import begin as drilling
from fleet.urls import CALLS
from tests import factories
from tests.api.conftest import Caller, caller, in_person
from tests.caches.walking import HOST, Listeners
from tests.factories import acting, listing
from tests.messages import sent

pytestmark = pytest.mark.django_db
# Counted to the moment of each answer.
CLOCKS = {"server_time", "seconds_left", "started_seconds"}
# By itself it says what exactly it waits for, by the facts of its event; a list does not load those of all events.
EXACT = {"waits_for"}
# Details that contain the row as one of several fields.
INSIDE = ("drill",)
OTHERS = ["0A1B2C3D-0000-4000-8000-00000000000A", "0A1B2C3D-0000-4000-8000-00000000000B"]


def world() -> Caller:
    """Some of everything, with events that are ahead, started and over."""
    fleet = Listeners(now=datetime.now(UTC) - timedelta(minutes=5))
    factories.freeze_completed(fleet)
    for name in ("a1", "b1"):
        fleet.enrol(name, availability_set=name, tagsList=[{"name": "drydock:service", "value": "shop"}])
        fleet.say(name)
    due = fleet.now + timedelta(minutes=15)
    anna = acting(factories.approver(), why="in turn")
    for name, event_id in zip(("a1", "b1"), OTHERS, strict=True):
        fleet.say(name, listing(event_id, resources=(name,), not_before=due))
    guards = dict.fromkeys(("last-live-machines", "other-open-event", "service-in-flight", "lost-for-good"), "x")
    waves.begin(actor=anna, now=fleet.now, events=OTHERS, overrides=guards)
    fleet.say("b1", listing(OTHERS[1], resources=("b1",), EventStatus="Started", NotBefore=""))
    fleet.enrol("d1", availability_set="dock")
    fleet.say("d1")
    drilling.begin(set_id=factories.the_set("dock").pk, actor=anna, now=fleet.now)
    fleet.cover("vm1", "subscribed", host=HOST)
    start = f"{fleet.now + timedelta(minutes=10):%Y-%m-%dT%H:%M:%S}"
    raw = "NotificationType|NodeMaintenanceScheduled|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000"
    fleet.hear("vm1", f"{raw}|NonSSLPort|13000|StartTimeInUTC|{start}")
    told = sent.delivered(sent.channel(), fleet.now)
    sent.a_route(channel=told.channel)
    ada = factories.admin()
    admin, signed_in = caller(ada), in_person(ada)
    admin.post("join-tokens/", {"comment": "rack 7"})
    window = {"name": "Sale", "reason": "Full.", "weekdays": [4], "from_time": "18:00", "time_zone": "UTC"}
    assert admin.post("no-approval-windows/", window).status_code == 201
    rule = {"name": "Short", "reason": "x", "action": "hold", "event_types": ["Freeze"]}
    assert admin.post("rules/", rule).status_code == 201
    line = {"value": "Drydock.Operators", "group": "operator", "scopes": []}
    assert signed_in.post("sign-on/mapping/", line).status_code == 201
    account = {"username": factories.viewer("vic").get_username(), "subject": "11111111-2222-3333-4444-555555555555"}
    with override_settings(OIDC_ISSUER="https://login.example"):
        assert signed_in.post("sign-on/accounts/", account).status_code == 201
    return admin


def pairs() -> list[tuple[str, str]]:
    """The address of each list whose rows have one of their own, and by which field that goes."""
    found = []
    addresses = {str(route.pattern): route.callback.view_class for route in CALLS}  # type: ignore[attr-defined]
    for address, view in addresses.items():
        place = re.fullmatch(r"(.*)<\w+:(\w+)>/", address)
        if place and hasattr(view, "get") and hasattr(addresses.get(place[1]), "get"):
            name = place[2]
            found.append((place[1].removeprefix("v1/"), name if name in ("event_id", "username", "prefix") else "id"))
    return found


def still(value: Any) -> Any:
    """The value without what counts from now."""
    if isinstance(value, dict):
        return {name: still(inner) for name, inner in value.items() if name not in CLOCKS | EXACT}
    return [still(inner) for inner in value] if isinstance(value, list) else value


def test_each_field_of_each_row_is_that_of_the_detail() -> None:
    admin = world()
    known = pairs()
    assert len(known) >= 14
    for address, key in known:
        rows = admin.get(address).json()["results"]
        assert rows, address
        for row in rows:
            detail = admin.get(f"{address}{row[key]}/").json()
            for name in INSIDE:
                if isinstance(detail.get(name), dict) and key in detail[name]:
                    detail = detail[name]
            missing = set(row) - set(detail)
            assert missing == set(), (address, missing)
            wrong = {name: (row[name], detail[name]) for name in row if still(row[name]) != still(detail[name])}
            assert {name for name in wrong if name not in CLOCKS} == set(), (address, wrong)
            assert {name: row[name] is None for name in CLOCKS & set(row)} == {
                name: detail[name] is None for name in CLOCKS & set(row)
            }, address
