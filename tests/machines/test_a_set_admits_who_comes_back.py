"""Admission rule of a set: for a limited time it readmits machines that lost their credential, and records each."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from drydock_agent import wire

from fleet.models import Admission, AvailabilitySet, Machine
from fleet.operations.machines import admissions, decommission, enrolment
from fleet.projections import blind_spots
from tests import accounts, factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries, refused
from tests.dashboard.conftest import text_of
from tests.factories import Fleet, acting, admin, approver, seconds, the_set
from tests.machines.newcomers import identity_of
from tests.words import text

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def fleet() -> Fleet:
    """Two machines of the set web, one of them silent since, and a join token that confines to it."""
    fleet = Fleet()
    fleet.enrol("vm1")
    fleet.enrol("vm2")
    use_token(fleet, "web")
    fleet.later(61)
    fleet.heard("vm2")
    return fleet


def use_token(fleet: Fleet, name: str) -> None:
    _, fleet.join_token = accounts.join_token(comment="", expires_in=9 * DAY, now=fleet.now, set_name=name)


def allow(fleet: Fleet, until: timedelta | None = DAY) -> None:
    actor = acting(factories.admin("alma"), why="rebuilt")
    at = fleet.now + until if until is not None else None
    admissions.set_rule(set_id=the_set().pk, until=at, actor=actor, now=fleet.now)


def comes_back(fleet: Fleet, name: str = "vm1") -> bool:
    """Return whether a caller who knows this machine's vmId is admitted as it."""
    vm_id = Machine.objects.get(resource_name=name).vm_id
    request = wire.EnrolRequest(join_token=fleet.join_token, machine_id=vm_id, resource_name=name, ask="rebuilt")
    return isinstance(enrolment.enrol(request=request, now=fleet.now, address="10.0.0.4"), wire.EnrolAnswer)


def test_while_the_rule_lasts_who_comes_back_needs_no_person(fleet: Fleet) -> None:
    assert not comes_back(fleet)
    allow(fleet)
    assert comes_back(fleet)
    assert identity_of(credential=fleet.agents["vm1"].credential) is None
    # No request waits, and the timeline records the admission.
    assert not Admission.objects.exists()
    (line,) = entries("machine_admitted")
    assert "vm1" in text(line) and "10.0.0.4" in text(line) and "automatically" in text(line)
    fleet.later(DAY.total_seconds())
    assert not comes_back(fleet)


def test_who_is_live_does_not_come_back(fleet: Fleet) -> None:
    allow(fleet)
    assert not comes_back(fleet, "vm2")
    assert identity_of(credential=fleet.agents["vm2"].credential) is not None
    fleet.later(61)
    assert comes_back(fleet, "vm2")


def test_a_revoked_machine_is_admitted_by_a_person_alone(fleet: Fleet) -> None:
    allow(fleet)
    decommission.revoke(machine_id=fleet.agents["vm1"].machine.pk, actor=acting(admin()), now=fleet.now)
    assert not comes_back(fleet)


@pytest.mark.parametrize("name", ["", "db", "scale_set:web"])
def test_only_a_join_token_of_this_set_admits_a_machine(fleet: Fleet, name: str) -> None:
    allow(fleet)
    use_token(fleet, name)
    assert not comes_back(fleet)


def test_machines_of_other_sets_are_not_admitted(fleet: Fleet) -> None:
    allow(fleet)
    _, fleet.join_token = accounts.join_token(comment="", expires_in=DAY, now=fleet.now)
    fleet.enrol("db1", availability_set="db")
    use_token(fleet, "web")
    fleet.later(61)
    assert not comes_back(fleet, "db1")


def test_admin_enables_readmission_for_a_week_at_most_and_disables_it(fleet: Fleet) -> None:
    def refusal(**fields: object) -> str:
        asked = {"set_id": the_set().pk, "until": fleet.now + DAY, "actor": acting(admin()), "now": fleet.now}
        return refused(lambda: admissions.set_rule(**{**asked, **fields})).code  # type: ignore[arg-type]

    assert refusal(actor=acting(approver())) == "not-permitted"
    assert refusal(until=fleet.now) == refusal(until=fleet.now + 8 * DAY) == "validation"
    assert refusal(set_id=999_999) == "not-found"
    allow(fleet)
    allow(fleet, None)
    allow(fleet, None)
    assert not comes_back(fleet)
    first, last = entries("set_changed")
    assert (first.before, first.why) == ({"admits_until": None}, "rebuilt")
    assert "are admitted automatically until 2022-04-12" in text(first)
    assert text(last) == (
        "alma specified that machines that enrol again without their credential wait for admission. “rebuilt”"
    )


def test_it_is_a_blind_spot_as_long_as_it_lasts(fleet: Fleet) -> None:
    def shown() -> list[str]:
        return [spot.code for spot in blind_spots.overview(now=fleet.now).spots if spot.code == "admits-by-itself"]

    assert shown() == []
    allow(fleet)
    assert shown() == ["admits-by-itself"]
    fleet.later(DAY.total_seconds())
    assert shown() == []


def test_the_page_and_the_api_say_it_and_show_it(ada: Client, anna: Client) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    fleet.enrol("vm1")
    here = f"/sets/{the_set().pk}/"
    assert ada.post(f"{here}admissions/", {"hours": "5"}).status_code == 422
    seen = text_of(ada.post(f"{here}admissions/", {"hours": "4", "comment": "rebuilt"}, follow=True))
    assert "are admitted automatically until" in seen
    for page in (here, "/sets/"):
        assert "admits machines automatically" in text_of(anna.get(page))
    assert ada.post(f"{here}admissions/", {"hours": "0"}).status_code == 302
    assert "admits machines automatically" not in text_of(anna.get("/sets/"))
    api, until = caller(factories.admin("alma")), fleet.now + seconds(3600)
    row = api.post(f"sets/{the_set().pk}/admissions/", {"until": until.isoformat(), "comment": "rebuilt"}).json()
    assert row["admits_until"] is not None
    assert api.post(f"sets/{the_set().pk}/admissions/", {"until": None}).json()["admits_until"] is None
    problem(api.post("sets/999999/admissions/", {"until": None}), 404, "not-found")
    assert AvailabilitySet.objects.get().admits_until is None
