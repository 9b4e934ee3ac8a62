"""Enrolment as a known or revoked machine: its credential proves it, or an administrator admits that request."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from drydock_agent import wire

from fleet.domain.secrets import hash_of
from fleet.models import Admission, Approval, AvailabilitySet, Entry, Machine, Order, ScheduledEvent
from fleet.operations.machines import admissions, decommission, enrolment, keys
from fleet.operations.machines.admissions import MOST_OF_A_MACHINE
from fleet.operations.orders import queue
from fleet.projections import blind_spots
from tests import accounts, factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries, refused
from tests.dashboard.conftest import text_of
from tests.factories import Agent, Fleet, acting, admin, approver, listing, open_order, seconds, the_event, the_set
from tests.machines.newcomers import granted, identity_of, waits
from tests.words import text

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(fleet: Fleet) -> Agent:
    return fleet.enrol("vm1")


def asks(
    fleet: Fleet, agent: Agent, ask: str = "thief", *, address: str = "203.0.113.9", **fields: Any
) -> wire.EnrolAnswer | wire.EnrolPending:
    """Enrol as this machine, with the join token alone."""
    usual = {"join_token": fleet.join_token, "machine_id": agent.machine.vm_id, "resource_name": "vm1", "ask": ask}
    return enrolment.enrol(request=wire.EnrolRequest(**(usual | fields)), now=fleet.now, address=address)


def admit(fleet: Fleet, *ids: int) -> None:
    admissions.admit(ids=ids, actor=acting(admin()), now=fleet.now)


def test_join_token_alone_does_not_take_over_a_machine(fleet: Fleet, event: ScheduledEvent) -> None:
    agent = fleet.agents["vm1"]
    order = open_order(fleet.approve())
    before = Machine.objects.get(pk=agent.machine.pk)
    answer = asks(fleet, agent, resource_name="vm2")
    assert (answer.admission, answer.retry_after) == ("pending", 30.0)
    after = Machine.objects.get(pk=agent.machine.pk)
    for column in ("credential_hash", "resource_name", "enrolled_at"):
        assert getattr(after, column) == getattr(before, column), column
    assert identity_of(credential=agent.credential) is not None
    assert Machine.objects.count() == 6
    assert ScheduledEvent.objects.get().status == "SCHEDULED"
    # Its order is answered by itself, and a thief has nothing to answer with.
    fleet.receipt(order)
    (line,) = entries("machine_waits")
    assert (line.machine_id, line.data["address"]) == (agent.machine.pk, "203.0.113.9")
    assert asks(fleet, agent, resource_name="vm2", credential="agent_guessed") == answer
    assert len(entries("machine_waits")) == 1


def test_with_its_credential_it_enrols_again_without_a_join_token(fleet: Fleet, agent: Agent) -> None:
    answer = granted(asks(fleet, agent, credential=agent.credential, join_token=""))
    assert identity_of(credential=agent.credential) is None
    assert identity_of(credential=answer.credential) is not None
    # Once the new one was used, the old one proves nothing any more.
    keys.mark_used([hash_of(answer.credential)])
    assert refused(lambda: asks(fleet, agent, credential=agent.credential, join_token="")).code == "join-token-refused"


def test_only_who_was_admitted_gets_in_and_the_old_credential_ends(fleet: Fleet, agent: Agent) -> None:
    asks(fleet, agent)
    asks(fleet, agent, "rebuilt")
    thief, rebuilt = Admission.objects.order_by("pk")
    assert refused(lambda: admit(fleet, thief.pk, rebuilt.pk)).code == "validation"
    admit(fleet, rebuilt.pk)
    assert identity_of(credential=agent.credential) is not None
    assert waits(asks(fleet, agent))
    answer = granted(asks(fleet, agent, "rebuilt"))
    keys.mark_used([hash_of(answer.credential)])
    assert identity_of(credential=agent.credential) is None
    assert not Admission.objects.exists()
    assert waits(asks(fleet, agent))
    assert waits(asks(fleet, agent, "rebuilt"))
    assert thief.pk != Admission.objects.earliest("pk").pk


def test_only_admitting_lets_a_revoked_machine_back_in(fleet: Fleet, agent: Agent) -> None:
    revoke(fleet, "vm1")
    assert identity_of(credential=agent.credential) is identity_of(credential="") is None
    # Neither its join token and old credential nor another spelling of its id.
    for vm_id in (agent.machine.vm_id, f" {agent.machine.vm_id.upper()} "):
        assert waits(asks(fleet, agent, machine_id=vm_id, credential=agent.credential))
    row = Admission.objects.get()
    assert row.revoked
    admit(fleet, row.pk)
    assert Machine.objects.get().revoked_at is not None
    granted(asks(fleet, agent))
    assert Machine.objects.get().revoked_at is None


def test_those_who_wait_are_bounded_and_forgotten(fleet: Fleet, agent: Agent) -> None:
    for number in range(MOST_OF_A_MACHINE):
        asks(fleet, agent, f"thief {number}")
    assert refused(lambda: asks(fleet, agent, "one more")).code == "admissions-full"
    fleet.now += timedelta(days=2)
    asks(fleet, agent, "one more")
    assert Admission.objects.count() == 1


def test_waiting_admission_is_a_blind_spot_until_it_is_decided(fleet: Fleet, agent: Agent) -> None:
    asks(fleet, agent)

    def spots() -> list[tuple[str, ...]]:
        shown = blind_spots.overview(now=fleet.now).spots
        return [spot.names for spot in shown if spot.code == "waits-for-admission"]

    assert spots() == [("vm1",)]
    admissions.refuse(ids=[Admission.objects.get().pk], actor=acting(admin()), now=fleet.now)
    assert spots() == []
    assert len(entries("admission_refused")) == 1


def test_many_are_admitted_at_once_on_the_page(ada: Client, anna: Client) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    for name in ("vm1", "vm2"):
        asks(fleet, fleet.enrol(name), "")
    rows = [str(row.pk) for row in Admission.objects.all()]
    assert "203.0.113.9" in text_of(anna.get("/admissions/"))
    assert "agent of release 0.1.0" in text_of(anna.get("/admissions/"))
    assert ada.post("/admissions/decide/", {"decision": "admit"}).status_code == 422
    assert ada.post("/admissions/decide/", {"ids": ["99999999"], "decision": "admit"}).status_code == 404
    assert ada.post("/admissions/decide/", {"ids": rows, "decision": "admit"}).status_code == 302
    assert Admission.objects.filter(admitted_by="ada").count() == 2
    assert "admitted by ada" in text_of(ada.get("/admissions/"))


def test_the_api_lists_admits_and_refuses(db: None) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    for name in ("vm1", "vm2"):
        asks(fleet, fleet.enrol(name))
    ada, otto = caller(factories.admin()), caller(factories.operator())
    second, first = otto.get("admissions/").json()["results"]
    assert (first["name"], first["bound"], first["revoked"], first["admitted_at"]) == ("vm1", True, False, None)
    problem(ada.post("admissions/admit/", {"ids": [first["id"], 99999999]}), 404, "not-found")
    assert not Admission.objects.filter(admitted_at__isnull=False).exists()
    ada.post("admissions/admit/", {"ids": [first["id"]]})
    (left,) = ada.post("admissions/refuse/", {"ids": [second["id"]]}).json()["results"]
    assert (left["id"], left["admitted_by"]) == (first["id"], "ada")


def test_a_thousand_who_wait_come_fifty_a_page_and_are_found(ada: Client) -> None:
    """A flood of requests hides no other: users page through the list and filter it by evidence."""
    fleet = Fleet(now=datetime.now(UTC))
    asks(fleet, fleet.enrol("vm1"), "rebuilt")
    made = {"first_requested_at": fleet.now, "last_requested_at": fleet.now, "address": "198.51.100.7"}
    Admission.objects.bulk_create(
        Admission(vm_id=f"flood-{number}", ask_hash=str(number), resource_name=f"flood-{number}", **made)
        for number in range(999)
    )
    Admission.objects.filter(vm_id="flood-7").update(attested="a subscription")
    first = ada.get("/admissions/")
    assert first.content.decode().count('name="ids"') == 50
    second = ada.get(f"/admissions/{first.context['older']}")
    assert second.status_code == 200 and second.content.decode().count('name="ids"') == 50
    for query, names in {
        "who=known": ["vm1"],
        "who=attested": ["flood-7"],
        "who=revoked": [],
        "q=flood-77&who=unknown": [f"flood-{number}" for number in (779, *range(778, 769, -1), 77)],
        "q=203.0.113": ["vm1"],
        "q=%27%3B--": [],
    }.items():
        shown = ada.get(f"/admissions/?{query}").context["rows"]
        assert [row.resource_name for row in shown] == names, query


def revoke(fleet: Fleet, name: str) -> None:
    decommission.revoke(
        machine_id=fleet.agents[name].machine.pk, actor=acting(admin(), why="credential stolen"), now=fleet.now
    )


def test_of_an_agent_of_0_1_0_the_address_is_part_of_who_asks(fleet: Fleet, agent: Agent) -> None:
    revoke(fleet, "vm1")
    asks(fleet, agent, "")
    admit(fleet, Admission.objects.get().pk)
    assert waits(asks(fleet, agent, "", address="198.51.100.7"))
    granted(asks(fleet, agent, ""))


def test_old_and_unused_admissions_expire(fleet: Fleet, agent: Agent) -> None:
    asks(fleet, agent, "rebuilt")
    admit(fleet, Admission.objects.get().pk)
    revoke(fleet, "vm1")
    assert waits(asks(fleet, agent, "rebuilt"))
    admit(fleet, Admission.objects.get().pk)
    fleet.later(86_400)
    assert waits(asks(fleet, agent, "rebuilt"))


def test_what_only_it_listed_is_over_in_the_same_transaction(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    fleet.say("vm3", listing(resources=("vm1", "vm2"), not_before=fleet.now + seconds(900)))
    assert the_event().status == "SCHEDULED"
    revoke(fleet, "vm3")
    event = the_event()
    expected = ("ENDED", "unknown", "inferred", fleet.now)
    assert (event.status, event.ended_as, event.certainty, event.ended_at) == expected
    kinds = list(Entry.objects.filter(at=fleet.now).order_by("id").values_list("kind", flat=True))
    assert kinds[-2:] == ["machine_revoked", "event_ended"]
    # Time alone does not bring it back.
    fleet.later(2)
    fleet.advance()
    assert the_event().status == "ENDED"


def test_its_last_listing_holds_open_nothing_that_all_others_saw_end(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.later(30)
    others = [name for name in fleet.agents if name != "vm6"]
    fleet.all_say(names=others)
    fleet.heard("vm6")
    fleet.advance()
    assert the_event().status == "SCHEDULED"
    revoke(fleet, "vm6")
    assert the_event().status == "ENDED"


def test_its_lie_about_an_event_no_longer_counts(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.later(1)
    fleet.say("vm6", listing(status="Started", resources=("vm1",), event_type="Terminate"))
    assert (the_event().status, the_event().event_type) == ("STARTED", "Terminate")
    revoke(fleet, "vm6")
    assert (the_event().status, the_event().event_type) == ("SCHEDULED", "Freeze")


def test_its_order_goes_to_another_machine(fleet: Fleet, approval: Approval) -> None:
    order = open_order(approval)
    name = order.machine.resource_name
    fleet.delivered(order)
    revoke(fleet, name)
    assert queue.waiting_orders(machine_ids=[order.machine_id]) == {}
    other = open_order(approval)
    assert other.machine_id != order.machine_id
    assert queue.note_held(held=[(order.machine_id, order.pk, "look")], now=fleet.now).moved == 0
    order.refresh_from_db()
    assert order.state == "SUPERSEDED"


def test_nothing_that_it_still_sends_is_taken(fleet: Fleet, event: ScheduledEvent) -> None:
    """A gateway may trust its credential for some seconds: the batch is judged in its own transaction."""
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


def test_admins_revoke_and_admit_on_the_page(ada: Client, anna: Client) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    agent = fleet.enrol("vm1")
    here = f"/machines/{agent.machine.pk}/"
    assert "Revoke" not in text_of(anna.get(here))
    assert "Requests to enrol as this machine" not in text_of(ada.get(here))
    assert ada.post(f"{here}revoke/", {"comment": "stolen"}).status_code == 302
    assert "do not count" in text_of(ada.get(here))
    assert "“stolen”" in text_of(ada.get(here))
    assert "No agent is waiting for admission" in text_of(ada.get(here))
    asks(fleet, agent, "rebuilt")
    assert "from 203.0.113.9" in text_of(ada.get(here))
    sent = {"ids": [Admission.objects.get().pk], "decision": "admit", "comment": "clean"}
    assert ada.post("/admissions/decide/", sent).status_code == 302
    assert "ada admitted the request from 203.0.113.9 to enrol as vm1. “clean”" in text_of(ada.get(here))
    assert Machine.objects.get().revoked_at is not None
    asks(fleet, agent, "rebuilt")
    assert Machine.objects.get().revoked_at is None


def test_the_api_and_the_command_line_do_the_same(fleet: Fleet, agent: Agent) -> None:
    ada = caller(factories.admin())
    here = f"machines/{agent.machine.pk}"
    assert ada.post(f"{here}/revoke/").json()["presence"] == "gone"
    asks(fleet, agent, "rebuilt")
    row = Admission.objects.get()
    ada.post("admissions/admit/", {"ids": [row.pk], "comment": "clean"})
    asks(fleet, agent, "rebuilt")
    assert Machine.objects.get().revoked_at is None
    call_command("revoke_machine", agent.machine.vm_id.upper(), why="stolen")
    assert Machine.objects.get().revoked_at is not None
    asks(fleet, agent, "rebuilt")
    row, out = Admission.objects.get(), StringIO()
    call_command("admit_machine", stdout=out)
    assert out.getvalue().startswith(f"{row.pk}  revoked  vm1  {agent.machine.vm_id}  from 203.0.113.9")
    call_command("admit_machine", agent.machine.vm_id.upper(), why="clean", stdout=StringIO())
    asks(fleet, agent, "rebuilt")
    assert Machine.objects.get().revoked_at is None
    for unknown in (agent.machine.vm_id, str(row.pk)):
        with pytest.raises(CommandError, match="No agent waits"):
            call_command("admit_machine", unknown)


def test_of_two_agents_with_one_vm_id_the_command_admits_the_listed_request(fleet: Fleet, agent: Agent) -> None:
    for secret in ("rebuilt", "intruder"):
        asks(fleet, agent, secret)
    first = Admission.objects.order_by("pk")[0]
    with pytest.raises(CommandError, match="Several of these"):
        call_command("admit_machine", agent.machine.vm_id)
    assert not Admission.objects.exclude(admitted_at=None).exists()
    call_command("admit_machine", str(first.pk), stdout=StringIO())
    assert Admission.objects.get(admitted_at__isnull=False) == first


# For a limited time the rule of a set admits machines that lost their credential, and records each.

DAY = timedelta(days=1)


@pytest.fixture
def web() -> Fleet:
    """Two machines of the set web, one of them silent since, and a join token that confines to it."""
    web = Fleet()
    web.enrol("vm1")
    web.enrol("vm2")
    use_token(web, "web")
    web.later(61)
    web.heard("vm2")
    return web


def use_token(web: Fleet, name: str) -> None:
    _, web.join_token = accounts.join_token(comment="", expires_in=9 * DAY, now=web.now, set_name=name)


def allow(web: Fleet, until: timedelta | None = DAY) -> None:
    actor = acting(factories.admin("alma"), why="rebuilt")
    at = web.now + until if until is not None else None
    admissions.set_rule(set_id=the_set().pk, until=at, actor=actor, now=web.now)


def comes_back(web: Fleet, name: str = "vm1") -> bool:
    """Return whether a caller who knows this machine's vmId is admitted as it."""
    return not waits(asks(web, web.agents[name], "rebuilt", address="10.0.0.4", resource_name=name))


