"""Machines that enrol at a new installation, which trusts a pretended Azure."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.machines.enrolment import key_name
from fleet.models.cipher import derived_keys
from fleet.operations.machines import enrolment, entrance
from fleet.operations.machines.keys import PURPOSE
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


def ask(
    attested: wire.AttestedDocument | None = None, *, now: datetime = NOW, signed_by: str = "", **fields: Any
) -> wire.EnrolAnswer | wire.EnrolPending:
    """A machine enrols: its key, or that it waits."""
    request = wire.EnrolRequest(
        join_token="",
        machine_id=VM_ID,
        resource_name="vm1",
        availability_set="web",
        instance=COMPUTE,
        ask="its own",
        attested=attested,
        keyed=True,
    )
    wanted = replace(request, **fields)
    return enrolment.enrol(request=wanted, now=now, address="203.0.113.9", signed_by=signed_by)


def key_of(answer: wire.EnrolAnswer, vm_id: str = VM_ID) -> str:
    """The name of the key that this answer holds."""
    return key_name(derived_keys(PURPOSE)[0], vm_id, answer.generation)
