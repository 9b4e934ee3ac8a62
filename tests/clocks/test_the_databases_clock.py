"""The time by the database's clock, computed from readings that took a while."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.domain.clock import DatabaseClock, is_ahead, seconds_since

START = datetime(2026, 3, 2, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def read(clock: DatabaseClock, at: float, *, took: float = 0.0, shift: float = 0.0) -> None:
    """A reading at this time of the steady clock; the database answered in the middle of the time that it took."""
    clock.note(after(at + shift), asked=at - took / 2, answered=at + took / 2)


def test_before_the_first_reading_the_process_has_its_own_clock_only() -> None:
    clock = DatabaseClock()
    assert clock.now(steady=5, own=START) == START
    assert clock.skew(steady=5, own=START) == 0
    assert clock.age(5) == float("inf")


@pytest.mark.parametrize("ahead", [600.0, 3 * 3600.0, -600.0, -3 * 3600.0])
def test_the_clock_of_the_process_changes_nothing(ahead: float) -> None:
    clock = DatabaseClock()
    read(clock, 10)
    assert clock.now(steady=15, own=after(15 + ahead)) == after(15)
    assert clock.skew(steady=15, own=after(15 + ahead)) == pytest.approx(ahead)


@pytest.mark.parametrize("took", [0.001, 0.5, 5.0])
def test_the_time_is_never_later_than_the_databases(took: float) -> None:
    clock = DatabaseClock()
    read(clock, 10, took=took)
    assert after(20 - took) <= clock.now(steady=20, own=after(20)) <= after(20)


def test_a_slow_reading_makes_no_clock_wrong() -> None:
    clock = DatabaseClock()
    read(clock, 10, took=8)
    assert clock.skew(steady=20, own=after(20)) == 0
    assert clock.skew(steady=20, own=after(30)) == pytest.approx(6)
    assert clock.skew(steady=20, own=after(12)) == pytest.approx(-4)


def test_a_slow_reading_after_a_good_one_changes_nothing() -> None:
    clock = DatabaseClock()
    read(clock, 10, took=0.001)
    known = clock.now(steady=30, own=START)
    read(clock, 20, took=4)
    assert clock.now(steady=30, own=START) == known


@pytest.mark.parametrize("shift", [-600.0, -0.01, 0.01, 600.0])
def test_the_databases_clock_is_followed_in_both_directions(shift: float) -> None:
    clock = DatabaseClock()
    read(clock, 10, took=0.001)
    read(clock, 20, took=0.001, shift=shift)
    assert abs((clock.now(steady=30, own=START) - after(30 + shift)).total_seconds()) <= 0.001


def test_a_steady_clock_that_went_back_is_read_again() -> None:
    clock = DatabaseClock()
    read(clock, 10)
    assert clock.age(11) == pytest.approx(1)
    assert clock.age(9) == float("inf")


def test_what_lies_ahead_has_not_happened() -> None:
    assert seconds_since(after(-5), now=START) == 5
    # Two processes differ by what their readings took.
    assert seconds_since(after(0.5), now=START) == 0
    assert not is_ahead(after(0.5), now=START)
    assert seconds_since(after(600), now=START) == float("inf")
    assert seconds_since(None, now=START) == float("inf")
