"""Which messages go out as one post, and when."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.notifications.grouping import ALONE, EVERYTHING, MARGIN, Batch, DeliveryPlan, Waiting, plan

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
WAIT, INTERVAL = timedelta(seconds=2), timedelta(seconds=60)


def planned(waiting: list[Waiting], recent: list[tuple[str, datetime, int]], *, now: datetime = NOW) -> DeliveryPlan:
    return plan(waiting, recent, now=now, wait=WAIT, interval=INTERVAL)


def events(count: int, *, service: str = "", deadline: datetime | None = None) -> list[Waiting]:
    return [Waiting(number, f"event:{number}", service or f"service{number}", deadline) for number in range(count)]


def ago(seconds: float, group: str = "", *, carried: int = 50) -> tuple[str, datetime, int]:
    return group, NOW - timedelta(seconds=seconds), carried


@pytest.mark.parametrize(
    ("waiting", "batches"),
    [
        pytest.param(events(2), [Batch("", (0,)), Batch("", (1,))], id="a few subjects"),
        pytest.param([Waiting(n, "event:1", "shop") for n in (1, 2)], [Batch("", (1, 2))], id="one subject"),
        pytest.param(events(40, service="shop"), [Batch("shop", tuple(range(40)))], id="one service"),
        pytest.param(events(1000), [Batch(EVERYTHING, tuple(range(1000)))], id="many services"),
    ],
)
def test_deliveries_are_by_subject_then_by_service_then_one(waiting: list[Waiting], batches: list[Batch]) -> None:
    assert list(planned(waiting, []).batches) == batches


@pytest.mark.parametrize(
    ("deadline", "last", "waits"),
    [
        pytest.param(None, 10, 50, id="for the interval"),
        pytest.param(40, 10, 40 - MARGIN.total_seconds(), id="less before a near deadline"),
        pytest.param(15, 0.5, 1.5, id="but never less than the group wait"),
        pytest.param(-1, 10, 50, id="a passed deadline does not count"),
    ],
)
def test_next_digest_waits(deadline: float | None, last: float, waits: float) -> None:
    due = None if deadline is None else NOW + timedelta(seconds=deadline)
    found = planned(events(50, deadline=due), [ago(last, EVERYTHING)])
    assert (found.batches, set(found.later.values())) == ((), {NOW + timedelta(seconds=waits)})
    assert planned(events(50), [ago(10, EVERYTHING)], now=NOW + timedelta(seconds=50)).batches


def test_next_digest_waits_less_after_a_small_one() -> None:
    busy = [ago(30), ago(25), ago(20), ago(15), ago(10), ago(4, EVERYTHING, carried=1)]
    assert set(planned(events(1), busy).later.values()) == {NOW + timedelta(seconds=1)}
    assert planned(events(1), busy, now=NOW + timedelta(seconds=1)).batches == (Batch(EVERYTHING, (0,)),)


def test_imminent_deadline_is_not_waited_for() -> None:
    found = planned(events(50, deadline=NOW + timedelta(seconds=15)), [ago(10, EVERYTHING)])
    assert [batch.group for batch in found.batches] == [EVERYTHING]


messages = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.none() | st.integers(-30, 900)), max_size=40)


@given(messages, st.lists(st.tuples(st.sampled_from(["", "s1", EVERYTHING]), st.floats(0, 59)), max_size=8))
def test_each_message_is_planned_once_within_the_interval(
    drawn: list[tuple[int, int, int | None]], posts: list[tuple[str, float]]
) -> None:
    waiting = [
        Waiting(number, f"event:{subject}", f"s{service}", None if s is None else NOW + timedelta(seconds=s))
        for number, (subject, service, s) in enumerate(drawn)
    ]
    found = planned(waiting, [ago(seconds, group) for group, seconds in posts])
    sent = [message_id for batch in found.batches for message_id in batch.ids]
    assert sorted([*sent, *found.later]) == [one.id for one in waiting]
    assert all(NOW < at <= NOW + INTERVAL for at in found.later.values())
    for batch in found.batches:
        assert list(batch.ids) == sorted(batch.ids)
    assert len(found.batches) <= max(ALONE - len(posts), 1)


LOUD, QUIET, STILL = 1, 2, 3


def of_set(place: int, ids: range, subjects: str = "event") -> list[Waiting]:
    return [Waiting(number, f"{subjects}:{number}", "", place=place) for number in ids]


def test_first_message_of_a_quiet_set_passes_the_digest_of_a_loud_one() -> None:
    busy = [ago(50), ago(40), ago(30), ago(20), ago(10), ago(4, EVERYTHING, carried=60)]
    waiting = [*of_set(LOUD, range(50)), *of_set(QUIET, range(50, 51)), *of_set(STILL, range(51, 53))]
    found = plan(waiting, busy, sent={LOUD: 64}, now=NOW, wait=WAIT, interval=INTERVAL)
    assert found.batches == (Batch("", (50,)), Batch(EVERYTHING, (51, 52)))
    assert set(found.later) == set(range(50))
    # A message within the interval waits with the others.
    again = plan(of_set(QUIET, range(50, 56)), busy, sent={LOUD: 64, QUIET: 1}, now=NOW, wait=WAIT, interval=INTERVAL)
    assert not again.batches


def test_storm_of_many_sets_is_one_delivery() -> None:
    many = [Waiting(number, f"event:{number}", "", place=number) for number in range(300)]
    told = dict.fromkeys(range(1000, 1300), 1)
    assert not plan(many, [ago(4, EVERYTHING)], sent=told, now=NOW, wait=WAIT, interval=INTERVAL).batches
    fewer = [*of_set(LOUD, range(500)), *many[:20]]
    assert len(plan(fewer, [], sent={}, now=NOW, wait=WAIT, interval=INTERVAL).batches) == 1
