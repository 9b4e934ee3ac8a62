"""Requirements of a set: an attacker cannot lower them. Tried are a token, a page without a proof, one person where two
are required, merging, moving, and a machine that states another set while its event is open.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from drydock_agent import wire

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.approvals.guards import Need, guards
from fleet.domain.reasons import Refused
from fleet.domain.requirements import Requirements
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Entry, ScheduledEvent
from fleet.models.facts.events import load_facts
from fleet.notifications.notification_types import NotificationType, type_of_entry
from fleet.operations.control import one_person
from fleet.operations.sets import changes
from tests import accounts, factories
from tests.api.conftest import caller, in_person, problem
from tests.factories import EVENT, Fleet, after, listing, the_event, the_set

pytestmark = pytest.mark.django_db
STRICT: dict[str, Any] = {"second_person": True, "step_up": True, "min_live": 2}
LOWER: list[dict[str, Any]] = [
    {"second_person": False}, {"step_up": False}, {"exempt_service_accounts": True}, {"min_live": 0},
    {"min_live": 1}, {"service": ""}, {"service": "other"},
]  # fmt: skip


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    factories.announced(fleet)
    return fleet


def strict(**columns: Any) -> AvailabilitySet:
    AvailabilitySet.objects.filter(pk=the_set().pk).update(**(columns or {**STRICT, "service": "shop"}))
    return the_set()


def proved(user: User) -> Actor:
    return factories.acting(user, proved=True)


def restate(fleet: Fleet, name: str, stated: str) -> None:
    """The machine enrols again, and says that it is in another set."""
    vm_id = fleet.agents[name].machine.vm_id
    fleet.enrol(name, availability_set=stated, vm_id=vm_id)


def restate_by_report(fleet: Fleet, name: str, stated: str) -> None:
    """The machine tells of itself, and says that it is in another set."""
    compute = after(fleet.agents[name].machine).compute
    fleet.report(name, wire.InstanceData(resource_name=name, availability_set=stated, compute=compute))


def lines(kind: EntryKind = EntryKind.SET_LOWERED) -> list[str]:
    return [row.data["did"] for row in Entry.objects.filter(kind=kind.value).order_by("pk")]


def required(fleet: Fleet) -> tuple[bool, bool]:
    facts = load_facts([the_event().pk], now=fleet.now)[the_event().pk]
    return facts.second_person, facts.step_up


def test_no_token_lowers_a_requirement(fleet: Fleet) -> None:
    row = strict()
    for who in (caller(factories.admin()), caller(factories.admin("olga"), "read", "admin")):
        for body in LOWER:
            problem(who("PATCH", f"sets/{row.pk}/", body), 403, "not-permitted")
            # Nor in the same call as a permitted change.
            problem(who("PATCH", f"sets/{row.pk}/", {**body, "second_person": False}), 403, "not-permitted")
    assert Requirements.of(the_set()) == Requirements.of(row)
    assert the_set().service == "shop"
    assert lines() == []


def test_a_token_raises_them(fleet: Fleet) -> None:
    row = the_set()
    assert caller(factories.admin())("PATCH", f"sets/{row.pk}/", STRICT).status_code == 200
    assert Requirements.of(the_set()) == Requirements(**STRICT)


@pytest.mark.parametrize("body", LOWER[1:])
def test_a_person_proves_who_they_are_before_a_requirement_is_lowered(fleet: Fleet, body: dict[str, Any]) -> None:
    row, ada = strict(step_up=True, min_live=2, service="shop"), factories.admin()
    session = in_person(ada)
    unproved = session.client.session
    unproved.pop("drydock_stepped_up")
    unproved.save()
    said = problem(session("PATCH", f"sets/{row.pk}/", body), 409, "guarded")
    assert [guard["needs"] for guard in said["guards"]] == ["step-up"]
    assert Requirements.of(the_set()) == Requirements.of(row)
    assert in_person(ada)("PATCH", f"sets/{row.pk}/", body).status_code == 200
    assert {name: getattr(the_set(), name) or 0 for name in body} == {name: value or 0 for name, value in body.items()}
    assert lines() == ["lowered"]
    assert type_of_entry(EntryKind.SET_LOWERED, {}) is NotificationType.SET_LOWERED


def test_the_page_asks_for_the_proof_in_its_place(fleet: Fleet) -> None:
    row, page = strict(step_up=True), Client()
    page.force_login(factories.admin())
    assert page.post(f"/sets/{row.pk}/step-up/", {}).status_code == 401
    assert the_set().step_up
    assert in_person(User.objects.get(username="ada")).client.post(f"/sets/{row.pk}/step-up/", {}).status_code == 302
    assert not the_set().step_up


def test_where_two_persons_are_required_two_lower_it(fleet: Fleet) -> None:
    row, ada, olga = strict(), factories.admin(), factories.admin("olga")
    wanted = {"second_person": False, "min_live": 1}
    first = in_person(ada)("PATCH", f"sets/{row.pk}/", wanted)
    assert first.json()["second_person"] is True
    assert any("administrator" in warning for warning in first.json()["warnings"])
    # The same one again, and another one who wants something else.
    assert in_person(ada)("PATCH", f"sets/{row.pk}/", wanted).json()["second_person"] is True
    assert lines() == ["proposed"]
    problem(caller(olga)("PATCH", f"sets/{row.pk}/", wanted), 403, "not-permitted")
    assert in_person(olga)("PATCH", f"sets/{row.pk}/", {"second_person": False}).json()["second_person"] is True
    assert in_person(ada)("PATCH", f"sets/{row.pk}/", {"second_person": False}).json()["second_person"] is False
    assert the_set().min_live == 2
    assert lines() == ["proposed", "proposed", "lowered"]


def test_the_other_one_is_not_an_account_that_the_first_one_holds(fleet: Fleet) -> None:
    row, ada = strict(), factories.admin()
    accounts.make_person(username="puppet", group="admin", now=fleet.now, actor=factories.acting(ada))
    puppet = User.objects.get(username="puppet")
    factories.change_set(set_id=row.pk, actor=proved(ada), now=fleet.now, second_person=False)
    with pytest.raises(Refused) as error:
        factories.change_set(set_id=row.pk, actor=proved(puppet), now=fleet.now, second_person=False)
    assert getattr(error.value.reason, "code", "") == "consent-of-held"
    assert the_set().second_person


def test_what_one_wanted_does_not_wait_for_ever(fleet: Fleet) -> None:
    row, ada, olga = strict(), factories.admin(), factories.admin("olga")
    factories.change_set(set_id=row.pk, actor=proved(ada), now=fleet.now, second_person=False)
    late = fleet.now + timedelta(days=1, seconds=1)
    factories.change_set(set_id=row.pk, actor=proved(olga), now=late, second_person=False)
    assert the_set().second_person
    # Nor does the wish of a former administrator count.
    accounts.change_person(username="olga", group="viewer", now=late)
    factories.change_set(set_id=row.pk, actor=proved(ada), now=late, second_person=False)
    assert the_set().second_person
    assert one_person(olga, ada, at=late) is None


def test_command_line_lowers_a_requirement_alone(fleet: Fleet) -> None:
    factories.change_set(set_id=strict().pk, actor=COMMAND_LINE, now=fleet.now, second_person=False)
    assert not the_set().second_person
    assert lines() == ["lowered"]


def test_an_open_event_keeps_what_was_required_until_it_is_over(fleet: Fleet) -> None:
    row = strict(step_up=True, second_person=True)
    factories.change_set(set_id=row.pk, actor=COMMAND_LINE, now=fleet.now, second_person=False, step_up=False)
    assert required(fleet) == (True, True)
    other = "0A1B2C3D-0000-4000-8000-00000000000A"
    fleet.say("vm1", listing(), listing(other, resources=("vm1",)))
    later = ScheduledEvent.objects.get(event_id=other)
    facts = load_facts([later.pk], now=fleet.now)[later.pk]
    assert (facts.second_person, facts.step_up) == (False, False)


def test_merging_keeps_the_stricter_of_both(fleet: Fleet) -> None:
    lax = fleet.enrol("d1", availability_set="dock").machine.availability_set
    row = strict()
    caller(factories.admin()).post(f"sets/{row.pk}/merge/", {"into": lax.pk})
    lax.refresh_from_db()
    assert Requirements.of(lax) == Requirements(**STRICT)
    assert the_event().availability_set == lax
    assert required(fleet) == (True, True)


def test_merged_set_exempts_no_service_account_that_one_of_both_requires() -> None:
    asks, exempting = Requirements(step_up=True), Requirements(step_up=True, exempt_service_accounts=True)
    assert asks.stricter(exempting) == exempting.stricter(asks) == asks
    assert exempting.stricter(Requirements()) == exempting
    assert asks.lowered(exempting) == ["exempt_service_accounts"]


def test_a_machine_that_a_person_moves_takes_the_requirement_along(fleet: Fleet) -> None:
    lax = fleet.enrol("d1", availability_set="dock").machine.availability_set
    strict()
    admin = factories.acting(factories.admin(), why="rebuilt")
    for name, agent in fleet.agents.items():
        if name != "d1":
            changes.move_machine(machine_id=agent.machine.pk, set_id=lax.pk, actor=admin, now=fleet.now)
    assert (after(lax).second_person, lax.step_up, lax.min_live) == (True, True, None)
    assert the_event().availability_set == lax
    assert required(fleet) == (True, True)


@pytest.mark.parametrize("how", [restate, restate_by_report])
def test_a_machine_that_states_another_set_takes_its_event_nowhere_easier(how: Any) -> None:
    fleet = Fleet()
    fleet.enrol_set(1)
    reboot(fleet)
    row = strict(second_person=True, step_up=True)
    how(fleet, "vm1", "standalone:vm1")
    assert the_event().availability_set_id != row.pk
    assert required(fleet) == (True, True)
    assert lines() == ["left"]
    # A machine that then states a third set gains nothing either.
    how(fleet, "vm1", "standalone:elsewhere")
    assert required(fleet) == (True, True)


def reboot(fleet: Fleet) -> None:
    fleet.say("vm1", listing(EVENT, resources=("vm1",), EventType="Reboot"))


def test_no_machine_makes_itself_the_only_one_of_its_set() -> None:
    fleet = Fleet()
    fleet.enrol_set(2)
    reboot(fleet)
    fleet.later(1000)
    fleet.heard("vm1")
    fleet.say("vm1", listing(EVENT, resources=("vm1",), EventType="Reboot", not_before=fleet.now + timedelta(hours=1)))

    def second() -> bool:
        facts = load_facts([the_event().pk], now=fleet.now)[the_event().pk]
        return any(guard.needs is Need.SECOND for guard in guards(facts, now=fleet.now))

    # All that live are hit, and the set has another one, which is silent.
    assert second()
    restate(fleet, "vm1", "standalone:vm1")
    assert second()
    changes.move_machine(machine_id=fleet.agents["vm1"].machine.pk, set_id=None, actor=COMMAND_LINE, now=fleet.now)
    assert second()


def test_guards_of_the_set_where_it_was_announced_go_with_it() -> None:
    fleet = Fleet()
    fleet.enrol_set(2)
    fleet.say("vm1", listing(EVENT, resources=("vm1",)))
    other = "0A1B2C3D-0000-4000-8000-00000000000A"
    fleet.say("vm2", listing(other, resources=("vm2",), EventStatus="Started", NotBefore=""))
    restate(fleet, "vm1", "standalone:vm1")
    facts = load_facts([the_event().pk], now=fleet.now)[the_event().pk]
    assert "set-in-flight" in [guard.code for guard in guards(facts, now=fleet.now)]
