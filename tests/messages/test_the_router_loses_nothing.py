"""Notification router: each timeline entry becomes one notification, whichever process runs or dies, and wherever."""

import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from fleet.domain.db_timeouts import role
from fleet.models import LastRun, ScheduledEvent
from fleet.notifications import delivery, dry_run, log, route_services, router
from fleet.notifications import tasks as notification_tasks
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome
from fleet.notifications.models import Channel, Cursor, Message, Route
from fleet.notifications.route_services import RouteChangeSerializer
from fleet.operations.approvals import claims
from fleet.operations.orders import advance
from tests.approvals.asking import hook
from tests.approvals.racing import thread_group
from tests.factories import EVENT, Fleet, acting, admin, announced, listing, operator, seconds
from tests.holding import session
from tests.messages.sent import a_route, channel
from tests.messages.telling import news
from tests.messages.walk import only, routed, told
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet() -> Fleet:
    """A set of six, and a router that has run once."""
    fleet = Fleet()
    fleet.enrol_set()
    routed(fleet)
    return fleet


def test_entries_before_the_first_run_are_not_routed() -> None:
    fleet = Fleet()
    announced(fleet)
    channel("shop-ops")
    a_route()
    assert routed(fleet).messages == 0
    assert routed(fleet).messages == 0
    assert Cursor.objects.count() == 1


def test_channel_gets_one_message_however_many_routes_match(fleet: Fleet) -> None:
    for name in ("shop-ops", "pager"):
        channel(name)
    only(moments=["event.first_seen"])
    a_route("again", moments=["event.first_seen", "event.claimed"])
    announced(fleet)
    assert [routed(fleet).messages for _ in range(2)] == [2, 0]
    claims.claim(event_id=EVENT, actor=acting(operator()), now=fleet.now)
    routed(fleet)
    moments = ("event.first_seen", "event.claimed")
    assert told() == [(moment, name) for moment in moments for name in ("shop-ops", "pager")]


def test_message_states_the_route_as_it_was_when_it_sent_the_message(fleet: Fleet) -> None:
    route = only(name="night", channel=channel("shop-ops"), event_types=["Freeze"])
    announced(fleet)
    routed(fleet)
    ada = acting(admin())
    sent = RouteChangeSerializer(data={"name": "day", "event_types": ["Reboot"]})
    route_services.change(sent, route_id=route.pk, actor=ada, now=fleet.now)
    route_services.delete(route_id=route.pk, actor=ada, now=fleet.now)
    row = log.detail(message_id=Message.objects.get().pk, person=ada.person)
    assert (row.route.name, row.route.version, row.route.wording.values["event_types"]) == ("night", 1, ["Freeze"])


def test_channel_with_a_card_follows_the_event_to_its_end(fleet: Fleet) -> None:
    keeps, other = channel("cards", kind="slack"), channel("hook")
    only(moments=["event.first_seen"])
    event = announced(fleet)
    routed(fleet)
    for row in (keeps, other):
        delivery.keep_references(row.pk, {f"event:{event.pk}": {"ts": "1"}}, now=fleet.now)
    claims.claim(event_id=EVENT, actor=acting(operator()), now=fleet.now)
    fleet.later(60)
    fleet.all_say()
    routed(fleet)
    assert told()[2:] == [("event.claimed", "cards"), ("event.ended", "cards")]


def test_crash_before_commit_and_a_late_commit_lose_nothing(fleet: Fleet) -> None:
    channel("shop-ops")
    only(moments=["event.first_seen"])
    with session() as other:
        # It has its number, and commits after the others.
        other.execute("SELECT pg_current_xact_id()")
        announced(fleet)
        first = router.route(now=fleet.now, via="test")
        assert (first.messages, first.behind) == (0, True)
    with pytest.raises(KeyboardInterrupt), transaction.atomic():
        assert routed(fleet).messages == 1
        raise KeyboardInterrupt
    assert not Message.objects.exists()
    with thread_group(4) as group:
        group.at_once(*[partial(routed, fleet)] * 4)
    routed(fleet)
    assert told() == [("event.first_seen", "shop-ops")]


def test_event_that_no_route_wants_is_unrouted(fleet: Fleet) -> None:
    channel("shop-ops")
    only(service="payments")
    announced(fleet)
    routed(fleet)
    assert [(row.state, row.channel, row.event_id is not None) for row in Message.objects.all()] == [
        ("UNROUTED", None, True)
    ]


def test_failing_entry_is_unrouted_and_others_are_routed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    channel("shop-ops")
    only(moments=["event.first_seen"])
    fleet.all_say(*(listing(f"{EVENT[:-1]}{number}", resources=[f"vm{number}"]) for number in range(1, 4)))
    real = router._candidates

    def odd(entry: Any, event: Any, *rest: Any, **named: Any) -> Any:
        if event is not None and event.event_id == f"{EVENT[:-1]}2":
            raise ArithmeticError
        return real(entry, event, *rest, **named)

    monkeypatch.setattr(router, "_candidates", odd)
    routed(fleet)
    assert told(state="WAITING") == [("event.first_seen", "shop-ops")] * 2
    assert Message.objects.get(state="UNROUTED").why == "own-failure"


def test_notification_due_by_the_clock_waits_for_it(fleet: Fleet) -> None:
    channel("shop-ops")
    only(unclaimed_after_seconds=120)
    a_route(moments=["approval.overdue"])
    event = announced(fleet)
    approval = fleet.approve()
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    routed(fleet)
    due = {(row.moment, row.only_if): row.due_at for row in Message.objects.filter(state="WAITING")}
    assert due == {
        ("event.unclaimed", "unclaimed"): event.first_seen_at + seconds(120),
        ("approval.overdue", "unanswered"): fleet.now + seconds(15),
    }


