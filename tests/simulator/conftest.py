from collections.abc import Iterator

import pytest

from tests.simulator.asking import Simulated, simulated


@pytest.fixture
def azure() -> Iterator[Simulated]:
    """Microsoft's sample machines, on 11 April 2022 at 22:11:58 and no later until the test moves the clock."""
    with simulated() as running:
        yield running
