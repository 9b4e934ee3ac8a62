"""Copies of one line are one notification with its reporters; notifications are one maintenance with its members."""

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from drydock_agent import wire

from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.models import Cache, Entry, Maintenance, Notification, Reporter
from tests.caches.walking import EXAMPLE, HOST, Listeners, clock, line, the_cache, the_maintenance
from tests.factories import after, seconds
from tests.words import text

START = line("NodeMaintenanceStart")


def test_three_agents_on_one_cache_are_one_notification_with_three_reporters(listeners: Listeners) -> None:
    for number, name in enumerate(("vm2", "vm1", "vm3")):
        listeners.hear(name, START, at=clock("16:34:46") + seconds(number))
    (row,) = Notification.objects.all()
    assert (row.first_at, row.last_at) == (clock("16:34:46"), clock("16:34:48"))
    assert [one.machine.resource_name for one in row.reporters.order_by("first_at")] == ["vm2", "vm1", "vm3"]
    assert Entry.objects.filter(cache=the_cache()).count() == 1


def test_a_line_heard_again_after_the_window_is_news(listeners: Listeners) -> None:
    listeners.hear("vm1", START, at=clock("16:34:46"))
    listeners.hear("vm1", START, at=clock("16:35:46"))
    assert Notification.objects.count() == 1
    listeners.hear("vm1", START, at=clock("16:36:47"))
    assert Notification.objects.count() == 2


def test_a_late_copy_between_two_shows_that_they_were_one(listeners: Listeners) -> None:
    listeners.hear("vm1", START, at=clock("16:34:00"))
    listeners.hear("vm2", START, at=clock("16:35:50"))
    assert Notification.objects.count() == 2
    listeners.hear("vm3", START, at=clock("16:34:55"))
    row = Notification.objects.get()
    assert (row.first_at, row.last_at) == (clock("16:34:00"), clock("16:35:50"))
    assert {one.machine.resource_name for one in row.reporters.all()} == {"vm1", "vm2", "vm3"}
    assert the_maintenance().notifications.get() == row


def test_the_same_line_of_two_caches_stays_apart(listeners: Listeners) -> None:
    listeners.hear("vm1", START)
    listeners.hear("vm1", START, host="sessions.redis.cache.windows.net")
    assert Notification.objects.count() == Maintenance.objects.count() == Cache.objects.count() == 2


def test_the_documented_sequence_is_one_maintenance_with_five_members(listeners: Listeners) -> None:
    listeners.play("vm1", "vm2", "vm3")
    row = the_maintenance()
    assert row.status == MaintenanceStatus.ENDED.value
    assert (row.shard, row.node_port, row.partner_port) == (0, 15000, 15001)
    assert (row.first_at, row.expected_at, row.began_at) == (clock("16:21:39"), clock("16:34:46"), clock("16:34:46"))
    assert (row.failover_at, row.ended_at, row.approximate) == (clock("16:34:56"), clock("16:37:48"), False)
    assert (row.was_replica, row.is_replica, row.swapped) == (False, True, True)
    assert row.notifications.count() == 5
    assert Reporter.objects.count() == 15
    assert set(Entry.objects.filter(cache__isnull=False).values_list("maintenance_id", flat=True)) == {row.pk}


def state() -> Any:
    notifications = {
        (row.raw, row.first_at, row.last_at, row.ssl_port, row.shard): sorted(
            (one.machine.resource_name, one.first_at, one.copies) for one in row.reporters.select_related("machine")
        )
        for row in Notification.objects.all()
    }
    names = [
        field.attname
        for field in Maintenance._meta.concrete_fields
        # When a row was written depends on the order, and nothing that it says does.
        if field.attname not in ("id", "cache_id", "status", "changed_at")
    ]
    operations = sorted(
        ([getattr(row, name) for name in names] + [sorted(row.notifications.values_list("raw", "first_at"))])
        for row in Maintenance.objects.all()
    )
    return notifications, operations


def together(listeners: Listeners, told: list[tuple[str, datetime, str]]) -> None:
    """All of it in one batch, one delivery of each machine."""
    deliveries = []
    for name, agent in listeners.agents.items():
        heard = [(at, wire.RedisData(cache=HOST, raw=raw)) for who, at, raw in told if who == name]
        deliveries.append(agent.delivery(*(agent.report(data, at=at) for at, data in heard)))
    listeners.record(*deliveries)


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_arrival_and_one_batch_of_all_end_in_the_same_rows(listeners: Listeners, seed: int) -> None:
    chooser = random.Random(seed)
    told = [
        (name, clock(at) + seconds(number * chooser.choice((1, 25))), raw)
        for at, raw in [*EXAMPLE, EXAMPLE[0]]
        for number, name in enumerate(("vm1", "vm2", "vm3"))
        if chooser.random() < 0.7
    ]
    listeners.now = clock("16:40:00")
    results = []
    for number in range(3):
        chooser.shuffle(told)
        with transaction.atomic():
            if number == 0:
                together(listeners, told)
            for name, at, raw in told if number else ():
                listeners.hear(name, raw, at=at)
            results.append(state())
            transaction.set_rollback(True)
    assert results[0] == results[1] == results[2]
    assert len(results[0][1]) == 1


