"""An uploader stepped by hand, and what it delivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, tls_context
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.loss_recovery import LossRecovery
from drydock_agent.backend.signatures import Keyring
from drydock_agent.backend.uploader import Uploader
from drydock_agent.machine import Identity
from drydock_agent.settings.load import load
from drydock_agent.state_folder import StateFolder

from tests.agent.agents import VM_IDS, PartsFactory, SteppedClock
from tests.agent.fleet_double import JOIN_TOKEN, FleetDouble


@pytest.fixture
def told_again() -> list[int]:
    """Record each full resend: the acknowledgement up to which the backend still had the reports."""
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
    client = BackendClient(fleet.url, tls=tls_context(""), clock=clock, server_clock=made.server_clock)
    yield Uploader(
        made.context,
        client=client,
        enrolment=Enrolment(settings, identity, state, keyring=keyring, enrolled=lambda: None),
        keyring=keyring,
        orders=made.orders,
        loss_recovery=LossRecovery(clock, resend_document=made.poller.resend_if_wanted, resend_all=told_again.append),
        delivered_poll=lambda: made.poller.spooled_poll,
        metadata_state=lambda: wire.metadata_text(made.poller.problem, made.poller.events_version, ""),
        renewed=made.poller.resend,
    )
    client.close()
