"""One whole ring for these tests: started once, mended and cleared before each of them."""

from collections.abc import Iterator

import pytest

from tests.databases import own_servers
from tests.ring.ring import Ring, ring


@pytest.fixture(scope="package")
def one_ring(migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    folder = tmp_path_factory.mktemp("ring")
    with own_servers(migrated_template, folder) as urls, ring(urls, folder) as it:
        yield it


@pytest.fixture
def it(one_ring: Ring) -> Ring:
    """The ring, in which every part runs, every machine is live and no event is open."""
    one_ring.begin_again()
    return one_ring
