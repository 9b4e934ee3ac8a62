"""API lists: each has `cursor` and `page_size`, accepts only its own cursors with the same filters and order, and names
each set with its subscription. Details say what the rows say.
"""

import csv
import io
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.conf import LazySettings
from pytest_django.plugin import DjangoDbBlocker

from fleet.api.documentation import schema
from fleet.models import AvailabilitySet, Cache, Machine
from fleet.operations.sets import coverage
from fleet.projections import blind_spots
from fleet.urls import CALLS
from tests import factories
from tests.access.world import CLAIMED, World, rolled_back, world
from tests.api.conftest import Caller, caller, problem
from tests.plans import queries
from tests.rows import MachineFactory


def cursor_of(address: str) -> str:
    return parse_qs(urlsplit(address).query)["cursor"][0]


def lists_by_address() -> dict[str, set[str]]:
    """Every call that reads and answers rows, with its query parameters."""
    found = {}
    for address, calls in schema()["paths"].items():
        answers = calls.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        shape = answers.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        known = schema()["components"]["schemas"].get(shape, {}).get("properties", {})
        if {"next", "previous", "results"} <= set(known):
            asked = calls["get"].get("parameters", [])
            found[address] = {each["name"] for each in asked if each["in"] == "query"}
    return found


def test_every_list_takes_a_cursor_and_a_page_size() -> None:
    lists = lists_by_address()
    assert len(lists) >= 20
    assert [address for address, known in lists.items() if not {"cursor", "page_size"} <= known] == []


