"""Four-eyes approval against one person with two accounts. The second account may be one that they created, control by
password, owned earlier, or reach through another account of theirs.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.accounts import services as account_services
from fleet.accounts import sign_on, tokens
from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Refused
from fleet.models import Approval, AvailabilitySet, Scope
from fleet.operations.approvals import conditions
from fleet.operations.approvals.approve import Plan
from tests import accounts, factories
from tests.approvals.asking import OTHER, by_rule, codes, entries, held, orders, refused, two_events
from tests.factories import EVENT, Fleet, acting, admin, after, announced, approver, listing, operator, seconds
from tests.words import code_of, text

pytestmark = pytest.mark.django_db


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
    if not fleet.agents:
        announced(fleet)
        AvailabilitySet.objects.update(second_person=True)
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
    ada = admin()
    puppet = account("puppet", by=ada)
    # What was handed over counts: the account was theirs.
    own_password(puppet)
    own = proposal(fleet, puppet)
    assert refusal(own, ada, fleet) == "consent-of-maker"
    assert agrees(own, approver("nora"), fleet)


def test_an_account_whose_password_the_proposer_knows_is_no_second_person(fleet: Fleet) -> None:
    ada = admin()
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
    ada = admin()
    one, two = account("one", by=ada), account("two", by=ada)
    assert refusal(proposal(fleet, one), two, fleet) == "consent-of-held"


@pytest.mark.parametrize("when", ["before", "after"])
def test_setter_of_its_password_is_no_second_person(fleet: Fleet, when: str) -> None:
    ada, anna = admin(), approver()
    if when == "before":
        account_services.reset_password(username="anna", now=fleet.now, actor=acting(ada))
        own_password(anna)
    own = proposal(fleet, anna)
    fleet.later(1)
    if when == "after":
        account_services.reset_password(username="anna", now=fleet.now, actor=acting(ada))
    assert refusal(own, ada, fleet) == "consent-of-maker"


def test_a_reset_password_makes_a_second_person_of_the_one_who_set_it(fleet: Fleet) -> None:
    ada, anna = admin(), approver()
    account_services.reset_password(username="anna", now=fleet.now, actor=acting(ada))
    assert refusal(proposal(fleet, ada), anna, fleet) == "consent-of-held"


def test_admin_who_linked_it_at_the_provider_is_no_second_person(fleet: Fleet, settings: Any) -> None:
    settings.OIDC_ISSUER = "https://login.example"
    ada, anna = admin(), approver()
    row = sign_on.link(actor=acting(ada), username="anna", subject="7f1c", now=fleet.now)
    own = proposal(fleet, anna)
    row.delete()
    assert refusal(own, ada, fleet) == "consent-of-maker"


def test_creator_and_owners_of_a_service_account_are_no_second_person(fleet: Fleet) -> None:
    ada, olga = admin(), admin("olga")
    first, second = approver("first"), approver("second")
    robot = bot(owner="first", by=ada)
    # Handed over long before it proposed.
    accounts.change_service(username="bot", owner="second", now=fleet.now, actor=acting(olga))
    fleet.later(30)
    own = proposal(fleet, robot)
    for person, code in ((ada, "consent-of-maker"), (first, "consent-of-owner"), (second, "consent-of-owner")):
        assert refusal(own, person, fleet) == code
    assert agrees(own, olga, fleet)


def test_person_behind_it_through_a_chain_is_no_second_person(fleet: Fleet) -> None:
    root, ada = admin("root-1"), admin()
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
    assert agrees(own, approver("nora"), fleet)


def test_password_reset_by_a_command_excludes_no_second_person(fleet: Fleet) -> None:
    anna = approver()
    account_services.reset_password(username="anna", now=fleet.now - timedelta(days=1))
    assert agrees(proposal(fleet, anna), approver("nora"), fleet)


# Proposals: if a guard or the set requires two persons, another person than the proposer must consent.

ALL = tuple(f"vm{number}" for number in range(1, 7))


def proposed(fleet: Fleet, by: User | None = None, **fields: object) -> Approval:
    """An approval that waits for a second person, because the event takes the whole set down."""
    announced(fleet, event_type="Reboot", resources=ALL)
    return fleet.approve(by=by, **fields)


def agree(fleet: Fleet, approval: Approval, by: User, comment: str = "", **fields: dict[str, str]) -> Approval:
    return conditions.consent(approval_id=approval.pk, actor=acting(by, why=comment), now=fleet.now, **fields)


def test_proposal_creates_no_order(fleet: Fleet) -> None:
    approval = proposed(fleet, comment="all at once, it is night")
    assert (approval.state, approval.granted_at, orders(approval)) == ("PROPOSED", None, 0)
    (line,) = entries("approval_proposed")
    assert text(line) == ("otto proposed: start now. A second person has to agree. “all at once, it is night”")
    assert refused(fleet.approve).code == "already-decided"
    fleet.later(5)
    fleet.advance()
    assert after(approval).state == "PROPOSED"


def test_the_second_person_sends_it_on_its_way(fleet: Fleet) -> None:
    approval = proposed(fleet)
    fleet.later(20)
    done = agree(fleet, approval, approver(), comment="I see it, too")
    assert (done.state, done.granted_at) == ("GRANTED", fleet.now)
    assert (done.consented_by.username, done.consented_at) == ("anna", fleet.now)  # type: ignore[union-attr]
    assert factories.open_order(done).machine.resource_name == "vm1"
    (line,) = entries("approval_consented")
    assert (factories.who(line), line.why) == ("anna", "I see it, too")
    assert (line.before, line.after) == ({"approval": "PROPOSED"}, {"approval": "GRANTED"})
    assert [one["code"] for one in done.overrides] == ["last-live-machines"]


def test_proposer_is_no_second_person_not_even_as_an_admin(fleet: Fleet) -> None:
    ada = admin()
    approval = proposed(fleet, by=ada)
    assert code_of(refused(lambda: agree(fleet, approval, ada))) == "consent-of-proposer"


def test_what_is_no_proposal_any_more_needs_no_second_person(fleet: Fleet) -> None:
    approval = proposed(fleet)
    agree(fleet, approval, approver())
    assert code_of(refused(lambda: agree(fleet, approval, approver("axel")))) == "consent-not-proposed"
    assert refused(lambda: agree(fleet, Approval(pk=0), approver())).code == "unknown-approval"


def test_the_guards_are_asked_again_and_a_new_one_takes_a_reason_of_the_second_person(fleet: Fleet) -> None:
    first, other = two_events(fleet)
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve(first.event_id)
    AvailabilitySet.objects.update(second_person=False)
    fleet.approve(other.event_id)
    anna = approver()
    assert codes(refused(lambda: agree(fleet, approval, anna))) == ["set-in-flight"]
    done = agree(fleet, approval, anna, overrides={"set-in-flight": "the other is short"})
    assert [(one["code"], one["reason"]) for one in done.overrides] == [("set-in-flight", "the other is short")]
    assert done.state == "GRANTED"


def test_what_the_proposer_overcame_stays_so(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Terminate", resources=ALL)
    held(fleet, event, operator("olga"))
    assert codes(refused(fleet.approve)) == ["held", "lost-for-good"]
    approval = fleet.approve(overrides={"held": "olga is asleep", "lost-for-good": "scaled in"})
    done = agree(fleet, approval, approver())
    assert [one["code"] for one in done.overrides] == ["held", "lost-for-good", "last-live-machines"]


def test_a_proposal_for_later_waits_after_the_second_person(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot", resources=ALL)
    approval = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
    assert approval.state == "PROPOSED"
    assert agree(fleet, approval, approver()).state == "WAITING"
    fleet.tick(61)
    approval.refresh_from_db()
    # Reconciling wakes the order's machine after that, which takes it on its way.
    assert approval.state == "GRANTED"
    assert orders(approval) == 1


def test_guard_that_appears_after_consent_blocks_the_approval(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot", resources=("vm1", "vm2"))
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
    assert [one["code"] for one in agree(fleet, approval, approver()).overrides] == ["set-wants-second"]
    fleet.later(61)
    # Now only the two that it hits are live.
    fleet.heard("vm1", "vm2")
    fleet.advance()
    assert after(approval).state == "WAITING"


def test_proposal_lapses_at_not_before(fleet: Fleet) -> None:
    approval = proposed(fleet)
    fleet.tick(901)
    assert (after(approval).state, code_of(approval.reason)) == ("LAPSED", "lapsed-waiting")
    assert refused(lambda: agree(fleet, approval, approver())).code == "too-late"


def test_rule_never_counts_as_two_persons(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Reboot", resources=ALL)
    assert codes(refused(lambda: by_rule(fleet, event, Plan()))) == ["last-live-machines"]


def test_set_requires_it_for_each_of_its_events_and_no_other(fleet: Fleet) -> None:
    two_events(fleet)
    fleet.enrol("db1", availability_set="db")
    ada = acting(admin(), via="api", token_name="ops")
    for _ in range(2):
        factories.change_set(set_id=factories.the_set().pk, actor=ada, now=fleet.now, second_person=True)
    (line,) = entries("set_changed")
    assert text(line) == "ada required a second person for every approval."
    assert (line.before, line.after) == ({"second_person": False}, {"second_person": True})
    assert (line.via, line.token_name) == ("api", "ops")
    assert [fleet.approve().state, fleet.approve(OTHER).state] == ["PROPOSED", "PROPOSED"]
    fleet.say("db1", listing("DB-EVENT", resources=["db1"], not_before=fleet.now + seconds(900)))
    assert fleet.approve("DB-EVENT").state == "GRANTED"


# Scoped users approve only in sets within their scopes, never in an unnamed one; other acts are in `tests/access`.


def limited(person: User, *scopes: tuple[str, str]) -> User:
    """The person with these scopes alone, freshly loaded."""
    for kind, pattern in scopes:
        Scope.objects.create(user=person, kind=kind, pattern=pattern)
    return User.objects.get(pk=person.pk)


@pytest.mark.parametrize(
    ("scope", "may"),
    [
        (("name", "WEB"), True),
        (("name", "w*"), True),
        (("name", "db*"), False),
        (("service", "shop"), True),
        (("service", "bank"), False),
        (("resource_group", "SHOP"), True),
        (("resource_group", "b?nk"), False),
    ],
)
def test_a_scope_goes_by_name_service_or_resource_group(fleet: Fleet, scope: tuple[str, str], may: bool) -> None:
    announced(fleet)
    AvailabilitySet.objects.update(service="shop")
    person = limited(operator(), scope)
    if may:
        assert fleet.approve(by=person).state == "GRANTED"
        return
    error = refused(lambda: fleet.approve(by=person))
    assert (error.code, error.reason.code) == ("not-permitted", "scope-ends-before")
    assert error.reason.values["scopes"] == [list(scope)]


def test_an_unnamed_set_is_for_people_whose_right_is_not_limited(fleet: Fleet) -> None:
    fleet.enrol("stray", availability_set="")
    fleet.later(1)
    fleet.say("stray", listing(resources=["stray"], not_before=fleet.now + seconds(900)))
    assert code_of(refused(lambda: fleet.approve(by=limited(operator("olga"), ("name", "*"))))) == "scope-unnamed-set"
    assert fleet.approve(by=operator("otto")).state == "GRANTED"