def test_while_the_rule_lasts_who_comes_back_needs_no_person(web: Fleet) -> None:
    assert not comes_back(web)
    allow(web)
    assert comes_back(web)
    assert identity_of(credential=web.agents["vm1"].credential) is None
    # No request waits, and the timeline records the admission.
    assert not Admission.objects.exists()
    (line,) = entries("machine_admitted")
    assert "vm1" in text(line) and "10.0.0.4" in text(line) and "automatically" in text(line)
    web.later(DAY.total_seconds())
    assert not comes_back(web)


def test_who_is_live_does_not_come_back(web: Fleet) -> None:
    allow(web)
    assert not comes_back(web, "vm2")
    assert identity_of(credential=web.agents["vm2"].credential) is not None
    web.later(61)
    assert comes_back(web, "vm2")


def test_a_revoked_machine_is_admitted_by_a_person_alone(web: Fleet) -> None:
    allow(web)
    revoke(web, "vm1")
    assert not comes_back(web)


@pytest.mark.parametrize("name", ["", "db", "scale_set:web"])
def test_only_a_join_token_of_this_set_admits_a_machine(web: Fleet, name: str) -> None:
    allow(web)
    use_token(web, name)
    assert not comes_back(web)


def test_machines_of_other_sets_are_not_admitted(web: Fleet) -> None:
    allow(web)
    use_token(web, "")
    web.enrol("db1", availability_set="db")
    use_token(web, "web")
    web.later(61)
    assert not comes_back(web, "db1")


