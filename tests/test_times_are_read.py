"""Moments come out of Postgres as they went in, in UTC, whatever way they are read."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import DataError, connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import adapters
from psycopg.pq import Format

from fleet.database import UtcLoader

ANYWHERE = st.timedeltas(min_value=timedelta(hours=-15), max_value=timedelta(hours=15)).map(
    lambda apart: timezone(timedelta(minutes=apart // timedelta(minutes=1)))
)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
# A moment near the ends of the calendar is none in UTC.
MOMENTS = st.datetimes(
    min_value=(FIRST + timedelta(days=1)).replace(tzinfo=None),
    max_value=(LAST - timedelta(days=1)).replace(tzinfo=None),
    timezones=st.one_of(st.just(UTC), ANYWHERE),
)


def read(text: str) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [text])
        (found,) = cursor.fetchone()
    assert isinstance(found, datetime)
    return found


# Nothing is written: one transaction does for all examples.
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moments=st.lists(MOMENTS, min_size=1, max_size=50))
def test_what_is_written_is_read(db: None, moments: list[datetime]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM unnest(%s::timestamptz[]) WITH ORDINALITY", [moments])
        found = [at for at, _ in cursor.fetchall()]
    assert found == moments
    assert {at.tzinfo for at in found} == {UTC}


def test_the_quick_way_is_taken_by_every_connection(db: None) -> None:
    with connection.cursor() as cursor:
        assert cursor.adapters.get_loader(adapters.types["timestamptz"].oid, Format.TEXT) is UtcLoader


def test_a_session_elsewhere_tells_the_same_moment(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'Asia/Kolkata'")
    assert read("2026-03-02 12:00:00+00") == datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["infinity", "0044-03-15 12:00:00+00 BC", "10001-01-01 00:00:00+00"])
def test_what_no_clock_shows_is_refused(db: None, text: str) -> None:
    with pytest.raises(DataError):
        read(text)
