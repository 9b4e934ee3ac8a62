"""Which messages go out as one post, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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


def test_few_subjects_have_a_delivery_each() -> None:
    assert planned(events(2), []).batches == (Batch("", (0,)), Batch("", (1,)))


def test_messages_about_one_subject_are_one_delivery() -> None:
    waiting = [Waiting(1, "event:1", "shop"), Waiting(2, "event:1", "shop")]
    assert planned(waiting, []).batches == (Batch("", (1, 2)),)


def test_many_events_of_one_service_are_one_delivery() -> None:
    assert planned(events(40, service="shop"), []).batches == (Batch("shop", tuple(range(40))),)


def test_many_events_of_many_services_are_one_delivery() -> None:
    assert planned(events(1000), []).batches == (Batch(EVERYTHING, tuple(range(1000))),)


def test_next_digest_waits_for_the_interval() -> None:
    found = planned(events(50), [ago(10, EVERYTHING)])
    assert not found.batches
    assert set(found.later.values()) == {NOW + timedelta(seconds=50)}
    assert planned(events(50), [ago(10, EVERYTHING)], now=NOW + timedelta(seconds=50)).batches


def test_next_digest_waits_less_after_a_small_one() -> None:
    busy = [ago(30), ago(25), ago(20), ago(15), ago(10), ago(4, EVERYTHING, carried=1)]
    assert set(planned(events(1), busy).later.values()) == {NOW + timedelta(seconds=1)}
    assert planned(events(1), busy, now=NOW + timedelta(seconds=1)).batches == (Batch(EVERYTHING, (0,)),)


def test_near_deadline_shortens_the_wait() -> None:
    soon = planned(events(50, deadline=NOW + timedelta(seconds=40)), [ago(10, EVERYTHING)])
    assert set(soon.later.values()) == {NOW + timedelta(seconds=40) - MARGIN}
    now = planned(events(50, deadline=NOW + timedelta(seconds=15)), [ago(10, EVERYTHING)])
    assert [batch.group for batch in now.batches] == [EVERYTHING]


def test_deadlines_do_not_shorten_the_group_wait() -> None:
    found = planned(events(50, deadline=NOW + timedelta(seconds=15)), [ago(0.5, EVERYTHING)])
    assert set(found.later.values()) == {NOW + timedelta(seconds=1.5)}


def test_passed_deadline_does_not_shorten_the_wait() -> None:
    found = planned(events(50, deadline=NOW - timedelta(seconds=1)), [ago(10, EVERYTHING)])
    assert set(found.later.values()) == {NOW + timedelta(seconds=50)}


messages = st.lists(
    st.builds(
        lambda subject, service, seconds: (subject, service, seconds),
        st.integers(0, 12),
        st.integers(0, 4),
        st.none() | st.integers(-30, 900),
    ),
    max_size=40,
)


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
