"""Apprise, with its real library, to a real receiver."""

from __future__ import annotations

import json

import pytest

from fleet.notifications.channels import apprise
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.sender.pool import Pool
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages.posts import ChannelDriver, channel_of
from tests.receivers import receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(db: None, loopback_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(apprise, "send_job", loopback_pool.send)
    found = Fleet()
    factories.announced(found)
    return found


def driver_of(fleet: Fleet, url: str) -> ChannelDriver:
    return ChannelDriver(apprise, fleet, channel_of("apprise", fleet.now, url=url), {"url": url})


def test_service_gets_the_event_and_a_link_to_decide(fleet: Fleet) -> None:
    with receiver() as there:
        driver = driver_of(fleet, f"json://127.0.0.1:{there.port}/hook")
        assert driver.tell((NotificationType.FIRST_SEEN, EVENT), lines=["4 of 6 stay up.", "<b>x</b>"]).ok
    [got] = there.got
    said = json.loads(got.body)
    assert got.path == "/hook"
    assert (said["title"], said["type"]) == ("Freeze of vm1, vm2", "warning")
    assert said["message"] == f"4 of 6 stay up.\n<b>x</b>\nhttps://drydock.example/events/{EVENT}/"


def test_worst_event_sets_the_colour(fleet: Fleet) -> None:
    driver = driver_of(fleet, "json://127.0.0.1/")
    first, ended = (NotificationType.FIRST_SEEN, EVENT), (NotificationType.ENDED, EVENT)
    assert apprise.tone_of(driver.post(ended)) == "success"
    assert apprise.tone_of(driver.post(ended, first)) == "warning"
    driver.severity[EVENT] = "critical"
    assert apprise.tone_of(driver.post(ended, first)) == "failure"
    assert apprise.tone_of(driver.post()) == "info"


def test_a_service_that_wants_time_gets_it_and_its_secrets_are_not_shown(fleet: Fleet) -> None:
    with receiver() as there:
        there.status, there.headers, there.body = 429, {"Retry-After": "30"}, b"slow down, /tokentokentoken"
        outcome = driver_of(fleet, f"json://127.0.0.1:{there.port}/tokentokentoken").tell(
            (NotificationType.FIRST_SEEN, EVENT)
        )
    assert (outcome.ok, outcome.again, outcome.status, outcome.wait_seconds) == (False, True, 429, 30.0)
    assert outcome.answer == "slow down, /***"


@pytest.mark.parametrize(
    ("url", "why"), [("syslog://", "schema"), ("json://h/?verify=no", "parameter"), ("x", "unknown_service")]
)
def test_what_is_on_no_list_is_refused_with_the_reason(fleet: Fleet, url: str, why: str) -> None:
    outcome = driver_of(fleet, url).tell((NotificationType.FIRST_SEEN, EVENT))
    assert (outcome.ok, outcome.error) == (False, f"bad_url:{why}")
