"""One whole ring for these tests: started once, mended and cleared before each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.embedded import Urls, valkey
from tests.databases import database, database_named
from tests.ring.ring import Ring, ring


@pytest.fixture(scope="package")
def one_ring(migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    folder = tmp_path_factory.mktemp("ring")
    with (
        database(migrated_template) as name,
        valkey(folder) as redis_url,
        ring(Urls(database=database_named(name), redis=redis_url), folder) as it,
    ):
        yield it


@pytest.fixture
def it(one_ring: Ring) -> Ring:
    """The ring, in which every part runs, every machine is live and no event is open."""
    one_ring.begin_anew()
    return one_ring
