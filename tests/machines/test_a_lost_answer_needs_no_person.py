"""A lost answer to enrolment: the machine that should have got it requests again and is admitted while its contents are
unused. No other machine is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.secrets import hash_of
from fleet.models import Admission, JoinToken, Machine, UnusedKey
from fleet.operations.machines import admissions, entrance, keys
from fleet.projections.machines import identities_of
from tests.approvals.asking import refused
from tests.factories import acting, admin
from tests.machines.forger import NOW, OTHER_VM_ID
from tests.machines.newcomers import ask, document, key_of, trust_azure

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(minutes=1)


@pytest.fixture(autouse=True)
def azure(settings: Settings, tmp_path: Path) -> None:
    trust_azure(settings, tmp_path)


def granted(answer: wire.EnrolAnswer | wire.EnrolPending) -> wire.EnrolAnswer:
    assert isinstance(answer, wire.EnrolAnswer), "it waits for a person"
    return answer


def waits(answer: wire.EnrolAnswer | wire.EnrolPending) -> bool:
    return isinstance(answer, wire.EnrolPending)


def used(answer: wire.EnrolAnswer) -> wire.EnrolAnswer:
    """Its first call: the answer has arrived."""
    assert keys.mark_used([key_of(answer)]) == set()
    return answer


def token(now: datetime = NOW, **fields: Any) -> str:
    made = entrance.create_join_token(comment="", expires_in=timedelta(days=1), now=now, **fields)
    return made[1]


# Machines that are admitted again.


def test_an_attested_machine_asks_again_with_a_new_document() -> None:
    lost = granted(ask(document()))
    again = granted(ask(document(LATER), now=LATER))
    assert again.generation > lost.generation
    # The lost key authenticates no caller.
    assert key_of(lost) not in identities_of(hashes=[key_of(lost), key_of(again)])
    assert not Admission.objects.exists() and Machine.objects.count() == 1
    # However often answers are lost.
    for number in range(2, 9):
        at = NOW + timedelta(minutes=number)
        used_at_last = granted(ask(document(at), now=at))
    used(used_at_last)
    assert waits(ask(document(at), now=at))


def test_a_machine_with_a_key_asks_again_by_the_key_that_it_still_has() -> None:
    first = used(granted(ask(document())))
    lost = granted(ask(signed_by=key_of(first)))
    again = granted(ask(signed_by=key_of(first), now=LATER))
    assert again.generation > lost.generation
    # Two calls were answered in another order than they were made: it has the one, the other counts.
    granted(ask(signed_by=key_of(lost), now=LATER))
    last = used(granted(ask(signed_by=key_of(first), now=LATER)))
    for older in (first, lost, again):
        assert waits(ask(signed_by=key_of(older), now=LATER)), "what came after was used"
    assert granted(ask(signed_by=key_of(last), now=LATER))


def test_a_credential_of_0_1_0_that_gets_a_key_asks_again_with_the_credential(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    by = granted(ask(join_token=token(), keyed=False)).credential
    keys.mark_used([hash_of(by)])
    assert granted(ask(credential=by)).key
    key = used(granted(ask(credential=by, now=LATER)))
    assert waits(ask(credential=by, join_token=token(), now=LATER))
    assert granted(ask(signed_by=key_of(key), now=LATER))
    settings.LEGACY_CREDENTIALS_UNTIL = NOW
    assert waits(ask(credential=by, join_token=token(), now=LATER))


def test_from_the_day_on_that_is_set_a_credential_does_not_bring_a_lost_key_either(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    by = granted(ask(join_token=token(), keyed=False)).credential
    granted(ask(credential=by))
    settings.LEGACY_CREDENTIALS_UNTIL = LATER
    assert waits(ask(credential=by, join_token=token(), now=LATER))


def test_the_last_use_of_a_join_token_is_not_taken_twice(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    once = token(max_uses=1)
    granted(ask(join_token=once))
    granted(ask(join_token=once, now=LATER))
    assert JoinToken.objects.get().uses == 1
    assert refused(lambda: ask(join_token=once, machine_id=OTHER_VM_ID, ask="another")).code == "join-token-refused"


def test_admission_counts_once() -> None:
    assert waits(ask())
    admissions.admit(ids=[Admission.objects.get().pk], actor=acting(admin()), now=NOW)
    granted(ask())
    used(granted(ask(now=LATER)))
    assert waits(ask(now=LATER))


# Machines that are not.


def test_a_copied_folder_gets_nothing_once_the_machine_has_called() -> None:
    """A copy of the disk has the machine's secret and its key of that day."""
    first = used(granted(ask(document())))
    assert waits(ask(document(), signed_by="")), "the secret alone"
    renewed = granted(ask(signed_by=key_of(first)))
    # Between the answer and the first call the secret is worth nothing where there was a key.
    assert waits(ask(document()))
    used(renewed)
    assert waits(ask(document(), signed_by=key_of(first)))


