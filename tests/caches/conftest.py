"""A set of three machines that may listen to caches."""

import pytest

from tests.caches.walking import Listeners, clock


@pytest.fixture
def listeners(db: None) -> Listeners:
    walker = Listeners(now=clock("16:00:00"))
    for name in ("vm1", "vm2", "vm3"):
        walker.enrol(name)
    return walker
