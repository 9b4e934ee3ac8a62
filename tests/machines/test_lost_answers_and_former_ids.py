"""Lost answers to enrolment, and made-up ids: only the machine itself repeats its request or is merged."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.secrets import hash_of
from fleet.domain.states import EventStatus
from fleet.models import Admission, AvailabilitySet, Entry, JoinToken, Machine, Sighting, UnusedKey
from fleet.operations.intake import keep, presence
from fleet.operations.machines import decommission, entrance, keys
from fleet.projections.machines import identities_of
from tests.approvals.asking import refused
from tests.approvals.racing import thread_group
from tests.factories import Agent, acting, admin, listing, the_event
from tests.factories import Fleet as Walkers
from tests.machines.forger import NOW, OTHER_VM_ID, VM_ID
from tests.machines.newcomers import COMPUTE, admit_all, ask, document, granted, key_of, token, waits
from tests.words import text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("azure")]

LATER = NOW + timedelta(minutes=1)


def used(answer: wire.EnrolAnswer) -> wire.EnrolAnswer:
    """Its first call: the answer has arrived."""
    assert keys.mark_used([key_of(answer)]) == set()
    return answer


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
    settings.LEGACY_CREDENTIALS_UNTIL = LATER
    assert waits(ask(credential=by, join_token=token(), now=LATER)), "from that day on"
    settings.LEGACY_CREDENTIALS_UNTIL = None
    key = used(granted(ask(credential=by, now=LATER)))
    assert waits(ask(credential=by, join_token=token(), now=LATER))
    assert granted(ask(signed_by=key_of(key), now=LATER))


def test_the_last_use_of_a_join_token_is_not_taken_twice(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    once = token(max_uses=1)
    granted(ask(join_token=once))
    granted(ask(join_token=once, now=LATER))
    assert JoinToken.objects.get().uses == 1
    assert refused(lambda: ask(join_token=once, machine_id=OTHER_VM_ID, ask="another")).code == "join-token-refused"


def test_admission_counts_once() -> None:
    assert waits(ask())
    admit_all()
    granted(ask())
    used(granted(ask(now=LATER)))
    assert waits(ask(now=LATER))


def test_a_copied_folder_gets_nothing_once_the_machine_has_called() -> None:
    """A copy of the disk has the machine's secret and its key of that day."""
    first = used(granted(ask(document())))
    assert waits(ask(document(), signed_by="")), "the secret alone"
    renewed = granted(ask(signed_by=key_of(first)))
    # Between the answer and the first call the secret is worth nothing where there was a key.
    assert waits(ask(document()))
    used(renewed)
    assert waits(ask(document(), signed_by=key_of(first)))


def test_a_lost_key_needs_the_secret_and_the_document_again() -> None:
    granted(ask(document()))
    assert waits(ask(document(), ask="made up")), "another process of the machine, without the secret"
    assert waits(ask()), "a clone has the secret, and not what Azure signs"
    assert refused(lambda: ask(document(vmId=OTHER_VM_ID))).code == "attestation-refused"
    # As itself the clone is another machine.
    assert granted(ask(document(vmId=OTHER_VM_ID), machine_id=OTHER_VM_ID))


