"""Enrolment as a known machine: the caller proves it by its credential, or waits for an administrator."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from drydock_agent import wire

from fleet.domain.secrets import hash_of
from fleet.models import Admission, Machine, ScheduledEvent
from fleet.operations.machines import admissions, enrolment, keys
from fleet.operations.machines.admissions import MOST_OF_A_MACHINE
from fleet.projections import blind_spots
from tests import factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries, refused
from tests.dashboard.conftest import text_of
from tests.factories import Agent, Fleet, acting, admin, announced, approver, open_order
from tests.machines.credentials import identity_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def asks(fleet: Fleet, agent: Agent, *, ask: str = "thief", **fields: Any) -> wire.EnrolAnswer | wire.EnrolPending:
    """Enrol as this machine, with the join token alone."""
    request = wire.EnrolRequest(
        join_token=fleet.join_token, machine_id=agent.machine.vm_id, resource_name="vm2", ask=ask
    )
    return enrolment.enrol(request=replace(request, **fields), now=fleet.now, address="203.0.113.9")


def admit(fleet: Fleet, *ids: int) -> None:
    admissions.admit(ids=ids, actor=acting(admin()), now=fleet.now)


def test_join_token_alone_does_not_take_over_a_machine(fleet: Fleet) -> None:
    announced(fleet)
    agent = fleet.agents["vm1"]
    order = open_order(fleet.approve())
    before = Machine.objects.get(pk=agent.machine.pk)
    answer = asks(fleet, agent)
    assert isinstance(answer, wire.EnrolPending)
    assert (answer.admission, answer.retry_after) == ("pending", 30.0)
    after = Machine.objects.get(pk=agent.machine.pk)
    assert (after.credential_hash, after.resource_name, after.enrolled_at) == (
        before.credential_hash,
        "vm1",
        before.enrolled_at,
    )
    assert identity_of(credential=agent.credential) is not None
    assert Machine.objects.count() == 6
    assert ScheduledEvent.objects.get().status == "SCHEDULED"
    # Its order is answered by itself, and a thief has nothing to answer with.
    fleet.receipt(order)
    (line,) = entries("machine_waits")
    assert (line.machine_id, line.data["address"]) == (agent.machine.pk, "203.0.113.9")
    assert asks(fleet, agent, credential="agent_guessed") == answer
    assert len(entries("machine_waits")) == 1


def test_with_its_credential_it_enrols_again_without_a_join_token(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    answer = asks(fleet, agent, credential=agent.credential, join_token="", resource_name="vm1")
    assert isinstance(answer, wire.EnrolAnswer)
    assert identity_of(credential=agent.credential) is None
    assert identity_of(credential=answer.credential) is not None
    # Once the new one was used, the old one proves nothing any more.
    keys.mark_used([hash_of(answer.credential)])
    assert refused(lambda: asks(fleet, agent, credential=agent.credential, join_token="")).code == "join-token-refused"


def test_only_who_was_admitted_gets_in_and_the_old_credential_ends(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    asks(fleet, agent)
    asks(fleet, agent, ask="rebuilt", resource_name="vm1")
    thief, rebuilt = Admission.objects.order_by("pk")
    admit(fleet, rebuilt.pk)
    assert identity_of(credential=agent.credential) is not None
    assert isinstance(asks(fleet, agent), wire.EnrolPending)
    answer = asks(fleet, agent, ask="rebuilt", resource_name="vm1")
    assert isinstance(answer, wire.EnrolAnswer)
    keys.mark_used([hash_of(answer.credential)])
    assert identity_of(credential=agent.credential) is None
    assert not Admission.objects.exists()
    assert isinstance(asks(fleet, agent), wire.EnrolPending)
    assert isinstance(asks(fleet, agent, ask="rebuilt"), wire.EnrolPending)
    assert thief.pk != Admission.objects.earliest("pk").pk


def test_admitting_lets_a_revoked_machine_back_in(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    keys.revoke(machine_id=agent.machine.pk, actor=acting(admin()), now=fleet.now)
    assert isinstance(asks(fleet, agent, credential=agent.credential), wire.EnrolPending)
    row = Admission.objects.get()
    assert row.revoked
    admit(fleet, row.pk)
    assert Machine.objects.get().revoked_at is not None
    answer = asks(fleet, agent)
    assert isinstance(answer, wire.EnrolAnswer)
    assert Machine.objects.get().revoked_at is None


def test_those_who_wait_are_bounded_and_forgotten(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    for number in range(MOST_OF_A_MACHINE):
        asks(fleet, agent, ask=f"thief {number}")
    assert refused(lambda: asks(fleet, agent, ask="one more")).code == "admissions-full"
    fleet.now += timedelta(days=2)
    asks(fleet, agent, ask="one more")
    assert Admission.objects.count() == 1


def test_waiting_admission_is_a_blind_spot_until_it_is_decided(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    asks(fleet, agent)
    found = [spot for spot in blind_spots.overview(now=fleet.now).spots if spot.code == "waits-for-admission"]
    assert [spot.names for spot in found] == [("vm1",)]
    admissions.refuse(ids=[Admission.objects.get().pk], actor=acting(admin()), now=fleet.now)
    assert not [spot for spot in blind_spots.overview(now=fleet.now).spots if spot.code == "waits-for-admission"]
    assert len(entries("admission_refused")) == 1


def test_only_admins_admit_many_at_once_on_the_page(fleet: Fleet) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    for name in ("vm1", "vm2"):
        asks(fleet, fleet.enrol(name), ask="")
    rows = [str(row.pk) for row in Admission.objects.all()]
    ada, anna = Client(), Client()
    ada.force_login(admin())
    anna.force_login(approver())
    assert "203.0.113.9" in text_of(anna.get("/admissions/"))
    assert "an agent of 0.1.0" in text_of(anna.get("/admissions/"))
    assert anna.post("/admissions/decide/", {"ids": rows, "decision": "admit"}).status_code == 403
    assert ada.post("/admissions/decide/", {"decision": "admit"}).status_code == 422
    assert ada.post("/admissions/decide/", {"ids": ["99999999"], "decision": "admit"}).status_code == 404
    assert ada.post("/admissions/decide/", {"ids": rows, "decision": "admit"}).status_code == 302
    assert Admission.objects.filter(admitted_by="ada").count() == 2
    assert "admitted by ada" in text_of(ada.get("/admissions/"))


def test_the_api_lists_admits_and_refuses(fleet: Fleet) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    for name in ("vm1", "vm2"):
        asks(fleet, fleet.enrol(name))
    ada, otto = caller(factories.admin()), caller(factories.operator())
    second, first = otto.get("admissions/").json()["results"]
    assert (first["name"], first["bound"], first["revoked"], first["admitted_at"]) == ("vm1", True, False, None)
    assert otto.post("admissions/admit/", {"ids": [first["id"]]}).status_code == 403
    problem(ada.post("admissions/admit/", {"ids": [first["id"], 99999999]}), 404, "not-found")
    assert not Admission.objects.filter(admitted_at__isnull=False).exists()
    ada.post("admissions/admit/", {"ids": [first["id"]]})
    (left,) = ada.post("admissions/refuse/", {"ids": [second["id"]]}).json()["results"]
    assert (left["id"], left["admitted_by"]) == (first["id"], "ada")


def test_a_thousand_who_wait_come_fifty_a_page_and_are_found(fleet: Fleet) -> None:
    """A flood of requests hides no other: users page through the list and filter it by evidence."""
    fleet = Fleet(now=datetime.now(UTC))
    asks(fleet, fleet.enrol("vm1"), ask="rebuilt", resource_name="vm1")
    made = {"first_requested_at": fleet.now, "last_requested_at": fleet.now, "address": "198.51.100.7"}
    Admission.objects.bulk_create(
        Admission(vm_id=f"flood-{number}", ask_hash=str(number), resource_name=f"flood-{number}", **made)
        for number in range(999)
    )
    Admission.objects.filter(vm_id="flood-7").update(attested="a subscription")
    client = Client()
    client.force_login(admin())
    first = client.get("/admissions/")
    assert first.content.decode().count('name="ids"') == 50
    second = client.get(f"/admissions/{first.context['older']}")
    assert second.status_code == 200 and second.content.decode().count('name="ids"') == 50
    for query, names in {
        "who=known": ["vm1"],
        "who=attested": ["flood-7"],
        "who=revoked": [],
        "q=flood-77&who=unknown": [f"flood-{number}" for number in (779, *range(778, 769, -1), 77)],
        "q=203.0.113": ["vm1"],
        "q=%27%3B--": [],
    }.items():
        shown = client.get(f"/admissions/?{query}").context["rows"]
        assert [row.resource_name for row in shown] == names, query
