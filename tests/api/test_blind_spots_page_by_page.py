"""API blind spots: caches without a listening agent are paged like all other blind spots, whatever surrounds them."""

import pytest

from fleet.models import Cache, Machine
from fleet.operations.sets import coverage
from fleet.projections import blind_spots
from tests import factories
from tests.api.conftest import Caller
from tests.plans import queries


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
