"""Signed orders: an agent that trusts a key starts nothing that this key did not sign."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from drydock_agent import wire
from drydock_agent.__main__ import main
from drydock_agent.backend.client import order_to_text, read_orders
from drydock_agent.backend.signature_verifier import MAX_PROCESSES, PROGRAM, Verifier
from drydock_agent.backend.signatures import Keyring, key_of
from drydock_agent.clock import Clock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.state_folder import StateFolder
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import SteppedClock

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=timezone.utc)
ORDER = wire.Order(
    id="order-1", machine_id="m-1", event_id="E-1", issued_at=NOW, expires_at=NOW + timedelta(seconds=60), via="look"
)


class Key:
    """A private key, as the backend would hold it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.private = Ed25519PrivateKey.generate()

    @property
    def public(self) -> wire.PublicKey:
        raw = self.private.public_key().public_bytes_raw()
        return wire.PublicKey(id=self.name, public_key=base64.b64encode(raw).decode())

    def sign(self, text: bytes) -> str:
        return base64.b64encode(self.private.sign(text)).decode()

    def signed(self, order: wire.Order) -> wire.Order:
        return replace(order, signatures=[wire.Signature(key=self.name, value=self.sign(wire.order_text(order)))])

    def word(self, about: Key, *, retired: bool = False) -> wire.KeyNotice:
        word = wire.KeyNotice(
            id=about.name, public_key=about.public.public_key, retired=retired, by=self.name, signature=""
        )
        return replace(word, signature=self.sign(wire.key_text(word)))


def ring(folder: Path, *keys: Key, mode: str = "auto") -> Keyring:
    made = Keyring(state=StateFolder(folder, Clock()), mode=mode, limiter=LogLimiter(Clock()))
    if keys:
        made.enrolled([key.public for key in keys])
    return made


OURS, THEIRS = Key("ours"), Key("theirs")


def test_a_signed_order_is_trusted_and_any_other_is_not(tmp_path: Path) -> None:
    trust = ring(tmp_path, OURS)
    assert trust.signature_fault(OURS.signed(ORDER)) == ""
    assert trust.signature_fault(ORDER) == "unsigned"
    assert trust.signature_fault(THEIRS.signed(ORDER)) == "bad-signature"
    posing = replace(THEIRS.signed(ORDER), signatures=[wire.Signature(key="ours", value=THEIRS.sign(b"x"))])
    assert trust.signature_fault(posing) == "bad-signature"
    unreadable = replace(ORDER, signatures=[wire.Signature(key="ours", value="no base64!")])
    assert trust.signature_fault(unreadable) == "bad-signature"


CHANGES: dict[str, Any] = {
    "id": st.text(),
    "machine_id": st.text(),
    "event_id": st.text(),
    "issued_at": st.datetimes(timezones=st.just(timezone.utc)),
    "expires_at": st.none() | st.datetimes(timezones=st.just(timezone.utc)),
}


@given(st.sampled_from(sorted(CHANGES)).flatmap(lambda name: st.tuples(st.just(name), CHANGES[name])))
def test_no_field_can_be_changed_behind_the_signature(change: tuple[str, Any]) -> None:
    name, value = change
    other = replace(OURS.signed(ORDER), **{name: value})
    same = getattr(ORDER, name) == value
    signature = other.signatures[0]
    assert (wire.order_text(other) == wire.order_text(ORDER)) == same
    assert (signature.value == OURS.sign(wire.order_text(other))) == same


def test_the_way_that_an_order_took_is_not_signed_and_it_survives_the_wire_and_the_spool(tmp_path: Path) -> None:
    trust = ring(tmp_path, OURS)
    order = replace(OURS.signed(ORDER), via="celery")
    [again], unreadable = read_orders([json.loads(order_to_text(order))])
    assert (again, unreadable, trust.signature_fault(again)) == (order, 0, "")


def test_signatures_are_verified_in_a_child_process_and_floods_in_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    text, pair = wire.order_text(ORDER), (OURS.public.public_key, OURS.sign(wire.order_text(ORDER)))
    # As in an agent, which has not loaded it.
    monkeypatch.delitem(sys.modules, PROGRAM, raising=False)
    clock = SteppedClock()
    verifier = Verifier(steady=clock.monotonic)
    assert verifier.any_verifies([(THEIRS.public.public_key, pair[1]), pair], text)
    assert not verifier.any_verifies([pair], text + b" ")
    assert not verifier.any_verifies([], text)
    assert not verifier.any_verifies([("no base64!", "nor this")], text)
    assert PROGRAM not in sys.modules
    for _ in range(MAX_PROCESSES):
        assert verifier.any_verifies([pair], text)
    assert PROGRAM in sys.modules


