"""PagerDuty, played by a stand-in that refuses what the real one refuses: what an operator sees there."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from fleet.notifications.channels import pagerduty
from fleet.notifications.incidents import PagerState
from fleet.notifications.models import Reference
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.sender.pool import Pool
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages.posts import ChannelDriver, channel_of, claim, wave
from tests.messages.pretend import listening
from tests.messages.pretend_pagerduty import ROUTING_KEY, PretendPagerDuty, said

pytestmark = pytest.mark.django_db
SECOND = "S" * 32


@pytest.fixture
def there() -> Iterator[PretendPagerDuty]:
    service = PretendPagerDuty()
    with listening(service):
        yield service


@pytest.fixture
def driver(
    fleet: Fleet, there: PretendPagerDuty, loopback_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> ChannelDriver:
    monkeypatch.setattr(pagerduty, "URLS", {False: f"{there.url}/v2/enqueue", True: f"{there.url}/eu/v2/enqueue"})
    monkeypatch.setattr(pagerduty, "send_job", loopback_pool.send)
    values = {"routing_key": ROUTING_KEY, "signing_secret": "x" * 32}
    return ChannelDriver(pagerduty, fleet, channel_of("pagerduty", fleet.now, **values), values)


@pytest.fixture
def announced(fleet: Fleet) -> Fleet:
    factories.announced(fleet)
    return fleet


def test_event_is_triggered_acknowledged_and_resolved(
    announced: Fleet, driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    fleet = announced
    outcome = driver.tell((NotificationType.FIRST_SEEN, EVENT), lines=["4 of 6 stay up."])
    assert (outcome.ok, outcome.status) == (True, 202)
    assert ROUTING_KEY not in json.dumps([outcome.answer, list(Reference.objects.values_list("value", flat=True))])
    assert there.states() == [(EVENT, "triggered")]
    (event,) = there.events
    assert event["client_url"] == event["links"][0]["href"] == f"https://drydock.example/events/{EVENT}/"
    assert event["payload"]["summary"] == "Freeze of vm1, vm2"
    assert event["payload"]["source"] == "web"
    assert "4 of 6 stay up." in event["payload"]["custom_details"]["text"]
    fleet.later(5)
    claim(fleet)
    assert driver.tell((NotificationType.CLAIMED, EVENT)).ok
    assert there.states() == [(EVENT, "acknowledged")]
    fleet.later(60)
    fleet.all_say()
    assert driver.tell((NotificationType.ENDED, EVENT)).ok
    assert there.states() == [(EVENT, "resolved")]
    assert not Reference.objects.exists()


def test_decision_acknowledges_the_incident(announced: Fleet, driver: ChannelDriver, there: PretendPagerDuty) -> None:
    driver.tell((NotificationType.FIRST_SEEN, EVENT))
    announced.later(5)
    announced.approve()
    driver.tell((NotificationType.DECIDED, EVENT))
    assert there.states() == [(EVENT, "acknowledged")]


def test_delivery_repeated_after_a_kill_opens_no_second_incident(
    fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    factories.announced(fleet)
    driver.send(driver.post((NotificationType.FIRST_SEEN, EVENT), post_id="1"), keep=False)
    driver.send(driver.post((NotificationType.FIRST_SEEN, EVENT), post_id="1"))
    assert [(incident.key.split("-", 2)[2], incident.rang) for incident in there.incidents] == [(EVENT, 1)]
    fleet.all_say()
    driver.send(driver.post((NotificationType.ENDED, EVENT), post_id="2"), keep=False)
    driver.send(driver.post((NotificationType.ENDED, EVENT), post_id="2"))
    assert there.states() == [(EVENT, "resolved")]


def test_overdue_order_rings_again_after_acknowledgement_at_pagerduty(
    fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    factories.announced(fleet)
    driver.tell((NotificationType.FIRST_SEEN, EVENT))
    key = there.incidents[0].key
    for state, ago in ((PagerState.ACKNOWLEDGED, 0), (PagerState.TRIGGERED, 9)):
        # The older report arrives last.
        pagerduty.note_state(driver.row.pk, key, state=state, at=fleet.now - timedelta(seconds=ago), now=fleet.now)
    found = pagerduty.find_key(driver.row.pk, key)
    assert found is not None and (found[0], len(found[1].subjects)) == (f"event:{factories.the_event().pk}", 1)
    driver.tell((NotificationType.OVERDUE, EVENT))
    assert len(there.open) == 2
    fleet.later(60)
    fleet.all_say()
    driver.tell((NotificationType.ENDED, EVENT))
    # After the end, no reference of the event or its notifications remains.
    assert (there.open, Reference.objects.count()) == ([], 0)


def test_storm_is_one_incident(fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty) -> None:
    events = wave(fleet, 12)
    assert driver.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events]).ok
    assert [(incident.summary, incident.state) for incident in there.incidents] == [("12 messages", "triggered")]
    for number in range(11):
        fleet.say(f"w{number}")
    driver.tell(*[(NotificationType.ENDED, event_id) for event_id in events[:11]])
    assert len(there.open) == 1
    fleet.say("w11")
    driver.tell((NotificationType.ENDED, events[11]))
    assert (there.open, len(there.events)) == ([], 2)


def test_drill_is_labelled_with_severity_info(fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty) -> None:
    event = factories.announced(fleet)
    type(event).objects.filter(pk=event.pk).update(drill=True)
    driver.severity[EVENT] = "critical"
    driver.tell((NotificationType.FIRST_SEEN, EVENT))
    assert (there.incidents[0].summary, there.incidents[0].severity) == ("DRILL: Freeze of vm1, vm2", "info")


def test_long_texts_stay_within_pagerduty_limits(fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty) -> None:
    factories.announced(fleet)
    lines = ["\N{PILE OF POO}<b>" * 400] * 900
    assert driver.tell((NotificationType.FIRST_SEEN, EVENT), title="x" * 5000 + "\x00", lines=lines).ok
    assert there.refused == []
    assert len(there.incidents[0].summary) == 1024


def test_channel_test_triggers_an_info_incident_in_the_region(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    assert driver.tell().status == 202
    assert [(incident.severity, incident.state) for incident in there.incidents] == [("info", "triggered")]
    driver.values["eu"] = True
    assert driver.tell().status == 404


def test_unknown_routing_key_is_retried(announced: Fleet, driver: ChannelDriver, there: PretendPagerDuty) -> None:
    there.routing_keys.clear()
    outcome = driver.tell((NotificationType.FIRST_SEEN, EVENT))
    assert (outcome.ok, outcome.again, outcome.status) == (False, True, 400)
    assert "routing key" in outcome.answer
    assert ROUTING_KEY not in outcome.answer
    assert not Reference.objects.exists()


@pytest.mark.parametrize(("status", "wait"), [(403, 60.0), (429, 60.0), (500, None)])
def test_unavailable_pagerduty_is_retried_after_a_pause(
    announced: Fleet, driver: ChannelDriver, there: PretendPagerDuty, status: int, wait: float | None
) -> None:
    there.instead = [said(status, {"message": "Too Many Requests"})]
    outcome = driver.tell((NotificationType.FIRST_SEEN, EVENT))
    assert (outcome.ok, outcome.again, outcome.status, outcome.wait_seconds) == (False, True, status, wait)


def test_calls_before_the_rate_limit_are_not_repeated(
    fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    events = wave(fleet, 3)
    there.allowed = 2
    post = driver.post(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events])
    assert driver.send(post).again
    assert Reference.objects.count() == 2
    there.allowed = 9
    again = driver.post(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events])
    assert driver.send(again).ok
    assert (len(there.open), len(there.events)) == (3, 3)


def test_refused_event_does_not_block_others(fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty) -> None:
    events = wave(fleet, 3)
    there.instead = [said(400, {"status": "invalid event", "errors": ["'payload.summary' is odd"]})]
    outcome = driver.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in events])
    assert (outcome.ok, outcome.again, outcome.status) == (False, False, 400)
    assert len(there.open) == 2


def test_incident_is_resolved_with_the_key_that_opened_it(
    fleet: Fleet, driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    there.routing_keys.add(SECOND)
    factories.announced(fleet)
    driver.tell((NotificationType.FIRST_SEEN, EVENT))
    driver.values |= {"routing_key": SECOND, "earlier_routing_key": ROUTING_KEY}
    fleet.later(60)
    fleet.all_say()
    driver.tell((NotificationType.ENDED, EVENT))
    assert there.open == []
    assert [event["routing_key"] for event in there.events] == [ROUTING_KEY, ROUTING_KEY]
