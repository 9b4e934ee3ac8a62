"""Webhook payloads: they carry the event as the API shows it, and the facts for a decision."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.domain.secrets import new_secret
from fleet.domain.timeline import EntryKind
from fleet.notifications.payloads import event_data
from tests import factories
from tests.api.conftest import Caller
from tests.caches.walking import EXAMPLE, Listeners
from tests.factories import Fleet, announced
from tests.messages.telling import a_message, news
from tests.rows import PersonFactory, TokenFactory

pytestmark = pytest.mark.django_db
ADDITIONAL = {"url", "decide_by", "stay_up", "blast", "severity", "drill"}
# Counted from the moment of the answer.
CLOCKS = {"server_time", "seconds_left", "started_seconds"}


def asked(address: str) -> Any:
    secret = new_secret("dd")
    TokenFactory(user=PersonFactory(username="vera", groups=["viewer"]), secret=secret)
    return Caller(secret).get(address).json()


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clocks(item) for name, item in value.items() if name not in CLOCKS}
    return [without_clocks(item) for item in value] if isinstance(value, list) else value


def test_an_event_is_as_the_api_shows_it() -> None:
    fleet = Fleet(datetime.now(UTC))
    announced(fleet)
    approval = fleet.approve(comment="go")
    fleet.delivered(factories.open_order(approval))
    message = a_message(EntryKind.EVENT_SEEN, now=fleet.now)
    told = event_data(news(message, now=fleet.now))
    (shown,) = asked("events/")["results"]
    assert set(told) == set(shown) | ADDITIONAL
    assert without_clocks({name: told[name] for name in shown}) == without_clocks(shown)
    assert set(told["approval"]["orders"][0]) == set(shown["approval"]["orders"][0])
    whole = asked(f"events/{factories.EVENT}/")
    assert (told["decide_by"], told["blast"]) == (whole["decide_by"], whole["blast"])
    assert told["stay_up"] == whole["blast"]["stay_up"] == 4
    assert told["url"].endswith(f"/events/{factories.EVENT}/")
    assert (told["severity"], told["drill"]) == ("info", False)


def test_a_maintenance_is_as_the_api_shows_it() -> None:
    listeners = Listeners(now=datetime.now(UTC))
    listeners.enrol("vm1")
    listeners.cover("vm1", "subscribed", tier="basic")
    listeners.hear("vm1", EXAMPLE[0][1])
    told = event_data(news(a_message(EntryKind.MAINTENANCE_SCHEDULED, now=listeners.now), now=listeners.now))
    (shown,) = asked("maintenances/")["results"]
    brief = {name: value for name, value in shown.items() if name in told}
    assert set(told) - ADDITIONAL <= set(shown)
    assert without_clocks({name: told[name] for name in brief}) == without_clocks(brief)
    assert (told["severity"], told["cache"]["host"][:6]) == ("warning", "orders")
    assert told["url"].endswith(f"/maintenances/{shown['id']}/")