def test_admin_enables_readmission_for_a_week_at_most_and_disables_it(web: Fleet) -> None:
    def refusal(**fields: object) -> str:
        asked = {"set_id": the_set().pk, "until": web.now + DAY, "actor": acting(admin()), "now": web.now}
        return refused(lambda: admissions.set_rule(**{**asked, **fields})).code  # type: ignore[arg-type]

    assert refusal(actor=acting(approver())) == "not-permitted"
    assert refusal(until=web.now) == refusal(until=web.now + 8 * DAY) == "validation"
    assert refusal(set_id=999_999) == "not-found"
    allow(web)
    allow(web, None)
    allow(web, None)
    assert not comes_back(web)
    first, last = entries("set_changed")
    assert (first.before, first.why) == ({"admits_until": None}, "rebuilt")
    assert "are admitted automatically until 2022-04-12" in text(first)
    assert text(last) == (
        "alma specified that machines that enrol again without their credential wait for admission. “rebuilt”"
    )


def test_it_is_a_blind_spot_as_long_as_it_lasts(web: Fleet) -> None:
    def shown() -> list[str]:
        return [spot.code for spot in blind_spots.overview(now=web.now).spots if spot.code == "admits-by-itself"]

    assert shown() == []
    allow(web)
    assert shown() == ["admits-by-itself"]
    web.later(DAY.total_seconds())
    assert shown() == []


def test_the_page_and_the_api_say_it_and_show_it(ada: Client, anna: Client) -> None:
    web = Fleet(now=datetime.now(UTC))
    web.enrol("vm1")
    here = f"/sets/{the_set().pk}/"
    assert ada.post(f"{here}admissions/", {"hours": "5"}).status_code == 422
    seen = text_of(ada.post(f"{here}admissions/", {"hours": "4", "comment": "rebuilt"}, follow=True))
    assert "are admitted automatically until" in seen
    for page in (here, "/sets/"):
        assert "admits machines automatically" in text_of(anna.get(page))
    assert ada.post(f"{here}admissions/", {"hours": "0"}).status_code == 302
    assert "admits machines automatically" not in text_of(anna.get("/sets/"))
    api, until = caller(factories.admin("alma")), web.now + seconds(3600)
    row = api.post(f"sets/{the_set().pk}/admissions/", {"until": until.isoformat(), "comment": "rebuilt"}).json()
    assert row["admits_until"] is not None
    assert api.post(f"sets/{the_set().pk}/admissions/", {"until": None}).json()["admits_until"] is None
    problem(api.post("sets/999999/admissions/", {"until": None}), 404, "not-found")
    assert AvailabilitySet.objects.get().admits_until is None
