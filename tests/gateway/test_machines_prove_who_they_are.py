"""Attested enrolment: a real agent, gateway and simulated Azure work from the nonce to the signed call."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import requests
from drydock_agent import wire
from drydock_agent.backend.client import AdmissionPending, BackendClient, RefusedByBackend
from drydock_agent.backend.machine_key import Key, authorization
from drydock_agent.clock import Clock

from fleet.models import Admission, Machine
from tests.gateway.enrolment import FIRST, SECOND, SUBSCRIPTION, VM_IDS, Doors
from tests.gateway_process import now

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


def report(client: BackendClient, secret: Any, spool: str = "a spool") -> Any:
    return client.report(secret, wire.ReportsRequest(spool=spool, sent_at=Clock().now()), [])


def test_from_the_nonce_to_the_signed_call(doors: Doors) -> None:
    enrolment, client = doors.agent(FIRST)
    enrolment.enrol(client)
    key = enrolment.secret
    assert isinstance(key, Key)
    assert Machine.objects.get(vm_id=VM_IDS[FIRST]).key_generation == key.generation
    assert not report(client, key).renew
    assert client.orders(key, wait=0, held=[]).takes_polls
    # The gateway tells a machine whose clock is a day ahead the time, and the machine signs again with it.
    late, its_client = doors.agent(SECOND, ahead=timedelta(days=1))
    late.enrol(its_client)
    assert late.secret is not None
    assert report(its_client, late.secret, "another spool") is not None
    overheard(doors, key)
    forged(doors)
    # It enrols again by its key, which ends with that; a copy of the folder is a stranger then.
    enrolment.enrol(client)
    assert isinstance(enrolment.secret, Key) and enrolment.secret.generation > key.generation
    with pytest.raises(RefusedByBackend, match="401"):
        report(client, key)
    assert report(client, enrolment.secret) is not None


def overheard(doors: Doors, key: Key) -> None:
    """Replay an overheard call: it fails again, for another call and with another body."""
    url = f"{doors.gateway.url}{wire.REPORTS_PATH}"
    body = json.dumps({"spool": "a spool", "sent_at": now(), "reports": []}).encode()
    said = authorization(key, "POST", wire.REPORTS_PATH, body, Clock().now())
    headers = {"Authorization": said, "Content-Type": "application/json"}
    other = requests.post(url, data=body + b" ", headers=headers, timeout=20)
    assert other.status_code == 401, "another body"
    said = authorization(key, "POST", wire.REPORTS_PATH, body, Clock().now())
    statuses = [
        requests.post(url, data=body, headers={"Authorization": said}, timeout=20).status_code for _ in range(3)
    ]
    assert statuses == [200, 401, 401]
    orders = requests.get(f"{doors.gateway.url}{wire.ORDERS_PATH}?wait=0", headers={"Authorization": said}, timeout=20)
    assert orders.status_code == 401
    assert requests.post(url, data=body, headers={"Authorization": f"Bearer {key.key}"}, timeout=20).status_code == 401


def forged(doors: Doors) -> None:
    once = doors.document(FIRST)
    attested = {"signature": once, "intermediates": []}
    # As a machine that is known, by a valid document alone: a person has to admit it.
    assert doors.enrol(attested=attested).status_code == 202
    refusals = {
        "used before": doors.enrol(attested=attested),
        "another machine": doors.enrol(attested={"signature": doors.document(SECOND)}),
        "too large": doors.enrol(attested={"signature": "A" * 100_000}),
        "intermediates": doors.enrol(attested={"signature": once, "intermediates": ["AA"] * 5}),
    }
    for sentence, answer in refusals.items():
        assert answer.status_code == 403 and sentence in answer.json()["detail"], answer.text
        assert answer.json()["type"] == "attestation-refused"
    assert doors.enrol(attested={"signature": "A" * 300_000}).status_code == 413
    for fault, sentence in {
        "altered": "signature",
        "expired": "not valid now",
        "foreign-root": "no root that counts",
        "old-nonce": "not given here",
        "other-vm": "another machine",
        "other-subscription": "",
        "wrong-subject": "metadata service",
    }.items():
        doors.azure.call("POST", "/control/faults", {"vm": SECOND, "fault": f"attested-{fault}"})
        answer = doors.enrol(machine_id=VM_IDS[SECOND], attested={"signature": doors.document(SECOND)})
        if not sentence:
            # Azure has signed it: of a subscription that is not allowed a person decides.
            assert answer.status_code == 202
        else:
            assert answer.status_code == 403 and sentence in answer.json()["detail"], (fault, answer.text)


def test_where_azure_does_not_answer_a_person_admits_it(doors: Doors) -> None:
    stranger = "00000000-0000-4000-8000-0000000000aa"
    doors.azure.call("POST", "/control/faults", {"vm": FIRST, "fault": "attested-404"})
    enrolment, client = doors.agent(FIRST, machine_id=stranger)
    with pytest.raises(AdmissionPending):
        enrolment.enrol(client)
    row = Admission.objects.get(vm_id=stranger)
    assert (row.machine, row.attested, row.said["subscription"]) == (None, "", SUBSCRIPTION)
