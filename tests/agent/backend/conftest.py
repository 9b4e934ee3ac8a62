"""An uploader stepped by hand, and what it delivers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, tls_context
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.loss_recovery import LossRecovery
from drydock_agent.backend.signatures import Keyring
from drydock_agent.backend.uploader import Uploader
from drydock_agent.clock import Clock
from drydock_agent.machine import Identity
from drydock_agent.settings.load import load
from drydock_agent.spool.store import Spool
from drydock_agent.state_folder import StateFolder

from tests.agent.agents import VM_IDS, Parts, SteppedClock
from tests.agent.fleet_double import JOIN_TOKEN, FleetDouble


@dataclass
class Delivery:
    """An uploader with one document in its spool, the backend that it delivers to, and the machine's clock."""

    spool: Spool
    fleet: FleetDouble
    clock: SteppedClock
    uploader: Uploader
    # Of each full resend: the acknowledgement up to which the backend still had the reports.
    resends: list[int]

    def step(self) -> float:
        return self.uploader.step()

    def until_idle(self) -> float:
        while (pause := self.step()) == 0.0:
            pass
        return pause

    def fill(self, count: int, kind: str = wire.REMINDER) -> None:
        for number in range(count):
            self.spool.add(kind, Clock().now(), {"number": number})


@pytest.fixture
def delivery(parts: Parts, fleet: FleetDouble, tmp_path: Path, clock: SteppedClock) -> Iterator[Delivery]:
    resends: list[int] = []
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
        loss_recovery=LossRecovery(clock, resend_document=parts.poller.resend_if_wanted, resend_all=resends.append),
        delivered_poll=lambda: parts.poller.spooled_poll,
        metadata_state=lambda: wire.metadata_text(parts.poller.problem, parts.poller.events_version, ""),
        renewed=parts.poller.resend,
    )
    yield Delivery(parts.spool, fleet, clock, uploader, resends)
    client.close()
