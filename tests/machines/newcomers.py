"""Machines that enrol at a new installation, which trusts a pretended Azure."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.machines.enrolment import key_name
from fleet.domain.secrets import hash_of
from fleet.models import Admission, Machine
from fleet.models.cipher import derived_keys
from fleet.operations.machines import admissions, enrolment, entrance
from fleet.operations.machines.keys import PURPOSE
from fleet.projections.machines import MachineIdentity, identities_of
from tests import accounts
from tests.factories import acting, admin
from tests.machines import forger
from tests.machines.forger import NOW, SUBSCRIPTION, VM_ID, intermediate, root

COMPUTE = {"name": "vm1", "subscriptionId": SUBSCRIPTION, "resourceGroupName": "shop", "location": "westeurope"}


def trust_azure(settings: Settings, folder: Path) -> None:
    """Trust the pretended Azure and one subscription."""
    for name, certificate in {"root": root(), "intermediate": intermediate()}.items():
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    settings.ATTESTED_ROOTS = str(folder)
    settings.ATTESTED_SUBSCRIPTIONS = frozenset({SUBSCRIPTION})
    settings.ENROLMENT_POLICY = ""


def document(now: datetime = NOW, **changes: Any) -> wire.AttestedDocument:
    """What Azure signs of a machine with a fresh nonce."""
    nonce = entrance.challenge(now=now).nonce
    times = {"createdOn": forger.stamp(now), "expiresOn": forger.stamp(now + timedelta(hours=6))}
    said = forger.said(nonce=nonce, timeStamp=times) | changes
    return wire.AttestedDocument(signature=forger.Document(content=json.dumps(said).encode()).text())


def token(set_name: str = "", *, now: datetime = NOW, **fields: Any) -> str:
    """Return a new join token."""
    day = timedelta(days=1)
    return accounts.join_token(comment="", expires_in=day, now=now, set_name=set_name, **fields)[1]


def request_of(attested: wire.AttestedDocument | None = None, **fields: Any) -> wire.EnrolRequest:
    """Return the request of our machine, with these fields changed."""
    usual = {"join_token": "", "machine_id": VM_ID, "resource_name": "vm1", "availability_set": "web"}
    usual |= {"instance": COMPUTE, "ask": "its own", "attested": attested, "keyed": True}
    return wire.EnrolRequest(**(usual | fields))


def ask(
    attested: wire.AttestedDocument | None = None,
    *,
    now: datetime = NOW,
    address: str = "203.0.113.9",
    signed_by: str = "",
    **fields: Any,
) -> wire.EnrolAnswer | wire.EnrolPending:
    """A machine enrols: its key, or that it waits."""
    request = request_of(attested, **fields)
    return enrolment.enrol(request=request, now=now, address=address, signed_by=signed_by)


def granted(answer: wire.EnrolAnswer | wire.EnrolPending) -> wire.EnrolAnswer:
    assert isinstance(answer, wire.EnrolAnswer), "it waits for a person"
    return answer


def waits(answer: wire.EnrolAnswer | wire.EnrolPending) -> bool:
    return isinstance(answer, wire.EnrolPending)


def admit_all() -> None:
    """An administrator admits every request that waits."""
    ids = list(Admission.objects.filter(admitted_at=None).values_list("pk", flat=True))
    admissions.admit(ids=ids, actor=acting(admin()), now=NOW)


def home() -> str:
    """Return the name of our machine's set."""
    return Machine.objects.select_related("availability_set").get(vm_id=VM_ID).availability_set.name


def identity_of(credential: str) -> MachineIdentity | None:
    """Return whose credential this is."""
    return identities_of(hashes=[hash_of(credential)]).get(hash_of(credential))


def key_of(answer: wire.EnrolAnswer, vm_id: str = VM_ID) -> str:
    """The name of the key that this answer holds."""
    return key_name(derived_keys(PURPOSE)[0], vm_id, answer.generation)
