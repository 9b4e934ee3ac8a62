"""Notification metrics on `/metrics`: waiting, failed and unrouted notifications, and how far the router lags."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleet.models import Entry, LastRun
from fleet.notifications.grouping import ChannelHealth
from fleet.notifications.metrics import ROUTER
from fleet.notifications.models import Channel, Cursor
from tests.factories import Fleet, announced, seconds
from tests.gateway.test_fleet_metrics import numbers
from tests.messages.sent import a_channel, a_message, a_post, failed

pytestmark = pytest.mark.django_db


def test_gauges_of_waiting_and_failed_by_channel_kind(fleet: Fleet) -> None:
    event = announced(fleet)
    slack, mail = a_channel("slack", at=fleet.now), a_channel("mail", kind="mail", at=fleet.now)
    a_message(event, slack, at=fleet.now)
    a_message(event, slack, at=fleet.now, due_at=fleet.now + seconds(3600))
    a_post(mail, [a_message(event, mail, at=fleet.now)], at=fleet.now, state="QUEUED", tries=[failed(), failed()])
    a_post(mail, [a_message(event, mail, at=fleet.now)], at=fleet.now)
    fleet.later(90)
    found = numbers(fleet)
    assert (
        found['drydock_notifications_waiting{kind="slack"}'] == found['drydock_notifications_waiting{kind="mail"}'] == 1
    )
    assert found["drydock_oldest_waiting_notification_seconds"] == 90
    assert found['drydock_deliveries{kind="mail",state="DELIVERED"}'] == 1
    assert found['drydock_deliveries{kind="mail",state="QUEUED"}'] == 1
    assert found['drydock_delivery_attempts_failed{kind="mail"}'] == 2
    fleet.later(3600)
    later = numbers(fleet)
    assert not [name for name in later if name.startswith(("drydock_deliveries", "drydock_delivery_attempts_failed"))]


def test_gauge_of_channels_by_health(fleet: Fleet) -> None:
    for name, fields in {
        "works": {"last_ok_at": fleet.now},
        "new": {},
        "held": {"last_ok_at": fleet.now, "held_until": fleet.now + seconds(9)},
        "fails": {"failing_since": fleet.now, "held_until": fleet.now + seconds(9)},
        "off": {"enabled": False},
    }.items():
        a_channel(name, at=fleet.now, **fields)
    a_channel("gone", at=fleet.now, deleted_at=fleet.now)
    found = numbers(fleet)
    assert [found[f'drydock_channels{{state="{health.value}"}}'] for health in ChannelHealth] == [1] * len(
        ChannelHealth
    )
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
