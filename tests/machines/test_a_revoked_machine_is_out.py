"""Revoked machines: only an admission readmits one, and it has no vote, no order and no say in open events."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from drydock_agent import wire

from fleet.models import Admission, Entry, Machine, Order
from fleet.operations.machines import admissions, enrolment, keys
from fleet.operations.orders import queue, receipts
from tests import factories
from tests.api.conftest import caller
from tests.approvals.asking import refused
from tests.dashboard.conftest import text_of
from tests.factories import Fleet, acting, admin, announced, approver, listing, open_order, seconds, the_event
from tests.machines.credentials import identity_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def revoke(fleet: Fleet, name: str) -> None:
    keys.revoke(machine_id=fleet.agents[name].machine.pk, actor=acting(admin(), why="credential stolen"), now=fleet.now)


def asks(fleet: Fleet, vm_id: str, ask: str, address: str = "10.0.0.4") -> wire.EnrolAnswer | wire.EnrolPending:
    """Enrol as this machine, with the join token alone."""
    request = wire.EnrolRequest(join_token=fleet.join_token, machine_id=vm_id, resource_name="vm1", ask=ask)
    return enrolment.enrol(request=request, now=fleet.now, address=address)


def admit(fleet: Fleet, *rows: Admission) -> None:
    ada = User.objects.filter(username="alma").first() or admin("alma")
    admissions.admit(ids=[row.pk for row in rows], actor=acting(ada, why="clean"), now=fleet.now)


def test_a_join_token_does_not_bring_it_back(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    revoke(fleet, "vm1")
    fleet.later(5)
    # Nor does its old credential, nor another spelling of its id.
    for vm_id in (agent.machine.vm_id, f" {agent.machine.vm_id.upper()} "):
        with pytest.raises(AssertionError, match="EnrolPending"):
            fleet.enrol("vm1", vm_id=vm_id)
    assert identity_of(credential=agent.credential) is None
    assert identity_of(credential="") is None


def test_admission_admits_exactly_one_request(fleet: Fleet) -> None:
    vm_id = fleet.enrol("vm1").machine.vm_id
    revoke(fleet, "vm1")
    asks(fleet, vm_id, "thief")
    asks(fleet, vm_id, "rebuilt")
    assert refused(lambda: admit(fleet, *Admission.objects.all())).code == "validation"
    admit(fleet, Admission.objects.latest("pk"))
    # Admitting one request admits no other, not even the first one.
    assert isinstance(asks(fleet, vm_id, "thief"), wire.EnrolPending)
    assert isinstance(asks(fleet, vm_id, "third"), wire.EnrolPending)
    answer = asks(fleet, vm_id, "rebuilt")
    assert isinstance(answer, wire.EnrolAnswer)
    assert identity_of(credential=answer.credential) is not None
    assert isinstance(asks(fleet, vm_id, "thief"), wire.EnrolPending)


def test_of_an_agent_of_0_1_0_the_address_is_part_of_who_asks(fleet: Fleet) -> None:
    vm_id = fleet.enrol("vm1").machine.vm_id
    revoke(fleet, "vm1")
    asks(fleet, vm_id, "", "10.0.0.4")
    admit(fleet, Admission.objects.get())
    assert isinstance(asks(fleet, vm_id, "", "203.0.113.9"), wire.EnrolPending)
    assert isinstance(asks(fleet, vm_id, "", "10.0.0.4"), wire.EnrolAnswer)


def test_old_and_unused_admissions_expire(fleet: Fleet) -> None:
    vm_id = fleet.enrol("vm1").machine.vm_id
    asks(fleet, vm_id, "rebuilt")
    admit(fleet, Admission.objects.get())
    revoke(fleet, "vm1")
    assert isinstance(asks(fleet, vm_id, "rebuilt"), wire.EnrolPending)
    admit(fleet, Admission.objects.get())
    fleet.later(86_400)
    assert isinstance(asks(fleet, vm_id, "rebuilt"), wire.EnrolPending)


def test_what_only_it_listed_is_over_in_the_same_transaction(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    fleet.say("vm3", listing(resources=("vm1", "vm2"), not_before=fleet.now + seconds(900)))
    assert the_event().status == "SCHEDULED"
    revoke(fleet, "vm3")
    event = the_event()
    assert (event.status, event.ended_as, event.certainty, event.ended_at) == (
        "ENDED",
        "unknown",
        "inferred",
        fleet.now,
    )
    kinds = list(Entry.objects.filter(at=fleet.now).order_by("id").values_list("kind", flat=True))
    assert kinds[-2:] == ["machine_revoked", "event_ended"]
    # Time alone does not bring it back.
    fleet.later(2)
    fleet.advance()
    assert the_event().status == "ENDED"


def test_its_last_listing_holds_open_nothing_that_all_others_saw_end(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(30)
    others = [name for name in fleet.agents if name != "vm6"]
    fleet.all_say(names=others)
    fleet.heard("vm6")
    fleet.advance()
    assert the_event().status == "SCHEDULED"
    revoke(fleet, "vm6")
    assert the_event().status == "ENDED"


def test_its_lie_about_an_event_no_longer_counts(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(1)
    fleet.say("vm6", listing(status="Started", resources=("vm1",), event_type="Terminate"))
    assert (the_event().status, the_event().event_type) == ("STARTED", "Terminate")
    revoke(fleet, "vm6")
    assert (the_event().status, the_event().event_type) == ("SCHEDULED", "Freeze")


def test_its_order_goes_to_another_machine(fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    order = open_order(approval)
    name = order.machine.resource_name
    fleet.delivered(order)
    revoke(fleet, name)
    assert queue.waiting_orders(machine_ids=[order.machine_id]) == {}
    other = open_order(approval)
    assert other.machine_id != order.machine_id
    assert receipts.note_held(held=[(order.machine_id, order.pk, "look")], now=fleet.now).moved == 0
    order.refresh_from_db()
    assert order.state == "SUPERSEDED"


def test_nothing_that_it_still_sends_is_taken(fleet: Fleet) -> None:
    """A gateway may trust its credential for some seconds: the batch is judged in its own transaction."""
    announced(fleet)
    revoke(fleet, "vm1")
    agent = fleet.agents["vm1"]
    before = Entry.objects.count()
    late = agent.delivery(agent.document(listing("0A1B2C3D-0000-4000-8000-00000000000A"), at=fleet.now))
    other = fleet.agents["vm2"]
    both = fleet.record(late, other.delivery(other.document(listing(), at=fleet.now)))
    assert list(both) == [(other.machine.pk, other.spool)]
    assert Entry.objects.count() == before
    approval = fleet.approve()
    assert open_order(approval).machine.resource_name != "vm1"
    assert not Order.objects.filter(machine=agent.machine).exists()


def test_only_admins_revoke_and_admit_on_the_page(fleet: Fleet) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    agent = fleet.enrol("vm1")
    here = f"/machines/{agent.machine.pk}/"
    ada, anna = Client(), Client()
    ada.force_login(admin())
    anna.force_login(approver())
    assert "Revoke" not in text_of(anna.get(here))
    assert anna.post(f"{here}revoke/").status_code == 403
    assert "Who enrols as this machine" not in text_of(ada.get(here))
    assert ada.post(f"{here}revoke/", {"comment": "stolen"}).status_code == 302
    assert "no vote" in text_of(ada.get(here))
    assert "“stolen”" in text_of(ada.get(here))
    assert "No agent is waiting for admission" in text_of(ada.get(here))
    asks(fleet, agent.machine.vm_id, "rebuilt")
    assert "from 10.0.0.4" in text_of(ada.get(here))
    sent = {"ids": [Admission.objects.get().pk], "decision": "admit", "comment": "clean"}
    assert anna.post("/admissions/decide/", sent).status_code == 403
    assert ada.post("/admissions/decide/", sent).status_code == 302
    assert "ada admitted who asked from 10.0.0.4 as vm1. “clean”" in text_of(ada.get(here))
    assert Machine.objects.get().revoked_at is not None
    asks(fleet, agent.machine.vm_id, "rebuilt")
    assert Machine.objects.get().revoked_at is None


def test_the_api_and_the_command_line_do_the_same(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    ada = caller(factories.admin())
    here = f"machines/{agent.machine.pk}"
    assert ada.post(f"{here}/revoke/").json()["presence"] == "gone"
    asks(fleet, agent.machine.vm_id, "rebuilt")
    row = Admission.objects.get()
    ada.post("admissions/admit/", {"ids": [row.pk], "comment": "clean"})
    asks(fleet, agent.machine.vm_id, "rebuilt")
    assert Machine.objects.get().revoked_at is None
    call_command("revoke_machine", agent.machine.vm_id.upper(), why="stolen")
    assert Machine.objects.get().revoked_at is not None
    asks(fleet, agent.machine.vm_id, "rebuilt")
    row, out = Admission.objects.get(), StringIO()
    call_command("admit_machine", stdout=out)
    assert out.getvalue().startswith(f"{row.pk}  revoked  vm1  {agent.machine.vm_id}  from 10.0.0.4")
    call_command("admit_machine", str(row.pk), why="clean", stdout=StringIO())
    asks(fleet, agent.machine.vm_id, "rebuilt")
    assert Machine.objects.get().revoked_at is None
    with pytest.raises(CommandError, match="No agent waits"):
        call_command("admit_machine", str(row.pk))
