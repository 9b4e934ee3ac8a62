"""The worker of one process: a thread for each channel that has something to send, and nothing when nothing is due."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.domain.db_timeouts import role
from fleet.models import LastRun
from fleet.notifications import delivery
from fleet.notifications import tasks as notification_tasks
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome
from fleet.notifications.models import Channel
from tests.factories import Fleet, announced
from tests.messages.walk import a_channel, only, routed, told
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet(settings: Any) -> Fleet:
    """Here time is real."""
    settings.NOTIFICATION_GROUP_WAIT_SECONDS = 0.1
    fleet = Fleet(now=datetime.now(UTC))
    fleet.enrol_set()
    routed(fleet)
    return fleet


def _lease(channel: Channel) -> Any:
    return Channel.objects.values_list("leased_until", flat=True).get(pk=channel.pk)


def ended(thread: notification_tasks.Worker) -> bool:
    return thread._thread is None


def test_hanging_channel_delays_no_other(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go, roles = threading.Event(), []

    class Hangs:
        @staticmethod
        def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
            roles.append(role())
            if channel.name == "hangs":
                let_go.wait(60)
            return Outcome(ok=True)

    monkeypatch.setattr(delivery, "kind_of", lambda name: Hangs)
    monkeypatch.setattr(notification_tasks, "LINGER_SECONDS", 1.0)
    monkeypatch.setattr(delivery, "RENEW_SECONDS", 0.2)
    for name in ("hangs", "works", "works too"):
        a_channel(name, now=fleet.now)
    only(now=fleet.now, moments=["event.first_seen"])
    announced(fleet)
    one = notification_tasks.Worker()
    one.start(via="test")
    try:
        wait_for(lambda: len(told(state="TOLD")) == 2, seconds=20, what="the other two deliveries")
        assert told(state="PACKED") == [("event.first_seen", "hangs")]
        leased = Channel.objects.get(name="hangs")
        wait_for(lambda: _lease(leased) > leased.leased_until, seconds=20, what="the lease is renewed meanwhile")
    finally:
        let_go.set()
        wait_for(lambda: ended(one), seconds=30, what="it ends once nothing is due")
    assert len(told(state="TOLD")) == 3
    assert set(roles) == {"messages"}
    assert not Channel.objects.filter(leased_until__isnull=False).exists()


def test_web_process_sends_when_celery_is_quiet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(notification_tasks.worker, "start", lambda *, via: started.append(via))
    LastRun.objects.filter(name="router").update(ran_at=datetime.now(UTC))
    notification_tasks.tell_if_quiet()
    assert started == []
    LastRun.objects.all().delete()
    notification_tasks.tell_if_quiet()
    assert started == ["web"]
