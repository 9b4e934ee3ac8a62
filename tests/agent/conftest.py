"""The simulator, the backend's double and the agents between them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent.spool.store import Spool

from tests.agent.agents import FLEET, Agents, HookFolder, Parts, SteppedClock, end_events
from tests.agent.fleet_double import FleetDouble


@pytest.fixture(scope="package")
def one_simulator() -> Iterator[RunningSimulator]:
    with RunningSimulator(FLEET) as simulator:
        yield simulator


@pytest.fixture
def simulator(one_simulator: RunningSimulator) -> Iterator[RunningSimulator]:
    """A simulator without events and faults."""
    yield one_simulator
    one_simulator.clear_faults()
    end_events(one_simulator)


@pytest.fixture
def fleet() -> Iterator[FleetDouble]:
    with FleetDouble() as fleet:
        yield fleet


@pytest.fixture
def agents(tmp_path: Path, simulator: RunningSimulator, fleet: FleetDouble) -> Iterator[Agents]:
    agents = Agents(tmp_path, simulator, fleet)
    yield agents
    agents.end()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def parts(tmp_path: Path, simulator: RunningSimulator, clock: SteppedClock) -> Iterator[Parts]:
    parts = Parts(tmp_path, simulator, clock)
    yield parts
    parts.close()


@pytest.fixture
def hooks(tmp_path: Path) -> HookFolder:
    """An empty folder of hooks."""
    return HookFolder(tmp_path)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool.sqlite3")
    yield spool
    spool.close()