@pytest.mark.parametrize("interpreter", ["", "/nowhere/python", "/bin/false", "/bin/cat"])
def test_where_there_is_no_other_process_it_is_judged_here(interpreter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, PROGRAM, raising=False)
    signed = [(OURS.public.public_key, OURS.sign(b"text"))]
    assert Verifier(interpreter=interpreter).any_verifies(signed, b"text")
    assert not Verifier(interpreter=interpreter).any_verifies(signed, b"other")


def test_a_new_key_counts_when_a_trusted_one_introduces_it(tmp_path: Path) -> None:
    second, third = Key("second"), Key("third")
    trust = ring(tmp_path, OURS)
    trust.apply_notices([OURS.word(second), second.word(third)])
    assert trust.trusted == ["ours", "second", "third"]
    assert trust.signature_fault(third.signed(ORDER)) == ""
    # The thief of a key that is retired uses it until then, and not in the same breath.
    thief = Key("thief")
    trust.apply_notices([second.word(OURS, retired=True), OURS.word(thief), OURS.word(second, retired=True)])
    assert trust.trusted == ["second", "third"]
    assert trust.signature_fault(thief.signed(ORDER)) == "bad-signature"
    assert trust.signature_fault(OURS.signed(ORDER)) == "bad-signature"
    assert ring(tmp_path).trusted == ["second", "third"]


def test_a_later_enrolment_brings_no_other_key(tmp_path: Path) -> None:
    ours, forged = Key("ours"), Key("forged")
    made = ring(tmp_path, ours)
    # An attacker on the network path answers the next enrolment, and then an order.
    made.enrolled([forged.public])
    assert made.signature_fault(forged.signed(ORDER)) == "bad-signature"
    assert made.signature_fault(ours.signed(ORDER)) == ""
    assert ring(tmp_path).trusted == ["ours"]


@pytest.mark.parametrize(
    ("named", "notices", "warned"), [(["ours", "new"], [], False), (["new"], ["new"], False), (["new"], [], True)]
)
def test_an_enrolment_after_a_rotation_warns_of_keys_that_nothing_introduces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, named: list[str], notices: list[str], warned: bool
) -> None:
    keys = {"ours": Key("ours"), "new": Key("new")}
    made = ring(tmp_path, keys["ours"])
    made.enrolled([keys[name].public for name in named])
    assert not caplog.records, "the notices come with the next report"
    made.apply_notices([keys["ours"].word(keys[name]) for name in notices])
    assert ["drydock-agent trust" in record.message for record in caplog.records] == [True] * warned


def test_the_owner_of_the_machine_trusts_a_key_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, new = Key("lost"), Key("new")
    ring(tmp_path, lost)
    monkeypatch.setenv("DRYDOCK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("DRYDOCK_FLEET_URL", "https://drydock.example")
    assert main(["trust", "nonsense"]) == 2
    assert "32 bytes in base64" in capsys.readouterr().err
    assert main(["trust", new.public.public_key]) == 0
    known = key_of(new.public.public_key)
    signature = wire.Signature(key=known.id, value=new.sign(wire.order_text(ORDER)))
    assert ring(tmp_path).trusted == [known.id]
    assert ring(tmp_path).signature_fault(replace(ORDER, signatures=[signature])) == ""
    assert ring(tmp_path).signature_fault(lost.signed(ORDER)) == "bad-signature"


def test_only_a_trusted_key_introduces_or_retires_a_key(tmp_path: Path) -> None:
    trust = ring(tmp_path, OURS)
    forged = replace(THEIRS.word(THEIRS), by="ours")
    trust.apply_notices(
        [THEIRS.word(THEIRS), forged, THEIRS.word(OURS, retired=True), replace(OURS.word(THEIRS), retired=True)]
    )
    assert trust.trusted == ["ours"]
    trust.apply_notices([OURS.word(OURS, retired=True)])
    assert trust.trusted == ["ours"], "a key cannot retire itself: another one has to follow it"


def test_unchecked_signatures_are_reported_and_strict_mode_needs_a_key(tmp_path: Path) -> None:
    assert ring(tmp_path).signature_fault(ORDER) == "", "enrolled before there were keys: it warns"
    assert ring(tmp_path, mode="always").signature_fault(OURS.signed(ORDER)) == "bad-signature"
    never = ring(tmp_path, OURS, mode="never")
    assert (never.trusted, never.signature_fault(ORDER)) == (None, "")