def test_what_spoke_for_it_has_to_speak_again(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    first, other = token(), token()
    granted(ask(join_token=first))
    assert waits(ask(join_token=other)), "another token"
    entrance.end_join_token(prefix=JoinToken.objects.earliest("pk").prefix, now=NOW)
    assert refused(lambda: ask(join_token=first)).code == "join-token-refused"


@pytest.mark.parametrize("case", ["a day later", "a row of an earlier release", "revoked"])
def test_a_person_decides_where_nothing_was_lost(case: str) -> None:
    first, at = granted(ask(document())), NOW
    if case == "a day later":
        at += keys.LASTS
    elif case == "revoked":
        decommission.revoke(machine_id=Machine.objects.get().pk, actor=acting(admin()), now=NOW)
        assert waits(ask(document(), signed_by=key_of(first)))
    else:
        Machine.objects.update(credential_hash="given by 0.1.0")
    assert waits(ask(document(at), now=at))


@pytest.mark.django_db(transaction=True)
def test_of_two_who_ask_at_once_the_last_one_counts_and_then_who_uses_it() -> None:
    granted(ask(document()))
    with thread_group(2) as racing:
        found: list[Any] = racing.at_once(partial(ask, document()), partial(ask, document()))
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
        with thread_group(1) as racing:
            # It was not kept waiting, and told that this key counts for nothing.
            assert racing.at_once(partial(keys.mark_used, [key_of(first)])) == [{key_of(first)}]
    assert UnusedKey.objects.get().found_by == key_of(second)
    assert keys.mark_used([key_of(first), key_of(second)]) == set()
    assert not UnusedKey.objects.exists()


MADE_UP = "5d1f6c02-7d0b-4f0e-9a55-000000000001"

PROVISIONAL = {"availability_set": "", "instance": None}

AS_ITSELF = {"former_id": MADE_UP, "instance": COMPUTE | {"vmId": VM_ID}, "availability_set": ""}


def ghost(machine_id: str = MADE_UP, **fields: Any) -> str:
    """A machine with a made-up id that a person has admitted; the name of its key."""
    fields = PROVISIONAL | {"machine_id": machine_id, "machine_id_source": "file"} | fields
    assert waits(ask(**fields))
    admit_all()
    answer = granted(ask(**fields))
    used_by = key_of(answer, machine_id)
    assert identities_of(hashes=[used_by])
    keys.mark_used([used_by])
    return used_by


def lists(machine: Machine, *events: dict[str, Any], spool: str = "spool", seq: int = 1) -> None:
    """The machine is heard, and reports a document with these events."""
    walker = Agent(machine=machine, credential="", spool=spool, seq=seq - 1, incarnation=seq - 1)
    presence.flush(contacts=[presence.Contact(machine.pk, NOW, NOW)])
    fleet = Walkers(NOW)
    fleet.record(keep.Delivery(machine.pk, spool, "0.2.0", (walker.document(*events, at=NOW),)))


def test_the_row_of_the_made_up_id_becomes_that_of_the_vm_id() -> None:
    key = ghost()
    row = Machine.objects.get(vm_id=MADE_UP)
    lists(row, listing(resources=["vm1"], not_before=None))
    home = row.availability_set_id
    answer = granted(ask(signed_by=key, **AS_ITSELF))
    assert answer.machine_id == VM_ID
    merged = Machine.objects.get()
    assert (merged.pk, merged.vm_id, merged.availability_set_id) == (row.pk, VM_ID, home)
    assert the_event().sightings.get().machine_id == row.pk
    assert key not in identities_of(hashes=[key]), "the old key ended"
    assert identities_of(hashes=[key_of(answer)])
    assert not Admission.objects.exists()
    entry = Entry.objects.get(kind="machine_identified")
    assert entry.machine_id == row.pk
    assert MADE_UP in text(entry) and VM_ID in text(entry)
    # An answer that is lost is given again.
    granted(ask(signed_by=key, **AS_ITSELF))
    assert Machine.objects.count() == 1


def test_an_attested_machine_is_merged_as_well_and_where_nothing_else_counts_only_that(settings: Settings) -> None:
    key = ghost()
    settings.ENROLMENT_POLICY = "attested"
    assert refused(lambda: ask(signed_by=key, **AS_ITSELF)).code == "attestation-refused"
    assert Machine.objects.get().vm_id == MADE_UP
    granted(ask(document(), signed_by=key, **AS_ITSELF))
    merged = Machine.objects.get()
    assert merged.vm_id == VM_ID and merged.attested_at == NOW


@pytest.mark.parametrize("proof", ["none", "token", "ask", "another's key", "a config id"])
def test_without_the_key_no_machine_is_merged(proof: str) -> None:
    key = ghost()
    other = ghost("another-machine") if proof == "another's key" else ""
    fields: dict[str, Any] = {
        "none": {"ask": "a stranger's"}, "token": {"join_token": token(), "ask": "a stranger's"}, "ask": {},
        "another's key": {"signed_by": other}, "a config id": {"signed_by": key, "machine_id_source": "config"},
    }[proof]  # fmt: skip
    before = Machine.objects.count()
    ask(**(AS_ITSELF | fields))
    assert Machine.objects.filter(vm_id=MADE_UP, revoked_at=None).exists()
    assert not Machine.objects.filter(vm_id=VM_ID).exists() and Machine.objects.count() == before
    assert identities_of(hashes=[key])


def test_the_key_of_a_real_machine_makes_it_no_other_one() -> None:
    real = used(granted(ask(document(), instance=COMPUTE | {"vmId": VM_ID})))
    # A disk that was cloned, or an agent that would be another machine.
    said = {"machine_id": OTHER_VM_ID, "former_id": VM_ID, "ask": "another"}
    assert waits(ask(signed_by=key_of(real), **said))
    assert Machine.objects.get().vm_id == VM_ID
    # Nor where Azure has not vouched for it, and its own metadata says who it is.
    Machine.objects.update(attested_at=None)
    assert waits(ask(signed_by=key_of(real), **said))


def test_a_revoked_machine_is_merged_with_none() -> None:
    key = ghost()
    Machine.objects.update(revoked_at=NOW)
    assert waits(ask(signed_by=key, **AS_ITSELF))
    assert Machine.objects.get().vm_id == MADE_UP


def test_the_key_of_a_made_up_id_takes_no_machine_over_that_has_a_row() -> None:
    real = used(granted(ask(document())))
    key = ghost()
    assert waits(ask(signed_by=key, **(AS_ITSELF | {"ask": "not its own"})))
    assert identities_of(hashes=[key_of(real)]) and identities_of(hashes=[key])


def test_a_machine_with_a_row_of_its_own_takes_over_what_is_open() -> None:
    """The state folder was lost, Azure gave no `vmId`, and a made-up id stood for a machine that was known."""
    used(granted(ask(document(), availability_set="web")))
    real = Machine.objects.get(vm_id=VM_ID)
    lists(real, spool="before")
    key = ghost()
    row = Machine.objects.get(vm_id=MADE_UP)
    lists(row, spool="third")
    lists(row, spool="fourth")
    lists(row, listing(resources=["vm1"], not_before=None), spool="fifth")
    assert the_event().status == EventStatus.SCHEDULED
    said = AS_ITSELF | {"availability_set": "web", "ask": "the new folder's"}
    assert waits(ask(signed_by=key, **said))
    admit_all()
    granted(ask(signed_by=key, **said))
    row.refresh_from_db()
    assert row.revoked_at == NOW and not identities_of(hashes=[key])
    assert Machine.objects.filter(revoked_at=None).get().pk == real.pk
    event = the_event()
    assert (event.status, event.availability_set_id) == (EventStatus.SCHEDULED, real.availability_set_id)
    assert Sighting.objects.get(event=event).machine_id == real.pk
    assert not AvailabilitySet.objects.filter(kind="provisional", merged_into=None).exists()
    assert not Entry.objects.filter(kind__in=("event_ended", "event_reopened")).exists()
    # What the machine says next counts, whatever the other row's numbers were.
    lists(real, spool="fifth", seq=2)
    assert the_event().status == EventStatus.ENDED
