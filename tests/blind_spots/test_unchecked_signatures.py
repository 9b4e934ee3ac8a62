"""Signature checks: an agent that reports that it does not check orders' signatures is a blind spot."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from drydock_agent import wire
from drydock_agent.backend import signatures
from drydock_agent.backend.signatures import Keyring
from drydock_agent.clock import Clock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.state_folder import StateFolder

from fleet.domain.orders.series import check_of
from fleet.operations.intake import presence
from fleet.operations.orders import sign
from fleet.projections.blind_spots import overview
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import NOW, Fleet, operator, seconds
from tests.words import sentence

pytestmark = pytest.mark.django_db

CODES = {"signatures-unchecked", "no-signing-key", "strange-signing-keys"}


def says(fleet: Fleet, name: str, check: str) -> None:
    presence.flush(contacts=[presence.Contact(fleet.agents[name].machine.pk, fleet.now, fleet.now, signatures=check)])


def found(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    return {spot.code: spot.names for spot in overview(now=fleet.now).spots if spot.code in CODES}


def test_what_the_agent_says_of_its_keys_is_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [wire.PublicKey(id="ours", public_key="")]

    def keyring(mode: str, folder: str) -> Keyring:
        (tmp_path / folder).mkdir(exist_ok=True)
        return Keyring(state=StateFolder(tmp_path / folder, Clock()), mode=mode, limiter=LogLimiter(Clock()))

    assert check_of(keyring("auto", "new").trusted, ["ours"]) == "no-key"
    enrolled = keyring("auto", "enrolled")
    enrolled.enrolled(keys)
    assert check_of(enrolled.trusted, ["ours", "older"]) == "checked"
    assert check_of(enrolled.trusted, ["other"]) == check_of(enrolled.trusted, []) == "strange-keys"
    assert check_of(keyring("never", "off").trusted, ["ours"]) == "none"
    monkeypatch.setattr(signatures, "available", lambda: False)
    assert check_of(keyring("auto", "bare").trusted, ["ours"]) == "none"


def test_each_is_a_blind_spot_until_it_says_otherwise(fleet: Fleet) -> None:
    for name in ("vm1", "vm2", "vm3", "vm4", "vm5"):
        fleet.enrol(name)
    assert found(fleet) == {}
    for name, check in (("vm1", "none"), ("vm2", "no-key"), ("vm3", "strange-keys"), ("vm4", "checked")):
        says(fleet, name, check)
    unchecked = {"signatures-unchecked": ("vm1",), "no-signing-key": ("vm2",), "strange-signing-keys": ("vm3",)}
    assert found(fleet) == unchecked
    # A contact that says nothing of it changes nothing; and silence is a blind spot of its own.
    fleet.heard()
    fleet.now += seconds(7200)
    assert set(found(fleet)) == CODES
    for name in ("vm1", "vm2", "vm3"):
        says(fleet, name, "checked")
    assert found(fleet) == {}


def test_its_page_says_what_to_do(fleet: Fleet) -> None:
    machine = fleet.enrol("vm1").machine
    otto = logged_in(operator())
    assert "pip install" not in text_of(otto.get(f"/machines/{machine.pk}/"))
    says(fleet, "vm1", "none")
    seen = text_of(otto.get(f"/machines/{machine.pk}/"))
    assert "Signed orders not checked" in seen
    assert "its extra “signed”" in seen
    (spot,) = [spot for spot in overview(now=fleet.now).spots if spot.code in CODES]
    assert sentence(spot.reason) in seen
    says(fleet, "vm1", "checked")
    assert "Signed orders checked" in text_of(otto.get(f"/machines/{machine.pk}/"))


def test_the_key_to_trust_is_printed() -> None:
    (key,) = sign.public_keys(now=NOW)
    out = StringIO()
    call_command("list_signing_keys", stdout=out)
    assert out.getvalue() == f"{key.id}  {key.public_key}\n"
    assert signatures.key_of(key.public_key).id == key.id
