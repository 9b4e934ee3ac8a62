"""Orders: the agent records each before it carries it out, carries it out once, and always answers."""

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
from drydock_agent.metadata_service.client import StartAnswer
from drydock_agent.spool.store import Spool
from drydock_agent.state_folder import StateFolder
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import VM_IDS, Agents, Parts, SteppedClock
from tests.agent.backend.conftest import Delivery
from tests.agent.fleet_double import eventually

MACHINE = VM_IDS["web-vm1"]


class Story:
    """An announced event, and the machine's parts, which have read it."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.event_id = parts.announce("Reboot")
        parts.poller.step()

    def order(self, *, machine: str = MACHINE, event_id: str | None = None, seconds: float = 60) -> wire.Order:
        now = self.parts.server_clock.now()
        event_id = self.event_id if event_id is None else event_id
        times = {"issued_at": now, "expires_at": now + timedelta(seconds=seconds)}
        return wire.Order(id="order-1", machine_id=machine, event_id=event_id, via="celery", **times)

    def receipt(self, order: wire.Order | None = None) -> dict[str, Any]:
        """Accept the order, carry it out, and return the only receipt that waits to be sent."""
        self.parts.orders.accept([order or self.order()])
        return self.carried_out()

    def carried_out(self) -> dict[str, Any]:
        self.parts.carry_out()
        (receipt,) = self.parts.waiting(wire.RECEIPT)
        return receipt

    def acknowledge(self, up_to: int) -> None:
        """The backend has everything that waits."""
        self.parts.waiting()
        self.parts.spool.acknowledge(up_to, {})

    def restart(self, *, seconds: float = 0) -> None:
        """The agent ends, and another one starts on its spool after this time and polls."""
        self.parts.restart(seconds=seconds)
        self.parts.poller.step()

    def posts(self) -> list[str]:
        """The bodies of the StartRequests that named the event, in any case."""
        bodies = [entry["body"] for entry in self.parts.simulator.log(method="POST")]
        return [body for body in bodies if self.event_id.lower() in body.lower()]


@pytest.fixture
def story(parts: Parts) -> Story:
    return Story(parts)


def test_an_order_is_carried_out_and_answered(story: Story) -> None:
    parts = story.parts
    # Ids are compared without case.
    parts.orders.accept([story.order(machine=MACHINE.upper(), event_id=story.event_id.lower())])
    assert parts.orders.unacknowledged() == ["order-1:celery"]
    receipt = story.carried_out()
    assert (receipt["outcome"], receipt["azure_status"], receipt["via"]) == ("answered", 200, "celery")
    assert receipt["event_id"] == story.event_id.lower() and receipt["attempted_at"]
    [body] = story.posts()
    assert json.loads(body) == {"StartRequests": [{"EventId": story.event_id}]}, "spelled as the document spells it"
    assert parts.orders.unacknowledged() == ["order-1:celery"], "held until the backend has the receipt"
    parts.spool.acknowledge(2, {})
    assert parts.orders.unacknowledged() == []


def test_a_repeated_order_is_answered_from_memory(story: Story) -> None:
    orders, same = story.parts.orders, story.order()
    assert orders.accept([same])
    assert not orders.accept([same])
    story.parts.carry_out()
    assert not orders.accept([same]), "its receipt is on its way"
    story.acknowledge(2)
    assert orders.accept([same])
    story.parts.carry_out()
    story.restart()
    story.acknowledge(3)
    assert story.parts.orders.accept([same]), "remembered beyond a restart"
    assert story.carried_out()["outcome"] == "answered"
    assert len(story.posts()) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seconds": 0}, "expired"),
        ({"machine": "another"}, "wrong-machine"),
        ({"event_id": "00000000-0000-0000-0000-000000000000"}, "not-listed"),
        ({"event_id": ""}, "unreadable"),
        # Azure's 200 would prove nothing.
        ({}, "already-started"),
    ],
)
def test_a_refusal_has_its_reason_also_after_a_restart(story: Story, change: dict[str, Any], reason: str) -> None:
    if reason == "already-started":
        story.parts.simulator.events.start(story.event_id)
        story.restart()
    receipt = story.receipt(story.order(**change))
    assert (receipt["outcome"], receipt["reason"], receipt["azure_status"]) == ("refused", reason, None)
    number = len(story.parts.waiting())
    story.acknowledge(number)
    story.restart()
    story.acknowledge(number + 1)
    # Told differently now, it is still the same order.
    assert story.parts.orders.accept([story.order()])
    receipt = story.carried_out()
    assert (receipt["outcome"], receipt["reason"]) == ("refused", reason)
    assert story.posts() == []


# Where an agent may be stopped, and how often Azure was asked.
NOTHING_WRITTEN = "before anything was written"
STOPS = {
    NOTHING_WRITTEN: 1,
    "after the attempt was written": 1,
    # Azure answers 200 twice and starts once.
    "after Azure answered": 2,
    "after the receipt was written": 1,
    "after the receipt was sent": 1,
}


@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize(("stop", "asked"), STOPS.items())
def test_wherever_it_is_stopped_an_order_is_answered_once(story: Story, stop: str, asked: int, offered: bool) -> None:
    parts, order = story.parts, story.order()
    if stop == "after the attempt was written":
        parts.spool.attempt(order.id, order_to_text(order), parts.clock.now())
    elif stop != NOTHING_WRITTEN:
        parts.orders.accept([order])
        if stop == "after Azure answered":
            parts.orders._carry_out(parts.orders._queue[0])
        else:
            parts.carry_out()
        if stop == "after the receipt was sent":
            parts.waiting()
    story.restart(seconds=2)
    assert story.parts.orders.unacknowledged() == ([] if stop == NOTHING_WRITTEN else ["order-1:celery"])
    # The backend has no receipt yet, so it offers the order again; what was written needs no offer.
    if offered or stop == NOTHING_WRITTEN:
        story.parts.orders.accept([order])
    receipt = story.carried_out()
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", 200)
    assert len(story.posts()) == asked
    assert story.parts.simulator.events.get(story.event_id)["started_by"] == "approval"


def test_expiry_goes_by_the_backends_clock(story: Story, clock: SteppedClock) -> None:
    parts = story.parts
    parts.server_clock.contact(clock.now() - timedelta(days=1), clock.monotonic())
    still_good = story.order()
    assert still_good.expires_at is not None and still_good.expires_at < clock.now()
    clock.wall += timedelta(days=30)
    story.receipt(still_good)
    clock.advance(61)
    parts.orders.accept([replace(still_good, id="2")])
    parts.carry_out()
    assert [receipt["outcome"] for receipt in parts.waiting(wire.RECEIPT)] == ["answered", "refused"]


@pytest.mark.parametrize(("seconds", "posts"), [(61, None), (2, 1)], ids=["expired", "denied when repeated"])
def test_an_interrupted_request_that_cannot_be_repeated_is_neither_answered_nor_refused(
    story: Story, monkeypatch: pytest.MonkeyPatch, seconds: int, posts: int | None
) -> None:
    order = story.order()
    story.parts.spool.attempt(order.id, order_to_text(order), story.parts.clock.now())
    story.restart(seconds=seconds)
    monkeypatch.setattr(story.parts.orders._imds, "start", lambda event_id: StartAnswer(400, ""))
    receipt = story.carried_out()
    assert (receipt["outcome"], receipt["azure_status"], receipt["posts"] or None) == ("failed", None, posts)
    assert story.posts() == []


def test_after_a_start_an_order_waits_for_the_first_poll(story: Story) -> None:
    story.parts.restart()
    story.parts.orders.accept([story.order()])
    assert 0 < story.parts.orders.step() < 0.1
    story.parts.poller.step()
    assert story.carried_out()["outcome"] == "answered"


@pytest.mark.parametrize(
    ("fault", "count", "expected"),
    [
        # Whether a busy Azure is asked again is for the backend to say.
        ("status-503", 1, {"azure_status": 503, "posts": 1, "retry_after": 1.0}),
        ("status-500", 1, {"azure_status": 500, "posts": 1, "retry_after": None}),
        ("status-429", 1, {"azure_status": 429, "posts": 1, "retry_after": 1.0}),
        # A metadata service that is behind is asked again.
        ("status-404", 1, {"azure_status": 200, "posts": 2}),
        ("reset", 3, {"outcome": "failed", "azure_status": None, "posts": 3}),
    ],
)
def test_each_answer_of_azure_is_in_the_receipt(story: Story, fault: str, count: int, expected: dict[str, Any]) -> None:
    story.parts.simulator.fault("web-vm1", fault, method="POST", count=count)
    receipt = story.receipt()
    assert {name: receipt[name] for name in expected} == expected
    assert receipt["attempted_at"] and (fault != "reset" or receipt["reason"])


def test_orders_keep_their_receipts_when_the_spool_is_renumbered(story: Story) -> None:
    parts = story.parts
    parts.orders.accept([story.order()])
    parts.carry_out()
    assert not parts.spool.acknowledge(99, {})
    parts.orders.reload()
    assert parts.orders.unacknowledged() == ["order-1:celery"]
    story.acknowledge(2)
    assert parts.orders.unacknowledged() == []


def test_an_order_in_the_answer_to_a_report_is_accepted(parts: Parts, delivery: Delivery) -> None:
    delivery.fleet.order(MACHINE, "E-1")
    delivery.until_idle()
    assert parts.orders.unacknowledged() == ["order-1:celery"]


@pytest.mark.real_time
@pytest.mark.fault
def test_an_agent_killed_while_azure_is_asked_asks_again_and_answers(agents: Agents) -> None:
    event_id = agents.announce("Reboot")
    process = agents.at_work()
    agents.reported(event_id)
    agents.simulator.fault("web-vm1", "hang", method="POST", delay_seconds=30)
    agents.fleet.order(MACHINE, event_id)
    eventually(lambda: "order-1" in agents.fleet.delivered)
    # Looked for in the raw log: opening the spool would need the lock that the agent holds.
    eventually(lambda: b"order-1" in (agents.folder / "state" / "spool.sqlite3-wal").read_bytes())
    process.kill()
    # It may have died before its question was on the way; then the fault still waits for one.
    agents.simulator.clear_faults()
    agents.at_work()
    [receipt] = eventually(agents.fleet.receipts)
    assert (receipt["order_id"], receipt["outcome"], receipt["azure_status"]) == ("order-1", "answered", 200)


def test_a_bound_of_remembered_orders(tmp_path: Path, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drydock_agent.spool.store.ORDERS_REMEMBERED", 3)
    spool = Spool(tmp_path / "spool.sqlite3")
    for number in range(6):
        spool.receipt(str(number), "{}", wire.RECEIPT, clock.now(), {})
    assert [stored.id for stored in spool.orders()] == ["3", "4", "5"]
    spool.close()


# Signed orders: an agent that trusts a key starts nothing that this key did not sign.

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
