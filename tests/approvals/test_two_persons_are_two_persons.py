"""Four-eyes approval against one person with two accounts. The second account may be one that they created, control by
password, owned earlier, or reach through another account of theirs.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.accounts import services as account_services
from fleet.accounts import sign_on, tokens
from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet
from fleet.operations.approvals import conditions
from tests import accounts, factories
from tests.factories import EVENT, Fleet, acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    factories.announced(fleet)
    AvailabilitySet.objects.update(second_person=True)
    return fleet


def account(name: str, group: str = "approver", *, by: User) -> User:
    return accounts.make_person(username=name, group=group, now=Fleet().now, actor=acting(by))


def own_password(person: User) -> None:
    account_services.set_own_password(actor=acting(person), password="a pier of green heart", now=Fleet().now)


def bot(*, owner: str, by: User | None = None, name: str = "bot") -> User:
    actor = {"actor": acting(by)} if by is not None else {}
    return accounts.make_service(
        username=name, group="approver", owner=owner, purpose="x", now=Fleet().now, **actor
    ).user


def proposal(fleet: Fleet, by: User) -> Approval:
    found = fleet.approve(EVENT, by=by)
    assert found.state == "PROPOSED"
    return found


def refusal(approval: Approval, by: User, fleet: Fleet) -> str:
    with pytest.raises(Refused, match="not-permitted") as error:
        conditions.consent(approval_id=approval.pk, actor=acting(by), now=fleet.now)
    return getattr(error.value.reason, "code", "")


def agrees(approval: Approval, by: User, fleet: Fleet) -> bool:
    return conditions.consent(approval_id=approval.pk, actor=acting(by), now=fleet.now).state == "GRANTED"


def test_creator_of_the_proposing_account_is_no_second_person(fleet: Fleet) -> None:
    ada = factories.admin()
    puppet = account("puppet", by=ada)
    # What was handed over counts: the account was theirs.
    own_password(puppet)
    own = proposal(fleet, puppet)
    assert refusal(own, ada, fleet) == "consent-of-maker"
    assert agrees(own, factories.approver("nora"), fleet)


def test_an_account_whose_password_the_proposer_knows_is_no_second_person(fleet: Fleet) -> None:
    ada = factories.admin()
    puppet = account("puppet", by=ada)
    own = proposal(fleet, ada)
    assert refusal(own, puppet, fleet) == "consent-of-held"
    # Nor if it is changed after the proposal.
    fleet.later(1)
    account_services.set_own_password(actor=acting(puppet), password="a pier of green heart", now=fleet.now)
    assert refusal(own, puppet, fleet) == "consent-of-held"
    # It is one for what is proposed later.
    conditions.withdraw(approval_id=own.pk, actor=acting(ada), now=fleet.later(1))
    assert agrees(proposal(fleet, ada), puppet, fleet)


def test_two_accounts_that_one_person_made_do_not_agree_with_each_other(fleet: Fleet) -> None:
    ada = factories.admin()
    one, two = account("one", by=ada), account("two", by=ada)
    assert refusal(proposal(fleet, one), two, fleet) == "consent-of-held"


@pytest.mark.parametrize("when", ["before", "after"])
def test_setter_of_its_password_is_no_second_person(fleet: Fleet, when: str) -> None:
    ada, anna = factories.admin(), factories.approver()
    if when == "before":
        account_services.reset_password(username="anna", now=fleet.now, actor=acting(ada))
        own_password(anna)
    own = proposal(fleet, anna)
    fleet.later(1)
    if when == "after":
        account_services.reset_password(username="anna", now=fleet.now, actor=acting(ada))
    assert refusal(own, ada, fleet) == "consent-of-maker"


def test_a_reset_password_makes_a_second_person_of_the_one_who_set_it(fleet: Fleet) -> None:
    ada, anna = factories.admin(), factories.approver()
    account_services.reset_password(username="anna", now=fleet.now, actor=acting(ada))
    assert refusal(proposal(fleet, ada), anna, fleet) == "consent-of-held"


def test_admin_who_linked_it_at_the_provider_is_no_second_person(fleet: Fleet, settings: Any) -> None:
    settings.OIDC_ISSUER = "https://login.example"
    ada, anna = factories.admin(), factories.approver()
    row = sign_on.link(actor=acting(ada), username="anna", subject="7f1c", now=fleet.now)
    own = proposal(fleet, anna)
    row.delete()
    assert refusal(own, ada, fleet) == "consent-of-maker"


def test_creator_and_owners_of_a_service_account_are_no_second_person(fleet: Fleet) -> None:
    ada, olga = factories.admin(), factories.admin("olga")
    first, second = factories.approver("first"), factories.approver("second")
    robot = bot(owner="first", by=ada)
    # Handed over long before it proposed.
    accounts.change_service(username="bot", owner="second", now=fleet.now, actor=acting(olga))
    fleet.later(30)
    own = proposal(fleet, robot)
    for person, code in ((ada, "consent-of-maker"), (first, "consent-of-owner"), (second, "consent-of-owner")):
        assert refusal(own, person, fleet) == code
    assert agrees(own, olga, fleet)


def test_person_behind_it_through_a_chain_is_no_second_person(fleet: Fleet) -> None:
    root, ada = factories.admin("root-1"), factories.admin()
    robot, other = bot(owner="ada"), bot(owner="ada", name="bot2")
    # The other account created a token of the robot; root issued, and ended, that other account's token long ago.
    first = accounts.token(user=other, name="a", scopes=["admin"], now=fleet.now, actor=acting(root))[0]
    accounts.token(user=robot, name="b", scopes=["approve"], now=fleet.now, actor=acting(other))
    tokens.end_token(prefix=first.prefix, now=fleet.now)
    fleet.later(30)
    own = proposal(fleet, robot)
    assert refusal(own, root, fleet).startswith("consent-of-")
    # An account whose password a person behind the proposal knows cannot consent either.
    puppet = account("puppet", by=ada)
    assert refusal(own, puppet, fleet) == "consent-of-held"
    account_services.reset_password(username="puppet", now=fleet.later(1))
    assert refusal(own, puppet, fleet) == "consent-of-held"
    assert agrees(own, factories.approver("nora"), fleet)


def test_password_reset_by_a_command_excludes_no_second_person(fleet: Fleet) -> None:
    anna = factories.approver()
    account_services.reset_password(username="anna", now=fleet.now - timedelta(days=1))
    assert agrees(proposal(fleet, anna), factories.approver("nora"), fleet)