def sets_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every set that an answer names, wherever it stands."""
    if isinstance(value, dict):
        yield from [value["set"]] if isinstance(value.get("set"), dict) else []
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from sets_in(each)


def identity(row: dict[str, Any]) -> dict[str, Any]:
    """What tells a row from others; the rest may change from one call to the next."""
    known = ("id", "prefix", "username", "event_id", "hash", "code", "names")
    return {name: row[name] for name in known if name in row}


@pytest.fixture(scope="module")
def everything(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    with rolled_back(django_db_blocker):
        yield world()


def test_pages_of_a_few_rows_are_the_list_there_and_back(everything: World, db: None) -> None:
    admin, several = caller(factories.admin()), 0
    # Two sets may share a name: each set that an answer names comes with its subscription.
    sets = {row.pk: (row.name, row.subscription, row.resource_group) for row in AvailabilitySet.objects.all()}
    lists = [address for address in lists_by_address() if "{" not in address]
    for address in (*lists, *(f"events/{factories.EVENT}/{part}/" for part in ("timeline", "documents"))):
        whole = admin.get(f"{address}?page_size=500").json()
        assert (whole["next"], whole["previous"]) == (None, None), address
        rows = [identity(row) for row in whole["results"]]
        assert all(rows), address
        several += len(rows) > 1
        for one in sets_in(whole["results"]):
            assert (one["name"], one["subscription"], one["resource_group"]) == sets[one["id"]], address
        there = [admin.get(f"{address}?page_size={max(1, len(rows) // 4)}").json()]
        while there[-1]["next"]:
            there.append(admin.get(there[-1]["next"]).json())
        back = there[-1:]
        while back[-1]["previous"]:
            back.append(admin.get(back[-1]["previous"]).json())
        for pages in (there, back[::-1]):
            assert [identity(row) for page in pages for row in page["results"]] == rows, address
    assert several > 10
    file = b"".join(admin.get("audit/export.csv?set_name=web-claimed").streaming_content).decode()
    named = {(row["set"], row["subscription"], row["resource_group"]) for row in csv.DictReader(io.StringIO(file))}
    assert named == {sets[factories.the_set("web-claimed").pk]}


# Details: each field of a detail equals the same field of the row in the list.

# Counted to the moment of each answer.
CLOCKS = {"server_time", "seconds_left", "started_seconds"}
# By itself it says what exactly it waits for and who is asked next: a list does not load the facts of all events.
EXACT = {"waits_for", "next_asked"}


def pairs() -> list[tuple[str, str]]:
    """The address of each list whose rows have one of their own, and by which field that goes."""
    found = []
    addresses = {str(route.pattern): route.callback.view_class for route in CALLS}  # type: ignore[attr-defined]
    for address, view in addresses.items():
        place = re.fullmatch(r"(.*)<\w+:(\w+)>/", address)
        if place and hasattr(view, "get") and hasattr(addresses.get(place[1]), "get"):
            name = place[2]
            found.append((place[1].removeprefix("v1/"), name if name in ("event_id", "username", "prefix") else "id"))
    return found


def still(value: Any) -> Any:
    """The value without what counts from now."""
    if isinstance(value, dict):
        return {name: still(inner) for name, inner in value.items() if name not in CLOCKS | EXACT}
    return [still(inner) for inner in value] if isinstance(value, list) else value


def test_each_field_of_each_row_is_that_of_the_detail(everything: World, db: None) -> None:
    fleet = everything.fleet
    fleet.later(1)
    # Of the events that lie ahead, one starts and one ends.
    started = factories.listing(CLAIMED, resources=("web-claimed",), event_type="Reboot", status="Started")
    fleet.say("web-claimed", started)
    fleet.say("web-held")
    admin, known = caller(factories.admin()), pairs()
    assert len(known) >= 14
    for address, key in known:
        rows = admin.get(address).json()["results"]
        assert rows, address
        for row in rows:
            detail = admin.get(f"{address}{row[key]}/").json()
            # The report of a drill contains the row as one of several fields.
            if isinstance(detail.get("drill"), dict) and key in detail["drill"]:
                detail = detail["drill"]
            missing = set(row) - set(detail)
            assert missing == set(), (address, missing)
            wrong = {name: (row[name], detail[name]) for name in row if still(row[name]) != still(detail[name])}
            assert {name for name in wrong if name not in CLOCKS | EXACT} == set(), (address, wrong)
            assert {name: row[name] is None for name in CLOCKS & set(row)} == {
                name: detail[name] is None for name in CLOCKS & set(row)
            }, address


@pytest.fixture
def more(viewer: Caller) -> str:
    """The address of the second page of machines in two regions."""
    MachineFactory.create_batch(3, region="westeurope")
    MachineFactory.create_batch(3, region="northeurope")
    address: str = viewer.get("machines/?page_size=1&region=westeurope").json()["next"]
    return address


def test_a_cursor_of_another_list_is_refused(viewer: Caller, more: str) -> None:
    for address in ("sets/", "events/", "caches/"):
        refused = problem(viewer.get(f"{address}?cursor={cursor_of(more)}"), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == ["cursor"]


def test_cursor_is_refused_with_other_filters_and_valid_with_another_page_size(viewer: Caller, more: str) -> None:
    for other in ({"region": "northeurope"}, {}, {"region": "westeurope", "q": "vm"}):
        query = urlencode({**other, "cursor": cursor_of(more)})
        problem(viewer.get(f"machines/?{query}"), 422, "validation")
    query = urlencode({"region": "westeurope", "page_size": 2, "cursor": cursor_of(more)})
    assert len(viewer.get(f"machines/?{query}").json()["results"]) == 2


def test_an_altered_cursor_is_refused(viewer: Caller, more: str) -> None:
    cursor = cursor_of(more)
    for place in range(0, len(cursor) - 1, 7):
        altered = cursor[:place] + ("B" if cursor[place] != "B" else "C") + cursor[place + 1 :]
        query = urlencode({"region": "westeurope", "cursor": altered})
        refused = problem(viewer.get(f"machines/?{query}"), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == ["cursor"]


def test_a_cursor_outlives_a_new_secret_key(viewer: Caller, more: str, settings: LazySettings) -> None:
    before = viewer.get(more).json()["results"]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "the next one, which is long enough for every check"
    assert viewer.get(more).json()["results"] == before
    settings.SECRET_KEY_FALLBACKS = []
    problem(viewer.get(more), 422, "validation")


def test_cursor_is_valid_for_every_reader_of_the_list(operator: Caller, viewer: Caller, more: str) -> None:
    assert operator.get(more).json()["results"] == viewer.get(more).json()["results"]


# Blind spots: caches without a listening agent are paged like all others, whatever surrounds them.


@pytest.fixture
def gaps(fleet: factories.Fleet) -> list[tuple[str, str]]:
    """Twelve caches in any order, and sets with gaps of kinds that are more and less dangerous."""
    for number in range(4):
        fleet.enrol(f"vm{number}", availability_set=("Zet", "set", "é<b>", "Aet")[number], heard=number % 2 == 0)
    Machine.objects.update(agent_version="0.0.1")
    for host in ("b", "B", "a", "Z", "c-1", "c_1", "c", "\u00e4", "d", "e", "f", "g"):
        Cache.objects.create(host=f"{host}.redis", created_at=fleet.now)
    coverage.renew_all(now=fleet.now)
    # One set is computed again and keeps its place.
    Machine.objects.filter(resource_name="vm2").update(zone="3")
    return [(row.code, row.part) for row in blind_spots.page(now=fleet.now, size=500).results]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_all_pages_are_the_whole_there_and_back(fleet: factories.Fleet, gaps: list[tuple[str, str]], size: int) -> None:
    hosts = [part for code, part in gaps if code == "cache-unheard"]
    assert (hosts, len(hosts)) == (sorted(hosts), 12)
    page = blind_spots.page(now=fleet.now, size=size)
    found = [page]
    while page.next:
        page = blind_spots.page(now=fleet.now, size=size, cursor=page.next)
        found.append(page)
    assert [(row.code, row.part) for one in found for row in one.results] == gaps
    back = [page]
    while page.previous:
        page = blind_spots.page(now=fleet.now, size=size, cursor=page.previous)
        back.insert(0, page)
    assert [(row.code, row.part) for one in back for row in one.results] == gaps


def test_blind_spots_are_filtered_by_kind_name_and_set(fleet: factories.Fleet, gaps: list[tuple[str, str]]) -> None:
    alone = blind_spots.page(now=fleet.now, code="cache-unheard", size=500).results
    assert [row.part for row in alone] == [part for code, part in gaps if code == "cache-unheard"]
    named = blind_spots.page(now=fleet.now, names=["D.REDIS", "vm1"]).results
    assert {row.names for row in named if row.code == "cache-unheard"} == {("d.redis",)}
    assert "vm1" in {name for row in named for name in row.names}
    for narrowed in ({"sets": [0]}, {"machines": [0]}, {"code": "no-agent"}):
        assert blind_spots.page(now=fleet.now, **narrowed).results == ()


def test_no_page_reads_more_caches_than_it_shows(
    fleet: factories.Fleet, gaps: list[tuple[str, str]], viewer: Caller
) -> None:
    def asked() -> int:
        caught = queries(viewer.get, "blind-spots/?page_size=3")
        read = [sql for sql in caught if 'FROM "fleet_cache"' in sql]
        assert all("LIMIT" in sql for sql in read), read
        return len(caught)

    assert viewer.get("blind-spots/?page_size=3").status_code == 200
    before = asked()
    Cache.objects.bulk_create(Cache(host=f"more-{n}", created_at=fleet.now) for n in range(50))
    assert asked() == before
