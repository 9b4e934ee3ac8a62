"""Enrolment requests: the agent sends Azure's attested document, and the certificates that the backend lacks."""

import base64
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.backend import issuers
from drydock_agent.backend.client import EnrolmentGrant, RefusedByBackend
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.machine_key import Key
from drydock_agent.connections import NoAnswer
from drydock_agent.machine import Identity
from drydock_agent.settings.load import load
from drydock_agent.state_folder import StateFolder

from tests.agent.agents import VM_IDS, SteppedClock

URL = "http://www.microsoft.com/pkiops/certs/Some%20Issuing%20CA%2001%20-%20xsign.crt"
KEY = Key(VM_IDS["web-vm1"], 7, "0" * 64)


class Wanting:
    """A backend that misses so many certificates."""

    def __init__(self, misses: int, url: str = URL) -> None:
        self.misses, self.url = misses, url
        self.asked: list[wire.EnrolRequest] = []
        self.keys: list[Key | None] = []

    def nonce(self) -> str:
        return "A" * 32

    def enrol(self, request: wire.EnrolRequest, key: Key | None = None) -> EnrolmentGrant:
        self.asked.append(request)
        self.keys.append(key)
        if len(self.asked) <= self.misses:
            raise RefusedByBackend(422, "intermediate wanted", None, wanted=self.url)
        return EnrolmentGrant(KEY, ())


class NoKeys:
    def enrolled(self, keys: Any) -> None:
        return


@pytest.fixture
def state(tmp_path: Path, clock: SteppedClock) -> StateFolder:
    return StateFolder(tmp_path, clock)


def enrolment_of(state: StateFolder, simulator: RunningSimulator) -> Enrolment:
    settings = load({"DRYDOCK_FLEET_URL": "https://drydock.example", "DRYDOCK_IMDS_URL": simulator.vm_url("web-vm1")})
    identity = Identity(VM_IDS["web-vm1"], "imds", {"name": "web-vm1"})
    return Enrolment(settings, identity, state, keyring=NoKeys(), enrolled=lambda: None)  # type: ignore[arg-type]


def test_certificates_that_the_backend_misses_are_fetched_and_sent_along(
    state: StateFolder, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuers, "fetch", lambda url, proxies: base64.b64encode(url.encode()).decode())
    backend, enrolment = Wanting(2), enrolment_of(state, simulator)
    enrolment.enrol(backend)  # type: ignore[arg-type]
    last = backend.asked[-1]
    assert last.attested is not None and last.keyed
    assert len(base64.b64decode(last.attested.signature)) > 1000
    assert last.attested.intermediates == [base64.b64encode(URL.encode()).decode()] * 2
    # The key is kept, and proves who it is when it enrols again, after a restart as well.
    assert enrolment.secret == KEY
    again = enrolment_of(state, simulator)
    assert again.secret == KEY
    again.enrol(backend)  # type: ignore[arg-type]
    assert backend.keys[-1] == KEY
    with pytest.raises(NoAnswer, match="too many"):
        enrolment.enrol(Wanting(9))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/metadata/instance",
        *(f"http://www.microsoft.com{rest}" for rest in (".example.org/a.crt", "@example.org/a.crt", ":8080/a.crt")),
        *(f"http://www.microsoft.com{rest}" for rest in ("/a.crt?x=http://example.org", "/a crt")),
        "file:///etc/passwd",
        "",
    ],
)
def test_from_anywhere_else_nothing_is_fetched(url: str) -> None:
    assert not issuers.is_issuer_url(url)
    assert issuers.is_issuer_url(URL) and issuers.is_issuer_url("http://caissuers.microsoft.com/pkiops/certs/x(1).crt")
    with pytest.raises(NoAnswer, match="no address of Microsoft's"):
        issuers.fetch(url, {})
