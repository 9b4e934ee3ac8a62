"""Durations and times as pages write them."""

from datetime import UTC, datetime, timedelta, timezone

from fleet.wording import times


def test_lengths_get_coarser_with_distance_and_name_two_units() -> None:
    left = {-5: "0:00", 0: "0:00", 42.9: "0:42", 250: "4:10", 3599: "59:59", 3840: "1 h 04 min", 183600: "2 d 3 h"}
    past = {-3: "just now", 1: "just now", 42: "42 s ago", 300: "5 min ago", 7200: "2 h ago", 200000: "2 d ago"}
    lengths = {9: "9 s", 900: "15 min", 860: "14 min 20 s", 7500: "2 h 5 min", 266400: "3 d 2 h"}
    for word, table in ((times.span, left), (times.ago, past), (times.duration, lengths)):
        assert {seconds: word(seconds) for seconds in table} == table


def test_azures_duration_knows_unknown_and_none() -> None:
    assert [times.impact(value) for value in (None, -1, 0, 9)] == ["not stated", "unknown", "no interruption", "9 s"]


def test_a_time_of_another_day_carries_its_day_and_every_time_is_utc() -> None:
    now = datetime(2022, 4, 11, 22, 12, tzinfo=UTC)
    assert times.clock(datetime(2022, 4, 12, 0, 30, tzinfo=timezone(timedelta(hours=2))), now) == "22:30:00"
    assert times.clock(datetime(2022, 4, 13, 1, 2, 3, tzinfo=UTC), now) == "13 Apr 01:02:03"
    assert times.clock(datetime(2021, 4, 13, 1, 2, 3, tzinfo=UTC), now) == "2021-04-13 01:02:03"
    assert times.iso(datetime(2022, 4, 12, 0, 30, tzinfo=timezone(timedelta(hours=2)))) == "2022-04-11T22:30:00.000Z"
