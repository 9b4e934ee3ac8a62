"""Hours of a week: they are stretches of real time, also where clocks are changed."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.policy.hours import in_hours, next_edge
from fleet.domain.policy.windows import Window


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def hours(from_time: str | None = None, until_time: str | None = None, **fields: Any) -> Window:
    times = {"from_time": from_time, "until_time": until_time}
    parsed = {name: time.fromisoformat(text) if text else None for name, text in times.items()}
    return Window(**{"time_zone": "Europe/Berlin", **parsed, **fields})


# In Berlin clocks go back on 2026-10-25 at 01:00 UTC and forward on 2027-03-28 at 01:00 UTC.
@pytest.mark.parametrize(
    ("zone", "from_time", "until_time", "begin", "end"),
    [
        # Back: 02:00 to 03:00 occurs twice.
        ("Europe/Berlin", "01:30", "02:30", "2026-10-24T23:30", "2026-10-25T01:30"),
        ("Europe/Berlin", "02:30", "04:00", "2026-10-25T00:30", "2026-10-25T03:00"),
        ("Europe/Berlin", "02:15", "02:45", "2026-10-25T00:15", "2026-10-25T01:45"),
        ("Europe/Berlin", "22:00", "02:30", "2026-10-24T20:00", "2026-10-25T01:30"),
        # Forward: 02:00 to 03:00 does not occur.
        ("Europe/Berlin", "01:30", "02:30", "2027-03-28T00:30", "2027-03-28T01:00"),
        ("Europe/Berlin", "02:30", "04:00", "2027-03-28T01:00", "2027-03-28T02:00"),
        ("Europe/Berlin", "22:00", "02:30", "2027-03-27T21:00", "2027-03-28T01:00"),
        # Another day.
        ("Europe/Berlin", "01:30", "02:30", "2026-11-10T00:30", "2026-11-10T01:30"),
        # Back by half an hour at 02:00, and forward by half an hour.
        ("Australia/Lord_Howe", "01:15", "01:45", "2027-04-03T14:15", "2027-04-03T15:15"),
        ("Australia/Lord_Howe", "02:00", "03:00", "2026-10-03T15:30", "2026-10-03T16:00"),
        # Forward at midnight: the day begins at 01:00.
        ("America/Santiago", "00:00", "02:00", "2026-09-06T04:00", "2026-09-06T05:00"),
        ("Africa/Cairo", "22:00", "00:30", "2027-04-29T20:00", "2027-04-29T22:00"),
        # Back at midnight.
        ("Africa/Cairo", "23:30", "00:30", "2026-10-29T20:30", "2026-10-29T22:30"),
    ],
)
def test_hours_are_one_stretch_where_clocks_are_changed(
    zone: str, from_time: str, until_time: str, begin: str, end: str
) -> None:
    stated = hours(from_time, until_time, time_zone=zone)
    first, last = utc(begin), utc(end)
    for moment, inside in (
        (first - timedelta(seconds=1), False),
        (first, True),
        (first + (last - first) / 2, True),
        (last - timedelta(seconds=1), True),
        (last, False),
    ):
        assert in_hours(stated, moment) is inside, moment
    assert next_edge(first - timedelta(seconds=1), stated) == first
    assert next_edge(first, stated) == last


def test_hours_that_lie_in_the_skipped_hour_do_not_occur() -> None:
    stated = hours("02:10", "02:50")
    moments = [utc("2027-03-28T00:00") + timedelta(minutes=number) for number in range(180)]
    assert not any(in_hours(stated, moment) for moment in moments)


def test_a_whole_day_is_23_or_25_hours_long() -> None:
    for begin, length in (("2026-10-24T22:00", 25), ("2027-03-27T23:00", 23)):
        stated = hours(weekdays=(6,))
        assert in_hours(stated, utc(begin))
        assert next_edge(utc(begin), stated) == utc(begin) + timedelta(hours=length)


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"]


@given(
    moment=st.integers(0, 366 * 96).map(lambda quarters: utc("2026-03-01T00:00") + timedelta(minutes=15 * quarters)),
    weekdays=st.lists(st.integers(0, 6), max_size=3, unique=True).map(tuple),
    from_time=st.none() | st.times(),
    until_time=st.none() | st.times(),
    time_zone=st.sampled_from(ZONES),
)
def test_nothing_changes_before_the_next_edge(
    moment: datetime, weekdays: tuple[int, ...], from_time: time | None, until_time: time | None, time_zone: str
) -> None:
    stated = Window(weekdays=weekdays, from_time=from_time, until_time=until_time, time_zone=time_zone)
    edge = next_edge(moment, stated)
    inside = in_hours(stated, moment)
    if edge is None:
        assert inside and not weekdays and from_time is None and until_time is None
        return
    assert moment < edge <= moment + timedelta(days=8)
    for share in (0.1, 0.5, 0.9, 0.999):
        assert in_hours(stated, moment + (edge - moment) * share) is inside
