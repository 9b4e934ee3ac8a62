"""An alert for all that is open, with a lease: a real Alertmanager hears of events, of their ends, and of silence."""

from copy import copy
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import AvailabilitySet, ScheduledEvent
from fleet.notifications.channels import alertmanager
from fleet.notifications.channels.alertmanager import Alertmanager
from tests.factories import Fleet, announced, listing
from tests.messages.alertmanagers import RealAlertmanager, channel_to
from tests.processes import free_port

pytestmark = pytest.mark.flow


def new_id() -> str:
    return str(uuid4()).upper()


def test_an_open_event_is_an_alert_until_it_has_ended(today: Fleet, am: RealAlertmanager) -> None:
    event_id = new_id()
    announced(today, event_id=event_id, event_type="Reboot")
    AvailabilitySet.objects.update(service="shop")
    mirror = channel_to(am.url)
    assert mirror.round().ok
    found = am.alerts()[event_id]
    assert found["labels"] == {
        "alertname": "AzureScheduledEvent",
        "availability_set": "web",
        "drydock": "127.0.0.1:8000",
        "event_id": event_id,
        "event_type": "Reboot",
        "resource_group": "shop",
        "service": "shop",
        "severity": "warning",
    }
    assert found["annotations"]["summary"] == "Reboot of vm1, vm2 in web"
    assert found["generatorURL"] == f"http://127.0.0.1:8000/events/{event_id}/"
    lease = datetime.fromisoformat(found["endsAt"]) - datetime.now(UTC)
    assert timedelta(minutes=4) < lease <= timedelta(minutes=5)

    today.later(5)
    today.all_say()
    assert mirror.round().ok
    assert event_id not in am.alerts()
    assert mirror.round().references == {}


def test_renewal_moves_the_lease_and_changed_labels_replace_the_alert(today: Fleet, am: RealAlertmanager) -> None:
    event_id = new_id()
    announced(today, event_id=event_id)
    mirror = channel_to(am.url)
    mirror.round(now=datetime.now(UTC) - timedelta(minutes=3))
    first = am.alerts()[event_id]
    mirror.round()
    second = am.alerts()[event_id]
    assert second["endsAt"] > first["endsAt"]
    assert (second["startsAt"], second["annotations"]) == (first["startsAt"], first["annotations"])
    AvailabilitySet.objects.update(service="till")
    mirror.round()
    found = [alert for alert in am.get("/alerts") if alert["labels"].get("event_id") == event_id]
    assert [alert["labels"]["service"] for alert in found] == ["till"]


def test_one_alert_that_will_not_do_takes_no_other_with_it(
    today: Fleet, am: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = new_id(), new_id()
    event = announced(today, event_id=good)
    today.all_say(listing(good, not_before=event.not_before), listing(bad, not_before=event.not_before))
    open_things = alertmanager.open_things()
    next(thing for thing in open_things if bad in thing.path).labels["not a label"] = "x"
    monkeypatch.setattr(alertmanager, "open_things", lambda: open_things)
    outcome = channel_to(am.url).round()
    assert (outcome.status, outcome.ok, outcome.again) == (400, False, True)
    assert "not a label" in outcome.answer
    assert good in am.alerts()
    assert bad not in am.alerts()


def test_unavailable_alertmanager_and_another_server_are_reported(today: Fleet, am: RealAlertmanager) -> None:
    announced(today, event_id=new_id())
    away = channel_to(f"http://127.0.0.1:{free_port()}").round()
    assert (away.ok, away.again, away.error) == (False, True, "connect")
    other = channel_to(f"{am.url}/nothing").round()
    assert (other.ok, other.again, other.status) == (False, True, 404)


def test_user_and_password_go_along_and_stand_nowhere_else(
    today: Fleet, am: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = channel_to(am.url, user="drydock", password="hunter2-long")
    calls = Alertmanager(mirror.in_use(), now=today.now)
    assert calls.headers["Authorization"].startswith("Basic ")
    assert "hunter2-long" not in repr(mirror.in_use())
    assert mirror.round().ok


def test_a_storm_goes_out_in_portions_with_two_queries(
    today: Fleet, am: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = announced(today, event_id=new_id())
    copies = [copy(event) for _ in range(1200)]
    for each in copies:
        each.pk, each.event_id = None, new_id()
    ScheduledEvent.objects.bulk_create(copies)
    sizes: list[int] = []
    real = Alertmanager.call

    def call(self: Alertmanager, method: str, path: str, body: object = None, query: object = ()) -> object:
        sizes.append(len(body) if isinstance(body, list) else 0)
        return real(self, method, path, body, query)  # type: ignore[arg-type]

    monkeypatch.setattr(Alertmanager, "call", call)
    mirror = channel_to(am.url)
    with CaptureQueriesContext(connection) as caught:
        outcome = mirror.round(keep=False)
    assert outcome.ok
    assert sizes == [500, 500, 201]
    assert len(caught) == 3
    assert len(am.alerts()) >= 1201
