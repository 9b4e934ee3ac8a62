"""A new installation that trusts the simulated Azure, a real gateway, and the parts of agents that enrol there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import requests
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, tls_context
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.signatures import Keyring
from drydock_agent.clock import Clock, ServerClock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.machine import Identity
from drydock_agent.settings.load import load
from drydock_agent.state_folder import StateFolder

from fleet.embedded import Urls
from tests.agent.agents import FLEET, fleet_of
from tests.gateway_process import Gateway, running_gateway

VM_IDS = {f"installation-vm{number}": f"00000000-0000-4000-8000-00000000001{number}" for number in range(1, 7)}
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = VM_IDS
SUBSCRIPTION = FLEET["sets"][0]["subscription"]


@dataclass
class Installation:
    """A new installation that trusts the simulated Azure."""

    azure: RunningSimulator
    gateway: Gateway
    folder: Path
    # What a gateway has to know to trust it.
    environment: dict[str, str]

    def agent(
        self, vm: str, *, machine_id: str = "", ahead: timedelta = timedelta(), by: str = "", folder: str = ""
    ) -> tuple[Enrolment, BackendClient]:
        """The parts of an agent that enrol, with a state folder of their own; `by` is the way to the gateway."""

        class Ahead(Clock):
            def now(self) -> Any:
                return super().now() + ahead

        clock = Ahead()
        state = StateFolder(self.folder / (folder or f"{vm}{machine_id}"), clock)
        state.prepare()
        settings = replace(load({"DRYDOCK_FLEET_URL": self.gateway.url}), imds_url=self.azure.vm_url(vm))
        client = BackendClient(
            by or self.gateway.url, tls=tls_context(""), clock=clock, server_clock=ServerClock(clock)
        )
        keyring = Keyring(state=state, mode="auto", limiter=LogLimiter(clock))
        identity = Identity(machine_id or VM_IDS[vm], "imds", {"name": vm, "subscriptionId": SUBSCRIPTION})
        return Enrolment(settings, identity, state, keyring=keyring, enrolled=lambda: None), client

    def enrol(self, **body: Any) -> requests.Response:
        whole = {"join_token": "", "machine_id": VM_IDS[FIRST], "ask": "its own", "keyed": True, **body}
        return requests.post(f"{self.gateway.url}{wire.ENROL_PATH}", json=whole, timeout=20)

    def document(self, vm: str) -> str:
        nonce = requests.post(f"{self.gateway.url}{wire.CHALLENGES_PATH}", timeout=20).json()["nonce"]
        url = f"{self.azure.vm_url(vm)}/metadata/attested/document?api-version=2021-02-01&nonce={nonce}"
        answer = requests.get(url, headers={"Metadata": "true"}, timeout=20)
        return str(answer.json()["signature"])


@contextmanager
def opened(servers: Urls, folder: Path, **environment: str) -> Iterator[Installation]:
    with RunningSimulator(fleet_of(web=VM_IDS)) as azure:
        roots = folder / "roots"
        roots.mkdir()
        for name, pem in azure.call("GET", "/control/authority").items():
            (roots / f"{name}.pem").write_text(pem)
        whole = {
            "ENROLMENT_POLICY": "auto",
            "ATTESTED_ROOTS": str(roots),
            "ATTESTED_SUBSCRIPTIONS": SUBSCRIPTION,
            **environment,
        }
        with running_gateway(servers, folder, environment=whole) as gateway:
            yield Installation(azure, gateway, folder, whole)
