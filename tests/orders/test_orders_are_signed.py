"""The backend's side of signed orders: keys, rotation, and what agents hear of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from drydock_agent import wire
from drydock_agent.backend.signatures import Keyring
from drydock_agent.clock import Clock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.state_folder import StateFolder

from fleet.domain.actor import COMMAND_LINE
from fleet.models import Entry, ScheduledEvent, SigningKey
from fleet.operations.orders import queue, sign
from tests.factories import NOW, Fleet
from tests.plans import queries

pytestmark = pytest.mark.django_db
WEEK = timedelta(days=7)


@pytest.fixture
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    """An agent's, which enrolled now."""
    state = StateFolder(tmp_path_factory.mktemp("state"), Clock())
    made = Keyring(state=state, mode="always", limiter=LogLimiter(Clock()))
    made.enrolled(sign.public_keys(now=NOW))
    return made


def an_order() -> wire.Order:
    return wire.Order(id="o", machine_id="m", event_id="e", issued_at=NOW)


def judged(keyring: Keyring, *, after: timedelta = timedelta()) -> str:
    [order] = sign.signed([an_order()], now=NOW + after)
    return keyring.signature_fault(order)


def hears(keyring: Keyring, *, after: timedelta) -> None:
    keyring.apply_notices(sign.news_for(sign.all_keys(now=NOW + after), keyring.trusted or []))


def test_the_first_enrolment_makes_the_first_key_and_the_others_get_the_same(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    key = SigningKey.objects.get()
    assert Entry.objects.filter(kind="signing_key_made").count() == 1
    assert [one.id for one in sign.public_keys(now=NOW)] == [key.key_id]


def test_offered_order_is_signed(keyring: Keyring, fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.approve()
    [[order]] = queue.waiting_orders().values()
    assert [signature.key for signature in order.signatures] == keyring.trusted
    assert keyring.signature_fault(order) == ""


def test_without_orders_signing_asks_nothing() -> None:
    assert queries(sign.signed, [], now=NOW) == []


def test_in_the_overlap_both_keys_sign_and_afterwards_only_the_new_one(keyring: Keyring) -> None:
    [old] = keyring.trusted or []
    fresh = sign.rotate(overlap=WEEK, now=NOW, actor=COMMAND_LINE.because("every year"))
    [order] = sign.signed([an_order()], now=NOW)
    assert [signature.key for signature in order.signatures] == [old, fresh.key_id]
    assert judged(keyring) == "", "an agent that has heard nothing yet"
    hears(keyring, after=timedelta())
    assert keyring.trusted == sorted([old, fresh.key_id])
    assert judged(keyring, after=WEEK) == ""
    hears(keyring, after=WEEK)
    assert keyring.trusted == [fresh.key_id]
    kinds = list(Entry.objects.filter(kind__startswith="signing").values_list("kind", "why").order_by("id"))
    assert kinds[1:] == [("signing_key_made", ""), ("signing_key_retired", "every year")]


def test_a_machine_that_slept_through_several_rotations_catches_up(keyring: Keyring) -> None:
    for number in range(4):
        sign.rotate(overlap=timedelta(days=1), now=NOW + number * WEEK)
    after = 10 * WEEK
    assert judged(keyring, after=after) == "bad-signature"
    hears(keyring, after=after)
    assert judged(keyring, after=after) == ""
    assert len(keyring.trusted or []) == 1


def test_agent_without_a_trusted_key_gets_no_key_notices() -> None:
    sign.public_keys(now=NOW)
    sign.rotate(overlap=WEEK, now=NOW)
    assert sign.news_for(sign.all_keys(now=NOW), ["an-attackers"]) == []


def test_with_another_secret_the_keys_cannot_be_read_until_the_old_one_is_named(
    keyring: Keyring, settings: Any
) -> None:
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another secret, long enough to be one"
    assert sign.unreadable(now=NOW) == keyring.trusted
    assert judged(keyring) == "unsigned"
    with pytest.raises(CommandError, match="SECRET_KEY_FALLBACKS"):
        call_command("rotate_signing_key")
    settings.SECRET_KEY_FALLBACKS = [old]
    assert (sign.unreadable(now=NOW), judged(keyring)) == ([], "")


def test_the_command_rotates(capsys: pytest.CaptureFixture[str]) -> None:
    sign.public_keys(now=NOW)
    call_command("rotate_signing_key", "--overlap", "12h", "--why", "drill")
    old, fresh = SigningKey.objects.order_by("pk")
    # The private half is nowhere in plain text.
    [signer] = sign._signers([old])
    assert signer.private.private_bytes_raw().hex() not in old.private_key and old.public_key != old.private_key
    assert old.retired_by == fresh.key_id and old.retires_at - fresh.made_at == timedelta(hours=12)
    assert fresh.key_id in capsys.readouterr().out
