"""A stolen administrator token: it admits no person and creates nothing that exceeds it. When it is revoked, all that
it created ends with it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from drydock_agent import wire

from fleet.accounts import external_accounts, factors, privacy, service_accounts, tokens
from fleet.accounts import services as account_services
from fleet.domain import actor as actors
from fleet.domain.actor import COMMAND_LINE
from fleet.domain.reasons import Refused
from fleet.models import ApiToken, CalendarFeed, JoinToken, Machine, Rule
from fleet.notifications.models import Channel
from fleet.operations.machines import enrolment
from tests import accounts, factories
from tests.access.bodies import RULE
from tests.api.conftest import Caller, caller, in_person, problem
from tests.dashboard.conftest import logged_in

pytestmark = pytest.mark.django_db
ASKING = {"machine_id": "11111111-2222-3333-4444-555555555555", "ask": "own"}
MAIL = {"name": "me", "kind": "mail", "recipients": ["a@example.org"], "own": True}


@pytest.fixture
def ada() -> User:
    return factories.admin()


def of_ada(name: str = "tests") -> ApiToken:
    return ApiToken.objects.get(user__username="ada", name=name)


def test_service_account_with_the_admin_role_creates_no_user(ada: User) -> None:
    """That no token of a person does is in `docs/dev/access`, for every such call."""
    bot = accounts.make_service(username="bot", group="admin", owner="ada", purpose="x", now=datetime.now(UTC)).user
    token = accounts.token(user=bot, name="b", scopes=["admin"], now=datetime.now(UTC))[1]
    problem(Caller(token).post("people/", {"username": "nina", "group": "approver"}), 403, "not-permitted")
    assert in_person(ada).post("people/", {"username": "nina", "group": "viewer"}).status_code == 201


def test_no_operation_behind_the_api_takes_it_for_a_person_either(ada: User) -> None:
    token = accounts.token(user=ada, name="t", scopes=["admin"], now=datetime.now(UTC))[0]
    acting, now = actors.person(ada, "api", token=token), datetime.now(UTC)
    factories.viewer()
    invitation = external_accounts.invitation(kind="slack", team="T1", account="U1", name="x")
    for act in (
        lambda: factors.remove_all(username="vera", actor=acting, now=now),
        lambda: privacy.forget(username="vera", actor=acting, now=now),
        lambda: external_accounts.link(actor=acting, username="vera", kind="slack", team="T1", account="U1", now=now),
        lambda: external_accounts.link_own(actor=acting, token=invitation, now=now),
        lambda: accounts.calendar(actor=acting, name="mine", now=now),
        lambda: account_services.reset_password(username="vera", actor=acting, now=now),
    ):
        with pytest.raises(Refused, match="not-permitted"):
            act()
    assert not CalendarFeed.objects.exists()


def test_finder_of_a_lost_token_can_revoke_it(ada: User) -> None:
    assert caller(ada, "read").delete(f"tokens/{of_ada().prefix}/").status_code == 204


def test_only_an_admin_token_revokes_tokens_of_other_users(ada: User) -> None:
    vera = factories.viewer()
    caller(vera)
    prefix = ApiToken.objects.get(user=vera).prefix
    for who in (caller(ada, "read"), caller(ada, "read", "approve"), caller(factories.operator())):
        problem(who.delete(f"tokens/{prefix}/"), 403, "not-permitted")
        # Nor is it shown to them.
        problem(who.get(f"tokens/{prefix}/"), 404, "not-found")
    assert caller(ada, "read", "admin").delete(f"tokens/{prefix}/").status_code == 204


def chain(ada: User) -> Iterator[Caller]:
    """A token, one made by it, and one made by that."""
    who = caller(ada)
    yield who
    for number in range(2):
        made = who.post("tokens/", {"name": f"made {number}", "scopes": ["read", "approve", "admin"]})
        who = Caller(made.json()["token"])
        yield who


def test_what_it_made_ends_with_it(ada: User) -> None:
    first, second, third = chain(ada)
    mail = third.post("channels/", MAIL)
    assert mail.status_code == 201, mail.content
    join = third.post("join-tokens/", {"comment": "rack 7", "expires_in_seconds": 30 * 86_400}).json()["token"]
    row = JoinToken.objects.get(comment="rack 7")
    # Neither lives longer than the first of them.
    assert row.expires_at <= of_ada().expires_at
    assert ApiToken.objects.get(name="made 1").expires_at <= of_ada().expires_at
    assert in_person(ada).delete(f"tokens/{of_ada().prefix}/").status_code == 204
    for who in (first, second, third):
        problem(who.get("me/"), 401, "not-authenticated")
    row.refresh_from_db()
    assert row.revoked_at is not None
    with pytest.raises(Refused, match="join-token-refused"):
        enrolment.enrol(request=wire.EnrolRequest(**(ASKING | {"join_token": join})), now=datetime.now(UTC))
    assert not Machine.objects.exists()
    assert not Channel.objects.get(name="me").enabled


def test_what_it_made_ends_with_it_however_it_ended(ada: User) -> None:
    _, second, third = chain(ada)
    third.post("channels/", MAIL)
    join = third.post("join-tokens/", {"comment": "rack 7"}).json()["token"]
    # Revoked neither by a call nor by a page, and no reconciliation has run yet.
    ApiToken.objects.filter(pk=of_ada().pk).update(revoked_at=datetime.now(UTC))
    for who in (second, third):
        problem(who.get("me/"), 401, "not-authenticated")
    with pytest.raises(Refused, match="join-token-refused"):
        enrolment.enrol(request=wire.EnrolRequest(**(ASKING | {"join_token": join})), now=datetime.now(UTC))
    service_accounts.tidy_up(now=datetime.now(UTC))
    service_accounts.tidy_up(now=datetime.now(UTC))
    assert not ApiToken.objects.filter(name__startswith="made", revoked_at=None).exists()
    service_accounts.tidy_up(now=datetime.now(UTC))
    assert not JoinToken.objects.filter(comment="rack 7", revoked_at=None).exists()
    assert not Channel.objects.get(name="me").enabled


def test_tokens_created_in_person_survive(ada: User) -> None:
    _, second, _ = chain(ada)
    page = logged_in(ada)
    page.post("/you/tokens/", {"name": "by hand", "scopes": "read", "expires_in_seconds": 604800})
    tokens.end_token(prefix=of_ada("made 0").prefix, now=datetime.now(UTC), actor=COMMAND_LINE)
    problem(second.get("me/"), 401, "not-authenticated")
    assert of_ada("by hand").revoked_at is None
    assert of_ada().revoked_at is None


def test_one_that_may_not_approve_has_no_rule_approve_for_it(ada: User) -> None:
    only = caller(ada, "read", "admin")
    problem(only.post("rules/", RULE | {"action": "approve_now"}), 403, "not-permitted")
    made = only.post("rules/", RULE)
    assert made.status_code == 201
    problem(only("PATCH", f"rules/{made.json()['id']}/", {"action": "approve_when_prepared"}), 403, "not-permitted")
    assert not Rule.objects.filter(action__startswith="approve", name=RULE["name"]).exists()


def test_who_may_not_end_it_does_not_learn_whether_a_token_is_there(ada: User) -> None:
    caller(ada)
    otto = caller(factories.operator())
    there = problem(otto.delete(f"tokens/{of_ada().prefix}/"), 403, "not-permitted")
    nowhere = problem(otto.delete("tokens/dd_0123456789ab/"), 403, "not-permitted")
    assert there["detail"] == nowhere["detail"]


def test_it_ends_while_it_makes_another(ada: User) -> None:
    who = caller(ada)
    row = of_ada()
    ApiToken.objects.filter(pk=row.pk).update(revoked_at=datetime.now(UTC))
    acting = actors.person(ada, "api", token=row)
    with pytest.raises(Refused) as error:
        tokens.create_token(
            tokens.MakeTokenSerializer(data={"name": "x", "scopes": ["read"]}), actor=acting, now=datetime.now(UTC)
        )
    assert getattr(error.value.reason, "code", "") == "token-ended"
    problem(who.get("me/"), 401, "not-authenticated")
