"""Refused enrolments: counted in each process, written together, shown; and predicted when an agent asks first."""

from __future__ import annotations

import pytest
import requests
from drydock_agent import wire
from prometheus_client import REGISTRY

from fleet.domain.reasons import Reason, Refused
from fleet.gateway.enrolment import MOST, Refusals
from fleet.models import Admission, Machine, RefusedEnrolment
from tests.gateway.enrolment import FIFTH, SIXTH, VM_IDS, Doors
from tests.processes import wait_for


def request_of(number: int) -> wire.EnrolRequest:
    return wire.EnrolRequest(join_token="join_wrong", machine_id=f"vm-{number}", resource_name=f"<b>vm{number}")


def test_a_flood_costs_bounded_memory_and_one_write() -> None:
    refusals = Refusals()
    refused = Refused("join-token-refused", Reason("join-token-unknown"))
    before = REGISTRY.get_sample_value("drydock_enrolments_refused_total", {"code": "join-token-refused"}) or 0.0
    for number in range(MOST + 300):
        refusals.note(request_of(number), refused, "203.0.113.9")
    assert len(refusals._waiting) == MOST + 1
    counted = REGISTRY.get_sample_value("drydock_enrolments_refused_total", {"code": "join-token-refused"})
    assert counted == before + MOST + 300


@pytest.mark.django_db
def test_what_was_counted_is_written_once() -> None:
    refusals = Refusals()
    refused = Refused("join-token-refused", Reason("join-token-used-up", count=2))
    for _ in range(3):
        refusals.note(request_of(1), refused, "203.0.113.9")
    refusals.write()
    refusals.write()
    row = RefusedEnrolment.objects.get()
    assert (row.code, row.vm_id, row.count, row.address) == ("join-token-used-up", "vm-1", 3, "203.0.113.9")
    assert "<" not in row.name


@pytest.mark.flow
@pytest.mark.real_time
def test_the_gateway_says_beforehand_whether_it_would_admit(doors: Doors) -> None:
    enrolment, client = doors.agent(FIFTH)
    enrolment.check(client)
    assert not Machine.objects.filter(vm_id=VM_IDS[FIFTH]).exists()
    enrolment.enrol(client)
    # A known machine with its key would be given another one.
    enrolment.check(client)
    url = f"{doors.gateway.url}{wire.ENROL_CHECK_PATH}"
    asked = {"join_token": "", "machine_id": VM_IDS[SIXTH], "ask": "its own", "keyed": True}
    answer = requests.post(url, json=asked, timeout=20)
    assert (answer.status_code, answer.json()["admission"]) == (202, "pending")
    assert not Admission.objects.filter(vm_id=VM_IDS[SIXTH]).exists()
    forged = {"signature": "bm90IGEgZG9jdW1lbnQ=", "intermediates": []}
    assert requests.post(url, json=asked | {"attested": forged}, timeout=20).status_code == 403
    assert doors.enrol(machine_id=VM_IDS[SIXTH], attested=forged).status_code == 403
    wait_for(lambda: RefusedEnrolment.objects.filter(vm_id=VM_IDS[SIXTH]).exists(), seconds=20, what="it is counted")
    assert RefusedEnrolment.objects.get(vm_id=VM_IDS[SIXTH]).count == 1
