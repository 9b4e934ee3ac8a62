"""What tests of channels share: real processes that send, and services that are played."""

from collections.abc import Iterator

import pytest

from fleet.notify.sender.pool import Pool


@pytest.fixture(scope="session")
def loopback_pool() -> Iterator[Pool]:
    """Processes that may send to stand-ins on this machine."""
    found = Pool(most=4, allow=("127.0.0.0/8",))
    yield found
    found.close()
