"""An uploader stepped by hand, and what it delivers."""

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

from tests.agent.agents import VM_IDS, Parts, SteppedClock
from tests.agent.backend.stepping import Delivery
from tests.agent.fleet_double import JOIN_TOKEN, FleetDouble


@pytest.fixture
def delivery(parts: Parts, fleet: FleetDouble, tmp_path: Path, clock: SteppedClock) -> Iterator[Delivery]:
    delivery = Delivery(parts.spool, fleet, clock)
    parts.poller.step()
    settings = load({"DRYDOCK_FLEET_URL": fleet.url, "DRYDOCK_JOIN_TOKEN": JOIN_TOKEN})
    state = StateFolder(tmp_path, clock)
    keyring = Keyring(state=state, mode="auto", limiter=parts.context.limiter)
    identity = Identity(VM_IDS["web-vm1"], "imds")
    client = BackendClient(fleet.url, tls=tls_context(""), clock=clock, server_clock=parts.server_clock)
    uploader = Uploader(
        parts.context,
        client=client,
        enrolment=Enrolment(settings, identity, state, keyring=keyring, enrolled=lambda: None),
        keyring=keyring,
        orders=parts.orders,
        loss_recovery=LossRecovery(
            clock, resend_document=parts.poller.resend_if_wanted, resend_all=delivery.resends.append
        ),
        delivered_poll=lambda: parts.poller.spooled_poll,
        metadata_state=lambda: wire.metadata_text(parts.poller.problem, parts.poller.events_version, ""),
        renewed=parts.poller.resend,
    )
    delivery.begin(uploader)
    yield delivery
    client.close()
