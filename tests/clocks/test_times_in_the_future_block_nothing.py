"""Rows that a wrong clock has written, as one of the release before could: their times lie ahead, and block nothing."""

from datetime import datetime, timedelta

import pytest

from fleet.audit import partition_drop, seals
from fleet.domain.desk import RelayHealth
from fleet.domain.scheduling import NEVER
from fleet.models import LastRun, Order, PresenceRow, ScheduledEvent
from fleet.models.reconcile import seconds_since_run
from fleet.notifications import delivery, router, tasks
from fleet.notifications.grouping import NotificationHealth
from fleet.notifications.models import Channel, Message, MessageDelivery
from fleet.notifications.queries import notification_health
from fleet.operations import blind_spots, reconcile
from fleet.projections.desk import gauges
from fleet.projections.desk.status_bar import overview
from tests.factories import Fleet, announced, open_order
from tests.messages.walk import due_channels

pytestmark = pytest.mark.django_db

JUMPS = [timedelta(minutes=10), timedelta(hours=3)]


@pytest.fixture(params=JUMPS, ids=["minutes", "hours"])
def jump(request: pytest.FixtureRequest) -> timedelta:
    found: timedelta = request.param
    return found


@pytest.fixture
def fleet() -> Fleet:
    found = Fleet()
    found.enrol_set(2)
    found.advance()
    return found


def marked(name: str, at: datetime) -> None:
    LastRun.objects.update_or_create(name=name, defaults={"ran_at": at, "via": "beat"})


def test_reconciling_that_ran_in_the_future_has_not_run(fleet: Fleet, jump: timedelta) -> None:
    marked(LastRun.RECONCILE, fleet.now + jump)
    assert overview(now=fleet.now).relay is RelayHealth.STANDS_STILL
    ages = {sample.gauge.name: sample.values for sample in gauges.measure(now=fleet.now)}
    assert ages["drydock_sweep_age_seconds"][()] == float("inf")
    assert reconcile.run_if_quiet(reconcile.RUN, reconcile.advance, now=fleet.now, quiet_seconds=5)
    assert LastRun.objects.get(name=LastRun.RECONCILE).ran_at == fleet.now


def test_what_it_put_off_is_looked_at_again(fleet: Fleet, jump: timedelta) -> None:
    event = announced(fleet)
    fleet.advance()
    ScheduledEvent.objects.update(next_check_at=fleet.now + jump)
    marked(LastRun.RECONCILE, fleet.now + jump)
    assert fleet.advance().looked_at == 1
    assert ScheduledEvent.objects.get(pk=event.pk).next_check_at not in (None, fleet.now + jump)


def test_nothing_open_waits_for_longer_than_it_may(fleet: Fleet) -> None:
    announced(fleet)
    fleet.advance()
    ScheduledEvent.objects.update(next_check_at=fleet.now + timedelta(hours=3))
    reconcile.repair(now=fleet.now)
    fleet.advance()
    assert ScheduledEvent.objects.get().next_check_at < fleet.now + timedelta(hours=2) < NEVER


def test_the_router_and_the_others_that_ran_in_the_future_have_not_run(fleet: Fleet, jump: timedelta) -> None:
    now, ahead = fleet.now, fleet.now + jump
    for name in (router.NAME, blind_spots.RUN, partition_drop.RUN, seals.SEAL_RUN, seals.RUN, tasks.WATCHDOG):
        marked(name, ahead)
    assert seconds_since_run(router.NAME, now=now) == float("inf")
    Channel.objects.create(kind="webhook", name="hook", created_at=now, changed_at=now)
    assert notification_health(now=now) is NotificationHealth.STANDS_STILL
    assert seals.is_due(now=now)
    assert tasks.is_ping_due(now=now, via="web")
    jobs = {**reconcile.IF_QUIET, **reconcile.SLOW_IF_QUIET, blind_spots.RUN: blind_spots.compare}
    assert {partition_drop.RUN, seals.SEAL_RUN} < jobs.keys()
    for name, job in jobs.items():
        assert reconcile.run_if_quiet(name, job, now=now, quiet_seconds=90)
        assert LastRun.objects.get(name=name).ran_at == now


