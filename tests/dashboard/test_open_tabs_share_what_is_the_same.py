"""Request coalescing: a part that many open tabs request at once is rendered once, after the last request began."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.test import Client

from fleet.dashboard.singleflight import SingleFlight, single_flight
from fleet.domain.people import Rights
from fleet.models import StaleSet
from fleet.projections import visibility
from fleet.projections.counts import changed_sets
from fleet.projections.request_cache import cached_in_request, request_cache
from tests import factories
from tests.dashboard.conftest import logged_in
from tests.factories import Fleet
from tests.plans import queries
from tests.processes import wait_for


def test_those_who_come_while_one_is_made_wait_for_the_next_and_share_it() -> None:
    shared, proceed, made = SingleFlight(), threading.Event(), list[int]()

    def make() -> bytes:
        made.append(1)
        proceed.wait(20)
        return str(len(made)).encode()

    with ThreadPoolExecutor(30) as tabs:
        first = tabs.submit(shared.once, "part", make)
        wait_for(lambda: made, seconds=20, what="the first is being made")
        others = [tabs.submit(shared.once, "part", make) for _ in range(29)]
        wait_for(lambda: shared._turns["part"].users == 30, seconds=20, what="all others have asked")
        proceed.set()
        assert first.result() == b"1"
        assert {one.result() for one in others} == {b"2"}
    assert len(made) == 2
    assert not shared._turns


def test_what_fails_fails_for_one_and_the_others_make_their_own() -> None:
    shared, proceed, calls = SingleFlight(), threading.Event(), list[int]()

    def make() -> bytes:
        calls.append(1)
        if len(calls) == 1:
            proceed.wait(20)
        if len(calls) == 2:
            raise ValueError
        return b"made"

    with ThreadPoolExecutor(4) as tabs:
        asked = [tabs.submit(shared.once, "part", make)]
        wait_for(lambda: calls, seconds=20, what="the first is being made")
        asked += [tabs.submit(shared.once, "part", make) for _ in range(3)]
        wait_for(lambda: shared._turns["part"].users == 4, seconds=20, what="all have asked")
        proceed.set()
        failed = [one for one in asked if one.exception(20)]
    assert len(failed) == 1


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What each part that was shared depends on."""
    found: list[object] = []

    def once(key: object, make: Callable[[], bytes]) -> bytes:
        found.append(key)
        return make()

    monkeypatch.setattr(single_flight, "once", once)
    return found


def test_readers_of_the_same_rights_share_and_others_do_not(fleet: factories.Fleet, keys: list[object]) -> None:
    factories.announced(fleet)
    for person in (factories.operator("one"), factories.operator("two"), factories.person("three", "viewer")):
        for part in ("/?part=queue", "/?part=cards", "/?part=recent", "/pulse/"):
            answer = logged_in(person).get(part, headers={"HX-Request": "true"})
            assert answer.status_code == 200
            assert answer["X-Drydock-Time"]
            # A form would carry the CSRF token of the user who requested first.
            assert b"csrfmiddlewaretoken" not in answer.content
    assert len(set(keys)) == 8
    assert keys[:4] == keys[4:8] != keys[8:]


def test_whole_pages_and_scoped_readers_are_not_shared(
    fleet: factories.Fleet, operator: Client, keys: list[object], settings: Any
) -> None:
    factories.announced(fleet)
    operator.get("/")
    settings.SCOPED_READ_ACCESS = True
    limited = factories.operator("limited")
    limited.scopes.create(kind="service", pattern="shop")
    assert logged_in(limited).get("/?part=queue", headers={"HX-Request": "true"}).status_code == 200
    assert not keys


# Request cache: parts of one answer share one query, and a request that writes sees its own changes.


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
