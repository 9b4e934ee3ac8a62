"""Request cache: parts of one answer share one query, and a request that writes sees its own changes."""

import pytest
from django.test import Client

from fleet.domain.people import Rights
from fleet.models import StaleSet
from fleet.projections import visibility
from fleet.projections.counts import changed_sets
from fleet.projections.request_cache import cached_in_request, request_cache
from tests.factories import Fleet
from tests.plans import queries


def test_a_page_asks_once_which_sets_have_changed(fleet: Fleet, operator: Client) -> None:
    fleet.enrol_set(3)
    for address in ("/", "/fleet/", "/blind-spots/", "/sets/"):
        asked = [sql for sql in queries(operator.get, address) if sql.startswith("SELECT DISTINCT")]
        assert len([sql for sql in asked if "fleet_staleset" in sql]) == 1, address


def test_outside_of_an_answer_it_is_asked_each_time(fleet: Fleet) -> None:
    StaleSet.objects.all().delete()
    assert changed_sets(now=fleet.now) == frozenset()
    StaleSet.objects.create(availability_set_id=7)
    assert changed_sets(now=fleet.now) == {7}
    with request_cache():
        assert changed_sets(now=fleet.now) == {7}
        StaleSet.objects.all().delete()
        assert changed_sets(now=fleet.now) == {7}
    assert changed_sets(now=fleet.now) == frozenset()


def test_a_reader_of_few_sets_is_not_told_what_was_read_for_all(fleet: Fleet, settings: object) -> None:
    settings.SCOPED_READ_ACCESS = True  # type: ignore[attr-defined]
    StaleSet.objects.create(availability_set_id=7)
    with visibility.reading_as(None), request_cache():
        assert changed_sets(now=fleet.now) == {7}
        visibility.set_reader(Rights(frozenset(["operator"]), (("name", "nothing"),)), name="ada")
        assert changed_sets(now=fleet.now) == frozenset()


def test_what_fails_is_asked_again() -> None:
    with request_cache():
        with pytest.raises(ZeroDivisionError):
            cached_in_request("x", lambda: 1 // 0)
        assert cached_in_request("x", lambda: 5) == 5