def test_another_process_of_the_machine_has_the_document_and_not_the_secret() -> None:
    granted(ask(document()))
    assert waits(ask(document(), ask="made up"))


def test_a_clone_has_the_secret_and_not_the_document() -> None:
    granted(ask(document()))
    assert waits(ask()), "without what Azure signs"
    other = document(vmId=OTHER_VM_ID)
    assert refused(lambda: ask(other)).code == "attestation-refused"
    # As itself it is another machine.
    assert granted(ask(document(vmId=OTHER_VM_ID), machine_id=OTHER_VM_ID))


def test_what_spoke_for_it_has_to_speak_again(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    first, other = token(), token()
    granted(ask(join_token=first))
    assert waits(ask(join_token=other)), "another token"
    entrance.end_join_token(prefix=JoinToken.objects.earliest("pk").prefix, now=NOW)
    assert refused(lambda: ask(join_token=first)).code == "join-token-refused"


def test_a_day_later_a_person_decides() -> None:
    granted(ask(document()))
    at = NOW + keys.LASTS
    assert waits(ask(document(at), now=at))


def test_a_revoked_machine_waits_for_a_person_whatever_was_lost() -> None:
    first = granted(ask(document()))
    keys.revoke(machine_id=Machine.objects.get().pk, actor=acting(admin()), now=NOW)
    assert waits(ask(document()))
    assert waits(ask(document(), signed_by=key_of(first)))


def test_a_process_of_an_earlier_release_leaves_a_row_that_counts_for_nothing() -> None:
    granted(ask(document()))
    Machine.objects.update(credential_hash="given by 0.1.0")
    assert waits(ask(document()))


# Two at once


@pytest.mark.django_db(transaction=True)
def test_of_two_who_ask_at_once_the_last_one_counts_and_then_who_uses_it() -> None:
    start = threading.Barrier(2)
    found: list[wire.EnrolAnswer | wire.EnrolPending] = []
    documents = [document(), document()]
    granted(ask(document()))

    def asks(attested: wire.AttestedDocument) -> None:
        start.wait(10)
        try:
            found.append(ask(attested))
        finally:
            connection.close()

    threads = [threading.Thread(target=asks, args=(each,)) for each in documents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    older, newer = sorted((granted(each) for each in found), key=lambda one: one.generation)
    assert set(identities_of(hashes=[key_of(older), key_of(newer)])) == {key_of(newer)}
    used(newer)
    assert waits(ask(document()))


@pytest.mark.django_db(transaction=True)
def test_a_key_that_is_replaced_at_this_moment_is_not_used() -> None:
    """The copy's first call meets the machine's second try: never do both keys count."""
    first = granted(ask(document()))
    with transaction.atomic():
        second = granted(ask(document()))
        beside: list[set[str]] = []
        other = threading.Thread(target=_apart, args=(lambda: beside.append(keys.mark_used([key_of(first)])),))
        other.start()
        other.join(30)
        # It was not kept waiting, and told that this key counts for nothing.
        assert beside == [{key_of(first)}]
    assert UnusedKey.objects.get().found_by == key_of(second)
    assert keys.mark_used([key_of(first), key_of(second)]) == set()
    assert not UnusedKey.objects.exists()


def _apart(call: Callable[[], Any]) -> None:
    try:
        call()
    finally:
        connection.close()
