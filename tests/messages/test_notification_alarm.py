"""Notification alarm and metrics: pages and the watchdog detect failing notifications, `/metrics` counts them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.models import Entry, LastRun
from fleet.notifications import router
from fleet.notifications import tasks as notification_tasks
from fleet.notifications.grouping import ChannelHealth
from fleet.notifications.models import Channel, Cursor, MessageDelivery
from fleet.notifications.queries import ROUTER, notification_health
from fleet.notifications.routing import FAILING_AFTER
from fleet.operations import reconcile
from tests import factories
from tests.factories import Fleet, announced, seconds
from tests.gateway.test_metrics import numbers
from tests.messages.sent import a_channel, a_message, a_post, failed
from tests.receivers import Receiver, receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def now(db: None) -> datetime:
    return datetime.now(UTC)


def routed(now: datetime) -> None:
    LastRun.objects.update_or_create(name=router.NAME, defaults={"ran_at": now, "via": "celery"})


def health(now: datetime) -> str:
    return notification_health(now=now).value


def test_health_is_the_worst_state(now: datetime) -> None:
    assert health(now) == "nobody"
    first = a_channel(at=now)
    assert health(now) == "stands_still"
    routed(now)
    assert health(now) == "works"
    second = a_channel(at=now, failures=FAILING_AFTER)
    assert health(now) == "some_fail"
    Channel.objects.filter(pk=first.pk).update(enabled=False)
    assert health(now) == "all_fail"
    Channel.objects.filter(pk=second.pk).update(failures=0)
    assert health(now) == "works"
    with CaptureQueriesContext(connection) as caught:
        assert health(now + timedelta(minutes=2)) == "stands_still"
    assert len(caught) == 4


def test_undelivered_event_is_an_alarm_for_an_hour(now: datetime) -> None:
    event, mail = announced(Fleet(now=now)), a_channel(at=now)
    routed(now)
    message = a_message(event, None, at=now, state="UNROUTED")
    assert health(now) == "undelivered"
    message.delete()
    assert health(now) == "works"
    a_post(mail, at=now, state="GIVEN_UP", moment="event.first_seen")
    assert health(now) == "undelivered"
    MessageDelivery.objects.update(created_at=now - timedelta(hours=2))
    assert health(now) == "works"


def test_status_bar_shows_health_red_only_on_failure(now: datetime, client: Client) -> None:
    client.force_login(factories.operator())

    def told() -> str:
        strip = client.get("/drills/").content.decode().split('<ul id="strip"')[1].split("</ul>")[0]
        return strip.rpartition("<li>")[2]

    calm = told()
    assert 'data-state="nobody"' in calm
    assert "tone-text" not in calm
    a_channel(at=now, failures=FAILING_AFTER)
    routed(datetime.now(UTC))
    assert "tone-text-bad" in told()
    assert 'data-state="all_fail"' in told()
    Channel.objects.update(failures=0)
    assert 'data-state="works"' in told()
    assert "tone-text-bad" not in told()


@pytest.fixture
def outside(now: datetime, loopback_pool: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(notification_tasks, "send", loopback_pool.send)
    with receiver() as found:
        settings.WATCHDOG_URL = f"{found.url}/ping/abc"
        yield found


def works(now: datetime) -> Fleet:
    fleet = Fleet(now=now)
    fleet.enrol_set(1)
    fleet.advance()
    a_channel(at=now)
    routed(now)
    return fleet


@pytest.mark.parametrize("begin", [lambda now: Fleet(now=now).advance(), works], ids=["empty", "works"])
def test_watchdog_is_pinged_once_a_minute(now: datetime, outside: Receiver, begin: Any, settings: Any) -> None:
    begin(now)
    assert notification_tasks.ping(via="celery")
    assert not notification_tasks.ping(via="web")
    assert [(got.method, got.path, got.body) for got in outside.got] == [("POST", "/ping/abc", b"")]
    LastRun.objects.filter(name="watchdog").update(ran_at=now - timedelta(minutes=1))
    assert notification_tasks.ping(via="web")
    assert len(outside.got) == 2
    LastRun.objects.filter(name="watchdog").delete()
    settings.WATCHDOG_URL = ""
    assert not notification_tasks.ping(via="celery")
    assert not LastRun.objects.filter(name="watchdog").exists()


def break_agents(now: datetime) -> None:
    factories.Machine.objects.get().presence.__class__.objects.update(last_heard_at=now - timedelta(hours=1))
    # The next tick detects changed presence.
    reconcile.advance(now=now, via="beat")


def late(name: str) -> Callable[[datetime], Any]:
    return lambda now: LastRun.objects.filter(name=name).update(ran_at=now - timedelta(hours=1))


@pytest.mark.parametrize(
    ("breaks", "code"),
    [
        (break_agents, b"no-live-agents"),
        (late(LastRun.RECONCILE), b"nobody-reconciles"),
        (late(ROUTER), b"nobody-routes"),
        (lambda now: Channel.objects.update(failures=FAILING_AFTER), b"all-channels-fail"),
    ],
)
def test_failure_stops_or_fails_the_ping(
    now: datetime, outside: Receiver, settings: Any, breaks: Any, code: bytes
) -> None:
    works(now)
    breaks(now)
    assert not notification_tasks.ping(via="celery")
    assert outside.got == []
    settings.WATCHDOG_REPORT_FAILURES = True
    LastRun.objects.filter(name="watchdog").delete()
    assert notification_tasks.ping(via="celery")
    (got,) = outside.got
    assert (got.path, got.body) == ("/ping/abc/fail", code)


def test_gauges_of_waiting_and_failed_by_channel_kind(fleet: Fleet) -> None:
    event = announced(fleet)
    slack, mail = a_channel("slack", at=fleet.now), a_channel("mail", kind="mail", at=fleet.now)
    a_message(event, slack, at=fleet.now)
    a_message(event, slack, at=fleet.now, due_at=fleet.now + seconds(3600))
    a_post(mail, [a_message(event, mail, at=fleet.now)], at=fleet.now, state="QUEUED", tries=[failed(), failed()])
    a_post(mail, [a_message(event, mail, at=fleet.now)], at=fleet.now)
    fleet.later(90)
    expected = {
        'drydock_notifications_waiting{kind="slack"}': 1,
        'drydock_notifications_waiting{kind="mail"}': 1,
        "drydock_oldest_waiting_notification_seconds": 90,
        'drydock_deliveries{kind="mail",state="DELIVERED"}': 1,
        'drydock_deliveries{kind="mail",state="QUEUED"}': 1,
        'drydock_delivery_attempts_failed{kind="mail"}': 2,
    }
    assert numbers(fleet).items() >= expected.items()
    fleet.later(3600)
    later = numbers(fleet)
    assert not [name for name in later if name.startswith(("drydock_deliveries", "drydock_delivery_attempts_failed"))]


def test_gauge_of_channels_by_health(fleet: Fleet) -> None:
    paused: dict[str, Any] = {"held_until": fleet.now + seconds(9)}
    a_channel("works", at=fleet.now, last_ok_at=fleet.now)
    a_channel("new", at=fleet.now)
    a_channel("held", at=fleet.now, last_ok_at=fleet.now, **paused)
    a_channel("fails", at=fleet.now, failing_since=fleet.now, **paused)
    a_channel("off", at=fleet.now, enabled=False)
    a_channel("gone", at=fleet.now, deleted_at=fleet.now)
    found = numbers(fleet)
    assert {found[f'drydock_channels{{state="{health.value}"}}'] for health in ChannelHealth} == {1}
    Channel.objects.update(held_until=fleet.now)
    assert numbers(fleet)['drydock_channels{state="held"}'] == 0


def test_gauge_of_router_lag(fleet: Fleet) -> None:
    announced(fleet)
    idle = numbers(fleet)
    assert "drydock_router_age_seconds" not in idle
    assert idle["drydock_router_lag_seconds"] == 0
    first, *_, last = Entry.objects.order_by("era", "xid", "id")
    LastRun.objects.create(name=ROUTER, ran_at=fleet.now, via="celery")
    cursor = Cursor.objects.create(name=ROUTER, era=first.era, xid=0, entry_id=0, moved_at=fleet.now)
    fleet.now = first.recorded_at + timedelta(seconds=40)
    assert numbers(fleet)["drydock_router_lag_seconds"] == 40
    assert numbers(fleet)["drydock_router_age_seconds"] > 0
    cursor.xid, cursor.entry_id = last.xid, last.pk
    cursor.save()
    assert numbers(fleet)["drydock_router_lag_seconds"] == 0


def test_gauge_of_open_unrouted_events(fleet: Fleet) -> None:
    event = announced(fleet)
    for moment in ("event.first_seen", "event.changed"):
        a_message(event, None, at=fleet.now, moment=moment, state="UNROUTED")
    assert numbers(fleet)["drydock_events_unrouted"] == 1
    fleet.later(60)
    fleet.all_say()
    assert numbers(fleet)["drydock_events_unrouted"] == 0