def test_a_machine_heard_in_the_future_is_not_live_until_it_is_heard_again(fleet: Fleet, jump: timedelta) -> None:
    PresenceRow.objects.update(last_heard_at=fleet.now + jump, last_poll_at=fleet.now + jump)
    fleet.later(2)
    reconcile.repair(now=fleet.now)
    fleet.advance()
    assert overview(now=fleet.now).presence.live == 0
    assert overview(now=fleet.now).presence.late == 2
    fleet.heard("vm1")
    fleet.advance()
    assert overview(now=fleet.now).presence.live == 1
    assert PresenceRow.objects.filter(last_heard_at__gt=fleet.now).count() == 0


def a_message(fleet: Fleet, at: datetime, **fields: object) -> Message:
    channel, _ = Channel.objects.get_or_create(
        name="ops", defaults={"kind": "webhook", "created_at": fleet.now, "changed_at": fleet.now}
    )
    found: Message = Message.objects.create(
        moment="event.first_seen", subject="event:1", at=at, created_at=at, due_at=at, severity="warning",
        channel=channel, **fields,
    )  # fmt: skip
    return found


def test_a_notification_that_was_due_in_the_future_is_due_now(fleet: Fleet, jump: timedelta) -> None:
    message = a_message(fleet, fleet.now + jump)
    # A step of escalation has its time by what it is about.
    step = a_message(fleet, fleet.now, only_if="undecided")
    Message.objects.filter(pk=step.pk).update(due_at=fleet.now + jump)
    assert due_channels(now=fleet.now) == []
    reconcile.repair(now=fleet.now)
    assert due_channels(now=fleet.now) == [message.channel_id]
    assert delivery.waiting(message.channel_id, now=fleet.now) == [message.pk]
    assert Message.objects.get(pk=step.pk).due_at == fleet.now + jump


def test_a_delivery_made_in_the_future_keeps_no_other_waiting(fleet: Fleet, jump: timedelta) -> None:
    message = a_message(fleet, fleet.now)
    for state in ("QUEUED", "DELIVERED"):
        MessageDelivery.objects.create(
            channel=message.channel, moment="event.ended", state=state, created_at=fleet.now + jump,
            due_at=fleet.now + jump,
        )  # fmt: skip
    reconcile.repair(now=fleet.now)
    assert not MessageDelivery.objects.filter(created_at__gt=fleet.now).exists()


def test_leases_and_pauses_of_channels_that_are_too_long_end(fleet: Fleet) -> None:
    message = a_message(fleet, fleet.now)
    ahead = fleet.now + timedelta(hours=3)
    Channel.objects.update(leased_until=ahead, held_until=ahead, mirrored_at=ahead)
    assert due_channels(now=fleet.now) == []
    reconcile.repair(now=fleet.now)
    assert due_channels(now=fleet.now) == [message.channel_id]
    # One that has just begun stays.
    Channel.objects.update(leased_until=fleet.now + delivery.LEASE, held_until=fleet.now + timedelta(minutes=5))
    reconcile.repair(now=fleet.now)
    assert due_channels(now=fleet.now) == []


def test_an_order_offered_in_the_future_times_out_as_others_do(fleet: Fleet, jump: timedelta) -> None:
    announced(fleet, resources=["vm1"])
    fleet.advance()
    first = open_order(fleet.approve())
    Order.objects.update(offered_at=fleet.now + jump)
    reconcile.repair(now=fleet.now)
    assert Order.objects.get(pk=first.pk).offered_at == fleet.now
    # The machine that was asked says nothing, and the other one is asked.
    for _ in range(12):
        fleet.tick(2)
    assert Order.objects.exclude(pk=first.pk).exists()