def test_two_shards_of_a_cluster_are_two_operations_and_the_partner_is_not_a_third(listeners: Listeners) -> None:
    for port in (15000, 15002):
        listeners.hear("vm1", line("NodeMaintenanceStart", port=port), at=clock("16:34:46"))
        listeners.hear("vm1", line("NodeMaintenanceFailover", port=port + 1), at=clock("16:34:56"))
    assert list(Maintenance.objects.order_by("shard").values_list("shard", "node_port", "partner_port")) == [
        (0, 15000, 15001),
        (1, 15002, 15003),
    ]
    # The nodes of one shard are back; the other shard waits for its own message.
    listeners.hear("vm1", line("NodeMaintenanceEnded", port=15000), at=clock("16:37:48"))
    ended = Maintenance.objects.order_by("shard").values_list("ended_at", flat=True)
    assert [at is not None for at in ended] == [True, False]


def test_a_cache_may_say_how_many_ports_make_a_shard(listeners: Listeners) -> None:
    listeners.report("vm1", wire.CoverageData(cache=HOST, state="subscribed", tier="premium", divisor=3))
    listeners.hear("vm1", line("NodeMaintenanceStart", port=15002))
    assert (the_cache().tier, the_cache().divisor, the_maintenance().shard) == ("premium", 3, 0)


def test_an_announcement_that_arrives_after_its_start_is_late(listeners: Listeners) -> None:
    listeners.now = clock("16:36:00")
    listeners.hear("vm1", EXAMPLE[0][1], at=clock("16:21:39"))
    assert Notification.objects.get().late
    assert "after the start" in text(Entry.objects.get(cache__isnull=False))
    listeners.hear("vm1", EXAMPLE[4][1], at=clock("16:37:48"))
    assert Notification.objects.filter(late=True).count() == 1


def test_time_ends_announced_and_unobserved_maintenances(listeners: Listeners) -> None:
    listeners.play("vm1", upto=1)
    listeners.hear("vm1", START, host="sessions.redis.cache.windows.net")
    listeners.now = clock("16:50:00")
    listeners.advance()
    assert set(Maintenance.objects.values_list("status", flat=True)) == {"ANNOUNCED", "UNDER_WAY"}
    listeners.now = clock("16:52:00")
    listeners.advance()
    listeners.advance()
    assert set(Maintenance.objects.values_list("status", flat=True)) == {"NEVER_STARTED", "END_NOT_SEEN"}
    told = Entry.objects.filter(kind__in=["maintenance_never_started", "maintenance_end_not_seen"])
    assert sorted(told.values_list("kind", flat=True)) == ["maintenance_end_not_seen", "maintenance_never_started"]


def test_an_end_that_arrives_late_is_still_the_end(listeners: Listeners) -> None:
    listeners.play("vm1", upto=4)
    listeners.now = clock("17:30:00")
    listeners.advance()
    assert the_maintenance().status == "END_NOT_SEEN"
    listeners.hear("vm2", EXAMPLE[4][1], at=clock("16:37:48"))
    assert (the_maintenance().status, the_maintenance().ended_at) == ("ENDED", clock("16:37:48"))


@pytest.mark.parametrize("raw", [b"\xff\xfe|\x00|", b"", b"NotificationType|Node\x00Paused|SSLPort|15000", b"|" * 9000])
def test_bytes_that_are_no_text_are_kept_flagged_and_harm_nothing(listeners: Listeners, raw: bytes) -> None:
    listeners.hear("vm1", raw)
    row = Notification.objects.get()
    assert row.flags
    assert row.maintenance is None
    assert Entry.objects.get(cache__isnull=False).kind == "notification_unknown"


def test_an_operation_of_yesterday_is_not_touched_by_todays(listeners: Listeners) -> None:
    listeners.play("vm1")
    first = the_maintenance()
    listeners.now += timedelta(days=1)
    listeners.hear("vm1", START)
    assert Maintenance.objects.count() == 2
    assert (after(first).status, first.notifications.count()) == ("ENDED", 5)
