"""Operations out of notifications: any subset, any order and repeats."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.caches.maintenances import Heard, MaintenanceStatus, Operation, operations_of, shard_of, status_of
from fleet.domain.caches.notifications import read_notification
from tests.caches.walking import EXAMPLE, clock, line

AFTER = clock("23:00:00")


def heard(at: str, raw: str) -> Heard:
    read = read_notification(raw)
    return Heard(
        key=f"{at} {raw}",
        type=read.type,
        at=clock(at),
        start_time=read.start_time,
        is_replica=read.is_replica,
        port=read.ssl_port,
    )


SEQUENCE = [heard(at, raw) for at, raw in EXAMPLE]
SUBSETS = [list(chosen) for size in range(1, 6) for chosen in combinations(SEQUENCE, size)]


def one(*members: Heard) -> Operation:
    (operation,) = operations_of(members)
    return operation


@pytest.mark.parametrize(
    ("now", "status"),
    [
        ("16:21:39", MaintenanceStatus.ANNOUNCED), ("16:34:25", MaintenanceStatus.ANNOUNCED),
        ("16:34:26", MaintenanceStatus.STARTING), ("16:34:46", MaintenanceStatus.UNDER_WAY),
        ("16:34:55", MaintenanceStatus.UNDER_WAY), ("16:34:56", MaintenanceStatus.FAILED_OVER),
        ("16:37:47", MaintenanceStatus.FAILED_OVER), ("16:37:48", MaintenanceStatus.ENDED),
        ("23:00:00", MaintenanceStatus.ENDED),
    ],
)  # fmt: skip
def test_the_documented_sequence_as_the_clock_goes(now: str, status: MaintenanceStatus) -> None:
    at = clock(now)
    assert status_of(one(*[member for member in SEQUENCE if member.at <= at]), now=at) is status


@pytest.mark.parametrize("subset", SUBSETS)
def test_every_subset_is_one_operation_that_does_not_stay_open(subset: list[Heard]) -> None:
    operation = one(*subset)
    status = status_of(operation, now=AFTER)
    if SEQUENCE[4] in subset:
        assert status is MaintenanceStatus.ENDED
    elif subset == [SEQUENCE[0]]:
        assert status is MaintenanceStatus.NEVER_STARTED
    else:
        assert status is MaintenanceStatus.END_NOT_SEEN


MOMENTS = st.integers(0, 14400).map(lambda count: clock("10:00:00") + timedelta(seconds=count))
# Lines of several operations on one shard, as they may come within a day.
MANY = st.lists(
    st.builds(
        Heard,
        key=st.just(""),
        type=st.sampled_from(
            [
                "NodeMaintenanceScheduled", "NodeMaintenanceStarting", "NodeMaintenanceStart",
                "NodeMaintenanceFailoverComplete", "NodeMaintenanceEnded", "NodeMaintenanceScaleComplete",
                "NodeMaintenancePaused", None,
            ]
        ),
        at=MOMENTS,
        start_time=st.none() | MOMENTS,
        is_replica=st.sampled_from([None, True, False]),
        port=st.sampled_from([None, 15000, 15001]),
    ).map(lambda found: replace(found, key=repr(found))),
    max_size=14,
)  # fmt: skip


@given(MANY, st.data())
def test_whatever_was_heard_folds_the_same_in_any_order_and_nothing_stays_open(
    many: list[Heard], data: st.DataObject
) -> None:
    found = operations_of(many)
    again = data.draw(st.permutations(many + many[:3]))
    assert operations_of(again) == found
    members = [member for operation in found for member in operation.members]
    assert len(members) == len(set(members))
    assert {member for member in many if member.kind} <= set(members) <= set(many)
    over = {MaintenanceStatus.ENDED, MaintenanceStatus.END_NOT_SEEN, MaintenanceStatus.NEVER_STARTED}
    assert all(status_of(operation, now=clock("23:59:59")) in over for operation in found)


def test_a_repeated_announcement_with_the_same_start_is_one() -> None:
    again = [replace(SEQUENCE[0], key=str(number), at=SEQUENCE[0].at + timedelta(minutes=number)) for number in (2, 5)]
    operation = one(SEQUENCE[0], *again)
    assert (operation.scheduled_at, operation.expected_at) == (clock("16:21:39"), clock("16:35:57"))
    assert len(operation.members) == 3
    assert len(one(*SEQUENCE, *again).members) == 7


def test_an_announcement_for_another_time_is_another_operation() -> None:
    later = heard("17:00:00", line("NodeMaintenanceScheduled", start="17:12:00"))
    first, second = operations_of([later, SEQUENCE[0]])
    assert (first.expected_at, second.expected_at) == (clock("16:35:57"), clock("17:12:00"))
    assert status_of(first, now=clock("17:00:00")) is MaintenanceStatus.NEVER_STARTED
    assert status_of(second, now=clock("17:00:00")) is MaintenanceStatus.ANNOUNCED


def test_the_node_may_go_three_minutes_before_scheduled_says() -> None:
    start = heard("16:32:57", line("NodeMaintenanceStart"))
    operation = one(SEQUENCE[0], start)
    assert (operation.began_at, operation.expected_at) == (clock("16:32:57"), clock("16:35:57"))
    assert status_of(operation, now=clock("16:33:00")) is MaintenanceStatus.UNDER_WAY


def test_an_announcement_without_a_time_is_expected_within_fifteen_minutes() -> None:
    operation = one(heard("16:21:39", line("NodeMaintenanceScheduled")))
    assert (operation.expected_at, operation.approximate) == (clock("16:36:39"), True)


def test_ended_for_a_replica_with_nothing_before_it_is_an_operation() -> None:
    operation = one(heard("16:27:42", line("NodeMaintenanceEnded", replica="True", port=15001, start="16:27:42")))
    assert (operation.node_port, operation.is_replica, operation.swapped) == (15001, True, False)
    assert (operation.began_at, operation.ended_at) == (None, clock("16:27:42"))


def test_both_nodes_of_a_shard_one_after_the_other_are_two_operations() -> None:
    other = [
        heard("16:40:00", line("NodeMaintenanceStarting", replica="True", port=15000, start="16:40:20")),
        heard("16:40:20", line("NodeMaintenanceStart", replica="True", port=15000)),
        heard("16:43:00", line("NodeMaintenanceEnded", replica="True", port=15000, start="16:43:00")),
    ]
    first, second = operations_of([*SEQUENCE, *other])
    assert (len(first.members), len(second.members)) == (5, 3)
    assert second.swapped is False


# Maintenance of both nodes of one shard at the same time: 15000 fails over to 15001, which then fails over to 15000.
OVERLAPPING = [
    heard("16:21:39", line("NodeMaintenanceScheduled", start="16:35:57")),
    heard("16:22:10", line("NodeMaintenanceScheduled", replica="True", port=15001, start="16:38:00")),
    heard("16:34:26", line("NodeMaintenanceStarting", start="16:34:46")),
    heard("16:34:46", line("NodeMaintenanceStart")),
    heard("16:34:56", line("NodeMaintenanceFailoverComplete", port=15001)),
    heard("16:36:00", line("NodeMaintenanceStarting", port=15001, start="16:36:20")),
    heard("16:36:20", line("NodeMaintenanceStart", port=15001)),
    heard("16:36:30", line("NodeMaintenanceFailoverComplete", port=15000)),
    heard("16:37:48", line("NodeMaintenanceEnded", replica="True", start="16:37:48")),
    heard("16:39:02", line("NodeMaintenanceEnded", replica="True", port=15001, start="16:39:02")),
]


@pytest.mark.parametrize("lost", [None, *range(len(OVERLAPPING))])
def test_maintenance_of_both_nodes_at_once_is_two_operations_each_with_its_failover(lost: int | None) -> None:
    came = [member for number, member in enumerate(OVERLAPPING) if number != lost]
    first, second = sorted(operations_of(came), key=lambda operation: operation.node_port or 0)
    assert (first.node_port, second.node_port) == (15000, 15001)
    assert first.failover_at == (None if lost == 4 else clock("16:34:56"))
    assert second.failover_at == (None if lost == 7 else clock("16:36:30"))
    assert first.ended_at == (None if lost == 8 else clock("16:37:48"))
    assert second.ended_at == (None if lost == 9 else clock("16:39:02"))


def test_a_failover_whose_other_lines_are_lost_is_not_that_of_the_promoted_node() -> None:
    first, second = operations_of([*OVERLAPPING[:1], *OVERLAPPING[2:5], OVERLAPPING[7]])
    assert (first.node_port, first.partner_port, first.failover_at) == (15000, 15001, clock("16:34:56"))
    assert (second.node_port, second.partner_port, second.failover_at) == (None, 15000, clock("16:36:30"))


def test_adding_nodes_is_an_operation_that_is_over() -> None:
    operation = one(heard("12:00:00", line("NodeMaintenanceScaleComplete", port=15002)))
    assert status_of(operation, now=clock("12:00:00")) is MaintenanceStatus.ENDED


def test_a_type_that_is_not_documented_joins_an_operation_and_makes_none() -> None:
    odd = heard("16:35:00", line("NodeMaintenancePaused"))
    assert operations_of([odd]) == []
    assert len(one(*SEQUENCE[:4], odd).members) == 5


@pytest.mark.parametrize(
    ("ssl_port", "non_ssl_port", "divisor", "shard"),
    [
        (15000, None, 2, 0), (15001, 13001, 2, 0), (15002, None, 2, 1), (None, 13003, 2, 1), (15005, None, 3, 1),
        (None, None, 2, None), (6380, 6379, 2, None),
    ],
)  # fmt: skip
def test_shard_follows_from_the_ports(
    ssl_port: int | None, non_ssl_port: int | None, divisor: int, shard: int | None
) -> None:
    assert shard_of(ssl_port=ssl_port, non_ssl_port=non_ssl_port, divisor=divisor) == shard
