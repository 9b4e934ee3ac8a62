"""An uploader stepped by hand, and what it delivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drydock_agent.backend.client import BackendClient, trust
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.loss import Loss
from drydock_agent.backend.signatures import Keyring
from drydock_agent.backend.uploader import Uploader
from drydock_agent.machine import Identity
from drydock_agent.settings.load import load
from drydock_agent.state_folder import StateFolder

from tests.agent.agents import VM_IDS, PartsFactory, SteppedClock
from tests.agent.fleet_double import JOIN_TOKEN, FleetDouble


@pytest.fixture
def told_again() -> list[int]:
    """Each time that everything was told again: up to where the backend still had it."""
    return []


@pytest.fixture
def uploader(
    parts: PartsFactory, fleet: FleetDouble, tmp_path: Path, clock: SteppedClock, told_again: list[int]
) -> Iterator[Uploader]:
    """A uploader stepped by hand, with one document in the spool."""
    made = parts()
    made.poller.step()
    settings = load({"DRYDOCK_FLEET_URL": fleet.url, "DRYDOCK_JOIN_TOKEN": JOIN_TOKEN})
    state = StateFolder(tmp_path, clock)
    keyring = Keyring(state=state, mode="auto", limiter=made.context.limiter)
    identity = Identity(VM_IDS["web-vm1"], "imds")
    client = BackendClient(fleet.url, tls=trust(""), clock=clock, server_clock=made.server_clock)
    yield Uploader(
        made.context,
        client=client,
        enrolment=Enrolment(settings, identity, state, keyring=keyring, enrolled=lambda: None),
        keyring=keyring,
        orders=made.orders,
        loss=Loss(clock, tell_document=made.poller.tell_if, tell_everything=told_again.append),
        told=lambda: made.poller.told,
        renewed=made.poller.forget,
    )
    client.close()
