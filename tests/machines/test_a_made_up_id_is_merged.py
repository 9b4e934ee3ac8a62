"""A machine that enrolled with a made-up id while Azure gave it no `vmId` is merged with the machine of its `vmId`, by
the key of the made-up id and by nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from fleet.domain.states import EventStatus
from fleet.models import Admission, AvailabilitySet, Entry, Machine, Sighting
from fleet.operations.intake import keep, presence
from fleet.operations.machines import admissions, keys
from fleet.projections.machines import identities_of
from tests.approvals.asking import refused
from tests.factories import Agent, acting, admin, listing, the_event
from tests.factories import Fleet as Walkers
from tests.machines.forger import NOW, OTHER_VM_ID, VM_ID
from tests.machines.newcomers import COMPUTE, ask, document, key_of, trust_azure
from tests.machines.test_a_lost_answer_needs_no_person import granted, token, used, waits
from tests.words import text

pytestmark = pytest.mark.django_db
MADE_UP = "5d1f6c02-7d0b-4f0e-9a55-000000000001"
PROVISIONAL = {"availability_set": "", "instance": None}
AS_ITSELF = {"former_id": MADE_UP, "instance": COMPUTE | {"vmId": VM_ID}, "availability_set": ""}


@pytest.fixture(autouse=True)
def azure(settings: Settings, tmp_path: Path) -> None:
    trust_azure(settings, tmp_path)


def ghost(machine_id: str = MADE_UP, **fields: Any) -> str:
    """A machine with a made-up id that a person has admitted; the name of its key."""
    fields = PROVISIONAL | {"machine_id": machine_id, "machine_id_source": "file"} | fields
    assert waits(ask(**fields))
    admissions.admit(ids=[Admission.objects.get().pk], actor=acting(admin(f"ada-{machine_id}")), now=NOW)
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
    told = Entry.objects.get(kind="machine_identified")
    assert told.machine_id == row.pk


def test_an_answer_that_is_lost_is_given_again() -> None:
    key = ghost()
    granted(ask(signed_by=key, **AS_ITSELF))
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
def test_without_the_key_no_machine_is_merged(settings: Settings, proof: str) -> None:
    key = ghost()
    other = ghost("another-machine") if proof == "another's key" else ""
    fields: dict[str, Any] = {
        "none": {"ask": "a stranger's"},
        "token": {"join_token": token(), "ask": "a stranger's"},
        "ask": {},
        "another's key": {"signed_by": other},
        "a config id": {"signed_by": key, "machine_id_source": "config"},
    }[proof]
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
    admissions.admit(ids=[Admission.objects.get().pk], actor=acting(admin()), now=NOW)
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


def test_the_timeline_tells_that_both_are_one() -> None:
    granted(ask(signed_by=ghost(), **AS_ITSELF))
    told = text(Entry.objects.get(kind="machine_identified"))
    assert MADE_UP in told and VM_ID in told
