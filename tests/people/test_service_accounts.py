"""Service accounts: they authenticate by tokens only, never count as second person, and have a responsible owner."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from fleet.accounts import external_accounts, privacy, sign_on
from fleet.accounts import services as account_services
from fleet.accounts.queries import detail
from fleet.domain import actor as actors
from fleet.domain.actor import Actor
from fleet.domain.reasons import Refused
from fleet.domain.sign_on import ToldByProxy
from fleet.models import ApiToken, Approval, AvailabilitySet, Entry, OutsideAccount, ServiceAccount
from fleet.operations.approvals import conditions
from tests import accounts, factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, Fleet
from tests.words import refused, text

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def anna() -> User:
    return factories.approver()


@pytest.fixture
def bot(anna: User) -> User:
    """Of anna."""
    return accounts.make_service(username="bot", group="approver", owner="anna", purpose="deploys", now=NOW).user


def acting(bot: User, **more: Any) -> Actor:
    return actors.service(bot, "api", **more)


def test_service_account_cannot_sign_in_by_any_method(bot: User, settings: Any) -> None:
    page = Client()
    page.post("/accounts/login/", {"login": "bot", "password": ""})
    page.post("/accounts/login/", {"login": "bot", "password": bot.password})
    page.post("/admin/login/", {"username": "bot", "password": bot.password})
    assert "_auth_user_id" not in page.session
    with pytest.raises(Refused, match="sign-on-blocked"):
        sign_on.arrive_by_proxy(ToldByProxy("bot", None), now=NOW)
    admin = factories.acting(factories.admin())
    settings.OIDC_ISSUER = "https://login.example"
    for act in (
        lambda: sign_on.link(actor=admin, username="bot", subject="7f1c", now=NOW),
        lambda: external_accounts.link(actor=admin, username="bot", kind="slack", team="T1", account="U1", now=NOW),
        lambda: account_services.reset_password(username="bot", now=NOW, actor=admin),
    ):
        with pytest.raises(Refused, match="service-no-login"):
            act()
    # Even if code signs the account in directly, the login fails.
    with pytest.raises(Exception, match="by tokens only"):
        page.force_login(bot)
    bot.refresh_from_db()
    assert not bot.has_usable_password()


def test_djangos_admin_does_not_know_them(bot: User) -> None:
    root = logged_in(User.objects.create_superuser("root"))
    assert "bot" not in text_of(root.get("/admin/auth/user/")).split()
    assert root.get(f"/admin/auth/user/{bot.pk}/change/").status_code == 302
    assert root.post(f"/admin/auth/user/{bot.pk}/password/", {"password1": "x", "password2": "x"}).status_code == 404


def test_users_and_service_accounts_do_not_convert_into_each_other(bot: User) -> None:
    factories.viewer()
    for name in ("vera", "bot", "BOT"):
        with pytest.raises(Refused, match="validation") as error:
            accounts.make_service(username=name, group="viewer", owner="anna", purpose="x", now=NOW)
        assert error.value.details["errors"][0]["field"] == "username"
    with refused("service-unknown"):
        accounts.change_service(username="vera", owner="anna", now=NOW)
    with refused("forget-service"):
        privacy.forget(username="bot", now=NOW)


def test_its_owner_is_a_person_who_may_sign_in(bot: User) -> None:
    for owner in ("bot", "nobody", ""):
        with pytest.raises(Refused) as error:
            accounts.make_service(username="other", group="viewer", owner=owner, purpose="x", now=NOW)
        assert error.value.details["errors"][0]["field"] == "owner"
    assert not User.objects.filter(username="other").exists()


def test_it_is_never_the_last_admin() -> None:
    factories.admin()
    accounts.make_service(username="bot", group="admin", owner="ada", purpose="x", now=NOW)
    with refused("last-admin"):
        accounts.change_person(username="ada", active=False, now=NOW)


def token_by(who: Caller, **more: Any) -> Any:
    return who.post("service-accounts/bot/tokens/", {"name": "ci", "scopes": ["read", "approve"], **more})


def test_admins_make_its_tokens_and_its_owner_ends_them(bot: User, anna: User) -> None:
    assert token_by(caller(anna)).status_code == 403
    made = token_by(in_person(factories.admin()), allowed_from=["127.0.0.0/8"])
    assert made.status_code == 201
    it = Caller(made.json()["token"])
    assert it.get("me/").json()["is_service_account"] is True
    # It may no more than its group.
    assert token_by(in_person(User.objects.get(username="ada")), scopes=["admin"]).status_code == 403
    prefix = made.json()["prefix"]
    assert caller(factories.operator()).delete(f"tokens/{prefix}/").status_code == 403
    assert caller(anna, "read").delete(f"tokens/{prefix}/").status_code == 403
    assert caller(anna).delete(f"tokens/{prefix}/").status_code == 204
    assert it.get("me/").status_code == 401


def test_its_acts_are_shown_as_a_service_account_with_its_owner(fleet: Fleet, bot: User, anna: User) -> None:
    it = Caller(token_by(in_person(factories.admin())).json()["token"])
    assert it.post(f"events/{EVENT}/claims/", {"comment": "mine"}).status_code == 201
    line = Entry.objects.get(kind="event_claimed")
    assert (line.actor, line.data["actor_kind"]) == (f"person {bot.pk}", "service")
    page = logged_in(User.objects.get(username="ada"))
    assert "Service account bot (owner anna)" in text_of(page.get("/audit/"))
    assert "service account (owner anna)" in text_of(page.get("/people/"))
    found = caller(User.objects.get(username="ada")).get("audit/?actor_kind=service").json()["results"]
    assert [(row["actor"], row["actor_owner"]) for row in found] == [("bot", "anna")]


def proposed(fleet: Fleet, by: Actor) -> Approval:
    AvailabilitySet.objects.update(second_person=True)
    return factories.deciding.grant(event_id=EVENT, actor=by, now=fleet.now, plan=factories.Plan())


def refusal(approval: Approval, by: Actor, fleet: Fleet) -> str:
    with pytest.raises(Refused) as error:
        conditions.consent(approval_id=approval.pk, actor=by, now=fleet.now)
    return getattr(error.value.reason, "code", "")


def test_an_owner_and_their_service_account_are_one_person(fleet: Fleet, bot: User, anna: User) -> None:
    other = accounts.make_service(username="bot2", group="approver", owner="anna", purpose="x", now=NOW).user
    theirs = proposed(fleet, factories.acting(anna, why="go"))
    assert refusal(theirs, acting(bot), fleet) == "consent-of-service"
    assert refusal(theirs, acting(other), fleet) == "consent-of-service"
    assert refusal(theirs, factories.acting(anna), fleet) == "consent-of-proposer"


def test_owner_of_a_service_account_cannot_consent_to_its_proposal(fleet: Fleet, bot: User, anna: User) -> None:
    own = proposed(fleet, acting(bot, why="go"))
    assert refusal(own, factories.acting(anna), fleet) == "consent-of-owner"
    # After a handover neither the former nor the new owner counts as second person.
    factories.approver("abel")
    accounts.change_service(username="bot", owner="abel", now=NOW)
    assert refusal(own, factories.acting(anna), fleet) == "consent-of-owner"
    assert refusal(own, factories.acting(User.objects.get(username="abel")), fleet) == "consent-of-owner"
    agreed = conditions.consent(approval_id=own.pk, actor=factories.acting(factories.approver("nora")), now=fleet.now)
    assert agreed.state == "GRANTED"


def test_creator_of_its_token_cannot_consent_to_its_proposal(fleet: Fleet, bot: User) -> None:
    AvailabilitySet.objects.update(second_person=True)
    ada, nora = factories.admin(), factories.approver("nora")
    it = Caller(token_by(in_person(ada)).json()["token"])
    # One that had ended before, and one that came later.
    ended = token_by(in_person(factories.admin("olga"))).json()["prefix"]
    assert caller(ada).delete(f"tokens/{ended}/").status_code == 204
    assert it.post(f"events/{EVENT}/approvals/", {"comment": "go"}).status_code == 201
    token_by(in_person(factories.admin("late")))
    own = Approval.objects.get()
    assert own.state == "PROPOSED"
    for name in ("ada", "olga", "late"):
        assert refusal(own, factories.acting(User.objects.get(username=name)), fleet) == "consent-of-token-maker"
    agreed = conditions.consent(approval_id=own.pk, actor=factories.acting(nora), now=datetime.now(UTC))
    assert agreed.state == "GRANTED"


@pytest.mark.usefixtures("fleet")
def test_set_with_reauthentication_exempts_listed_service_accounts_and_no_user_token(bot: User, anna: User) -> None:
    web, ada = factories.the_set(), in_person(factories.admin())
    its, hers = Caller(token_by(ada).json()["token"]), caller(anna)
    assert ada("PATCH", f"sets/{web.pk}/", {"step_up": True}).status_code == 200
    for who in (its, hers):
        problem(who.post(f"events/{EVENT}/approvals/", {"comment": "go"}), 409, "guarded")
    page = ada.client
    page.post(f"/sets/{web.pk}/spares/", {"exempt_service_accounts": "1"})
    line = Entry.objects.filter(kind="set_changed").latest("pk")
    assert line.after == {"exempt_service_accounts": True}
    assert "service accounts can approve without confirmation" in text_of(page.get("/audit/"))
    problem(hers.post(f"events/{EVENT}/approvals/", {"comment": "go"}), 409, "guarded")
    assert its.post(f"events/{EVENT}/approvals/", {"comment": "go"}).status_code == 201


def test_without_an_owner_it_continues_and_admins_see_it(bot: User, anna: User) -> None:
    token = accounts.token(user=bot, name="ci", scopes=["read"], now=NOW)[1]
    factories.admin()
    accounts.change_person(username="anna", active=False, now=NOW)
    assert Caller(token).get("me/").status_code == 200
    found = detail(username="bot")
    assert found is not None and (found.is_service_account, found.owner) == (True, "")
    page = logged_in(User.objects.get(username="ada"))
    assert "no owner" in text_of(page.get("/people/"))
    privacy.forget(username="anna", now=NOW)
    assert "no owner: enter one below" in text_of(page.get("/people/bot/"))
    assert Caller(token).get("me/").status_code == 200


def test_the_page_the_api_and_the_command_make_one(anna: User) -> None:
    ada = factories.admin()
    page = logged_in(ada)
    form = {"username": "bot-1", "group": "operator", "owner": "anna", "purpose": "deploys", "scopes": "name: web*"}
    assert page.post("/people/service/", form)["Location"] == "/people/bot-1/"
    token = {"name": "ci", "scopes": "read", "expires_in_seconds": 604800, "allowed_from": "10.0.0.0/8"}
    assert "New token" in text_of(page.post("/people/bot-1/tokens/", token))
    page.post("/people/bot-1/service/", {"owner": "ada", "purpose": "deploys at night"})
    body = {"username": "bot-2", "group": "viewer", "owner": "anna", "purpose": "reports"}
    assert in_person(ada).post("service-accounts/", body).status_code == 201
    words = ["create_service_account", "bot-3", "--group", "viewer", "--owner", "anna", "--purpose", "x"]
    call_command(*words, stdout=StringIO(), stderr=StringIO())
    rows = ServiceAccount.objects.order_by("user__username").values_list("user__username", "owner__username", "purpose")
    assert list(rows) == [("bot-1", "ada", "deploys at night"), ("bot-2", "anna", "reports"), ("bot-3", "anna", "x")]
    assert ApiToken.objects.get(user__username="bot-1").expires_at - timedelta(days=7) < datetime.now(UTC)
    assert "created the service account bot-1 for “deploys”, owned by anna" in text_of(page.get("/audit/"))


# Accounts in Slack and PagerDuty: an admin links one to a user, or the user does with an invitation.


THEIRS = {"kind": "slack", "team": "T1", "account": "U1"}


def link(by: Any, username: str, **changed: str) -> OutsideAccount:
    return external_accounts.link(actor=factories.acting(by), username=username, now=NOW, **{**THEIRS, **changed})


def test_an_admin_says_whose_an_account_is_and_one_line_tells_it() -> None:
    factories.operator()
    link(factories.admin(), "otto", name="otto.o")
    link(factories.admin(), "otto")
    found = external_accounts.person_of(**THEIRS)
    assert found is not None and found.get_username() == "otto"
    line = Entry.objects.get(kind="person_changed")
    assert (factories.who(line), line.before, line.after) == ("ada", {"account": None}, {"account": "U1"})
    assert text(line) == "ada linked the Slack account U1 to otto. Its claims count as claims of otto."


def test_only_admins_link_accounts_and_no_linked_one_is_reassigned() -> None:
    otto, anna = factories.operator(), factories.approver()
    for person in (otto, anna):
        with pytest.raises(Refused, match="not-permitted"):
            link(person, person.username)
    link(factories.admin(), "otto")
    for wrong in ({"username": "anna"}, {"username": "otto", "kind": "teams"}, {"username": "otto", "account": "U 1"}):
        with pytest.raises(Refused, match="validation"):
            link(factories.admin(), **wrong)
    User.objects.filter(pk=otto.pk).update(is_superuser=True)
    for name, code in (("nobody", "unknown-person"), ("otto", "not-permitted")):
        with pytest.raises(Refused, match=code):
            link(factories.admin(), name, account="U2")


def test_an_invitation_counts_for_ten_minutes_and_only_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    otto = factories.acting(factories.operator())
    token = external_accounts.invitation(**THEIRS, name="otto.o")
    for wrong in ("", "x", token[:-1], token + "x"):
        with pytest.raises(Refused):
            external_accounts.link_own(actor=otto, token=wrong, now=NOW)
    with monkeypatch.context() as patch:
        patch.setattr(external_accounts, "INVITATION", timedelta(seconds=-1))
        with pytest.raises(Refused):
            external_accounts.link_own(actor=otto, token=token, now=NOW)
    external_accounts.link_own(actor=otto, token=token, now=NOW)
    # Another user who finds the link later does not get the account.
    with pytest.raises(Refused):
        external_accounts.link_own(actor=factories.acting(factories.approver()), token=token, now=NOW)
    assert OutsideAccount.objects.get().user == otto.person


def test_opening_the_link_does_nothing_and_needs_a_login() -> None:
    address = f"/you/accounts/{external_accounts.invitation(**THEIRS, name='<b>otto')}/"
    assert Client().get(address).status_code == 302
    otto = logged_in(factories.operator())
    shown = otto.get(address)
    assert (shown.status_code, b"&lt;b&gt;otto" in shown.content) == (200, True)
    assert not OutsideAccount.objects.exists()
    assert otto.get("/you/accounts/made-up/").status_code == 422
    assert otto.post("/you/accounts/made-up/link/").status_code == 422
    assert otto.post(f"{address}link/", headers={"X-Request-ID": "r"}).status_code == 302
    assert Entry.objects.filter(request_id="r", via="page", kind="person_changed").count() == 1


def test_users_unlink_their_own_accounts_and_admins_any() -> None:
    otto, anna = factories.operator(), factories.approver()
    row = link(factories.admin(), "otto")
    assert b"U1" in logged_in(otto).get("/you/").content
    for_anna = logged_in(anna)
    assert b"U1" not in for_anna.get("/you/").content
    assert for_anna.post(f"/you/accounts/{row.pk}/unlink/").status_code == 403
    assert logged_in(otto).post(f"/you/accounts/{row.pk}/unlink/").status_code == 302
    assert external_accounts.person_of(**THEIRS) is None
    again = link(factories.admin(), "otto")
    external_accounts.unlink(actor=factories.acting(factories.admin()), account_id=again.pk, now=NOW)
    lines = Entry.objects.filter(kind="person_changed").order_by("pk")
    assert [line.data["did"] for line in lines] == ["linked", "unlinked"] * 2


def test_unlinked_accounts_are_recorded_without_a_user() -> None:
    factories.operator()
    link(factories.admin(), "otto")
    external_accounts.note_stranger(kind="pagerduty", team="", account="P1", name="Anna\x00", now=NOW)
    assert OutsideAccount.objects.get(user=None).name == "Anna"
    # A linked account stays linked, however often its owner presses.
    external_accounts.note_stranger(**THEIRS, name="other", now=NOW)
    assert external_accounts.person_of(**THEIRS) is not None