def test_step_before_the_deadline_moves_with_it(fleet: Fleet) -> None:
    channel("shop-ops")
    only(before_decide_by_seconds=60)
    announced(fleet)
    routed(fleet)
    [first] = Message.objects.all()
    assert first.deadline is not None
    assert first.due_at == first.deadline - seconds(60)
    fleet.later(5)
    fleet.all_say(listing(resources=("vm1", "vm2"), not_before=fleet.now + seconds(300)))
    routed(fleet)
    first.refresh_from_db()
    assert (first.state, first.why) == ("DROPPED", "moved")
    second = Message.objects.get(state="WAITING")
    assert second.due_at < first.due_at


def test_channel_is_not_notified_about_itself(fleet: Fleet) -> None:
    broken = channel("broken")
    channel("works")
    only(moments=["channel.failing", "channel.works"])
    for _ in range(3):
        delivery.record_health(broken.pk, Outcome(ok=False, again=True, error="timeout"), now=fleet.now)
    delivery.record_health(broken.pk, Outcome(ok=True), now=fleet.now)
    routed(fleet)
    assert told() == [("channel.failing", "works"), ("channel.works", "works")]


def test_first_event_of_a_set_passes_the_storm_of_another(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MOST", 10)
    channel("shop-ops")
    only(moments=["event.first_seen"])
    fleet.enrol("quiet", availability_set="quiet")
    routed(fleet)
    loud = [f"0FF00000-0000-4000-8000-{number:012}" for number in range(24)]
    for number in range(0, len(loud), 12):
        fleet.say("vm1", *(listing(event_id) for event_id in loud[: number + 12]))
    theirs = "AAA00000-0000-4000-8000-000000000000"
    fleet.say("quiet", listing(theirs, resources=["quiet"]))
    until = time.monotonic() + 20
    while not router.route(now=fleet.now, via="test").messages and time.monotonic() < until:
        # A session that writes on this server, in whatever database, delays the router a moment.
        time.sleep(0.02)
    assert Message.objects.filter(event__event_id=theirs).exists()
    assert Message.objects.count() < len(loud)
    routed(fleet)
    assert sorted(Message.objects.values_list("event__event_id", flat=True)) == sorted([*loud, theirs])


def test_hooks_notify_of_failures_and_of_machines_that_serve_again(fleet: Fleet) -> None:
    channel("ops")
    moments = ["prepare.failed", "recover.failed", "machine.serves_again"]
    only(moments=moments)
    announced(fleet)
    fleet.enrol("admin", availability_set="db")

    def ends(name: str, phase: str, outcome: str) -> None:
        hook(fleet, name, EVENT, "hook", outcome, phase=phase, hook="10-a")
        hook(fleet, name, EVENT, "end", outcome, phase=phase)

    # A machine of another set notifies of nothing.
    ends("admin", "prepare", "failed")
    ends("vm1", "prepare", "failed")
    fleet.later(5)
    fleet.all_say()
    ends("vm1", "recover", "failed")
    ends("vm2", "recover", "succeeded")
    ScheduledEvent.objects.update(drill=True)
    routed(fleet)
    machines = [f"hooks:{fleet.agents[name].machine.pk}" for name in ("vm1", "vm1", "vm2")]
    rows = list(Message.objects.order_by("pk"))
    assert [(row.moment, row.subject) for row in rows] == list(zip(moments, machines, strict=True))
    assert all(row.drill for row in rows)
    # After the event, only its preparation is no longer news.
    assert [news(row, now=fleet.now).stale for row in rows] == ["event-over", "", ""]
    assert dry_run.dry_run(route=Route(moments=moments), now=fleet.now).messages == 3


# The worker of one process: a thread for each channel that has something to send, and nothing when nothing is due.


@pytest.fixture
def today(settings: Any) -> Fleet:
    """Here time is real."""
    settings.NOTIFICATION_GROUP_WAIT_SECONDS = 0.1
    today = Fleet(now=datetime.now(UTC))
    today.enrol_set()
    routed(today)
    return today


def test_hanging_channel_delays_no_other(today: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
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
        channel(name)
    only(moments=["event.first_seen"])
    announced(today)
    one = notification_tasks.Worker()
    one.start(via="test")
    try:
        wait_for(lambda: len(told(state="TOLD")) == 2, seconds=20, what="the other two deliveries")
        assert told(state="PACKED") == [("event.first_seen", "hangs")]
        leased_until = Channel.objects.get(name="hangs").leased_until
        renewed = Channel.objects.filter(name="hangs", leased_until__gt=leased_until)
        wait_for(renewed.exists, seconds=20, what="the lease is renewed meanwhile")
    finally:
        let_go.set()
        wait_for(lambda: one._thread is None, seconds=30, what="it ends once nothing is due")
    assert len(told(state="TOLD")) == 3
    assert set(roles) == {"messages"}
    assert not Channel.objects.filter(leased_until__isnull=False).exists()


def test_web_process_sends_when_celery_is_quiet(today: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(notification_tasks.worker, "start", lambda *, via: started.append(via))
    LastRun.objects.filter(name="router").update(ran_at=datetime.now(UTC))
    notification_tasks.tell_if_quiet()
    assert started == []
    LastRun.objects.all().delete()
    notification_tasks.tell_if_quiet()
    assert started == ["web"]
