"""API tokens: each works only from its permitted networks, and its user is notified before it expires."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from drydock_agent import wire

from fleet.accounts import external_accounts, factors, privacy, tokens
from fleet.accounts import services as account_services
from fleet.domain import actor as actors
from fleet.domain.actor import COMMAND_LINE
from fleet.domain.addresses import NetworkFault, allows, beyond, read_networks
from fleet.domain.reasons import Refused
from fleet.domain.timeline import EntryKind
from fleet.gateway.http import Problem
from fleet.gateway.open_calls import CallCredentials
from fleet.gateway.streams import listener_of
from fleet.models import ApiToken, CalendarFeed, Entry, JoinToken, Machine, Rule
from fleet.notifications.models import Channel
from fleet.notifications.routing import is_personal
from fleet.operations.machines import enrolment
from tests import accounts, factories
from tests.access.bodies import RULE
from tests.api.conftest import Caller, caller, in_person, problem
from tests.dashboard.conftest import logged_in, text_of
from tests.words import refused

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        *(("10.0.0.0/8", "10.0.0.0/8"), (" 192.0.2.7 ", "192.0.2.7/32")),
        *(("2001:DB8::/32", "2001:db8::/32"), ("2001:db8::7", "2001:db8::7/128")),
        # What IPv6 carries is what it carries.
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
    ],
)
def test_networks_of_both_families_are_kept_as_they_are_written_in_full(written: str, kept: str) -> None:
    assert read_networks([written, written, ""]) == [kept]


@pytest.mark.parametrize(
    ("written", "code"),
    [
        *((text, "network-host-bits") for text in ("10.0.0.7/8", "2001:db8::1/32")),
        *((text, "network-unreadable") for text in ("10.0.0.0/33", "example.org", "10.0.0.0/8; DROP", "1" * 5000)),
        (" ".join(f"10.0.0.{number}" for number in range(51)), "network-too-many"),
    ],
)
def test_what_is_no_network_or_may_mean_two_is_refused(written: str, code: str) -> None:
    texts = written.split() if code == "network-too-many" else [written]
    with pytest.raises(NetworkFault) as fault:
        read_networks(texts)
    assert fault.value.reason.code == code


def test_an_address_lies_in_them_or_not() -> None:
    inside = ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::9", "2001:db8::9%eth0"]
    outside = ["11.0.0.1", "2001:db9::1", "", "unix:"]
    assert [each for each in inside + outside if allows(["10.0.0.0/8", "2001:db8::/32"], each)] == inside
    assert all(allows([], each) for each in inside + outside)


def made(who: Caller, *networks: str) -> str:
    answer = who.post("tokens/", {"name": "deploys", "scopes": ["read", "approve"], "allowed_from": list(networks)})
    assert answer.status_code == 201, answer.content
    token: str = answer.json()["token"]
    return token


def call(token: str, address: str, **headers: str) -> Any:
    return Client(REMOTE_ADDR=address).get("/api/v1/me/", headers={"authorization": f"Bearer {token}", **headers})


def test_a_stolen_token_is_refused_elsewhere_and_that_is_no_use_of_it() -> None:
    token = made(caller(factories.operator()), "192.0.2.0/24")
    said = problem(call(token, "198.51.100.9"), 403, "not-permitted")["detail"]
    assert "This token is not accepted from 198.51.100.9." in said
    # The refusal does not reveal from where the token is accepted.
    assert "192.0.2" not in said
    with pytest.raises(Problem, match="is not accepted from"):
        listener_of(CallCredentials(token, "", "198.51.100.9", None), now=datetime.now(UTC))
    assert ApiToken.objects.get(name="deploys").last_used_at is None
    assert listener_of(CallCredentials(token, "", "192.0.2.8", None), now=datetime.now(UTC)) is not None
    assert call(token, "192.0.2.8").status_code == 200
    assert ApiToken.objects.get(name="deploys").last_used_at is not None


def test_a_header_says_from_where_only_behind_a_proxy_that_is_trusted(settings: Any) -> None:
    token = made(caller(factories.operator()), "192.0.2.0/24")
    claims = {"x-forwarded-for": "192.0.2.8"}
    assert call(token, "198.51.100.9", **claims).status_code == 403
    settings.TRUSTED_PROXIES = ["198.51.100.0/24"]
    assert call(token, "198.51.100.9", **claims).status_code == 200
    # A client in front of it that forges one more.
    assert call(token, "198.51.100.9", **{"x-forwarded-for": "192.0.2.8, 203.0.113.5"}).status_code == 403


def test_a_token_that_makes_another_gives_it_no_wider_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    # Django's client calls from 127.0.0.1.
    narrow = Caller(made(caller(factories.operator()), "127.0.0.0/8"))
    wider = narrow.post("tokens/", {"name": "x", "scopes": ["read"], "allowed_from": ["127.0.0.0/7"]})
    [error] = problem(wider, 422, "validation")["errors"]
    assert error["field"] == "allowed_from" and error["message"].startswith("127.0.0.0/7 names a host and a network")
    assert not ApiToken.objects.filter(name="x").exists()
    for networks in (["10.0.0.0/8"], ["127.0.0.1", "::1"], ["0.0.0.0/0"]):
        answer = narrow.post("tokens/", {"name": "x", "scopes": ["read"], "allowed_from": networks})
        assert "not within the addresses" in problem(answer, 403, "not-permitted")["detail"]
    made(narrow, "127.0.0.1")
    made(narrow)
    kept = ApiToken.objects.filter(name="deploys").order_by("pk").values_list("allowed_from", flat=True)
    assert list(kept) == [["127.0.0.0/8"], ["127.0.0.1/32"], ["127.0.0.0/8"]]
    assert beyond(["2001:db8::/33"], ["2001:db8::/32"]) == ""


def test_the_page_and_the_command_take_them_too() -> None:
    page = logged_in(factories.operator())
    networks = "192.0.2.0/24\r\n2001:db8::/32\r\n"
    form = {"name": "deploys", "scopes": "read", "expires_in_seconds": 604800, "allowed_from": networks}
    assert "192.0.2.0/24, 2001:db8::/32" in text_of(page.post("/you/tokens/", form))
    wrong = page.post("/you/tokens/", form | {"allowed_from": "192.0.2.7/24"})
    assert wrong.status_code == 422
    assert "write 192.0.2.0/24 for the network" in text_of(wrong)
    words = ["create_token", "otto", "--name", "cron", "--allow-from"]
    call_command(*words, "10.0.0.0/8", stdout=StringIO(), stderr=StringIO())
    assert ApiToken.objects.get(name="cron").allowed_from == ["10.0.0.0/8"]
    with pytest.raises(CommandError, match="is no network"):
        call_command(*words, "ten", stdout=StringIO(), stderr=StringIO())


def token_of(person: User, lives: timedelta, *, name: str = "deploys", at: datetime = NOW) -> ApiToken:
    return accounts.token(user=person, name=name, scopes=["read"], now=at, expires_at=at + lives)[0]


def told() -> list[tuple[str, float]]:
    """Of which token how many days ahead."""
    rows = Entry.objects.filter(kind=EntryKind.TOKEN_EXPIRES.value).order_by("pk")
    ends = [datetime.fromisoformat(row.data["expires_at"]) for row in rows]
    return [(row.data["name"], (end - row.at) / timedelta(days=1)) for row, end in zip(rows, ends, strict=True)]


def test_expiry_is_notified_once_a_week_and_once_a_day_ahead() -> None:
    otto = factories.operator()
    for days in (1, 3, 10, 30):
        token_of(otto, timedelta(days=days), name=f"{days} days")
    tokens.end_token(prefix=token_of(otto, timedelta(days=30), name="revoked").prefix, now=NOW)
    token_of(factories.viewer(), timedelta(days=30), name="orphaned")
    accounts.change_person(username="vera", active=False, now=NOW)
    for hour in range(0, 31 * 24, 6):
        tokens.tidy_up(now=NOW + timedelta(hours=hour))
    # Short-lived tokens get only useful notices.
    assert told() == [("3 days", 1.0), ("10 days", 1.0), ("30 days", 7.0), ("30 days", 1.0)]
    row = Entry.objects.filter(kind=EntryKind.TOKEN_EXPIRES.value)[0]
    assert is_personal(EntryKind(row.kind), row.data)


def test_missed_expiry_notices_collapse_into_the_nearest() -> None:
    token_of(factories.operator(), timedelta(days=30))
    assert tokens.tell_expiring(now=NOW + timedelta(days=29.5)) == 1
    assert tokens.tell_expiring(now=NOW + timedelta(days=29.6)) == 0
    assert told() == [("deploys", 0.5)]


def test_ones_own_page_says_which_expires_soon() -> None:
    otto, now = factories.operator(), datetime.now(UTC)
    token_of(otto, timedelta(days=30), name="later", at=now)
    token_of(otto, timedelta(days=3), name="soon", at=now)
    body = text_of(logged_in(otto).get("/you/"))
    assert "Your token “soon” expires at" in body
    assert "Your token “later”" not in body


# A stolen administrator token: it admits no person and creates nothing that exceeds it. When it is revoked, all that
# it created ends with it.


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
        there = problem(who.delete(f"tokens/{prefix}/"), 403, "not-permitted")
        # Nor do they learn whether it is there.
        nowhere = problem(who.delete("tokens/dd_0123456789ab/"), 403, "not-permitted")
        assert there["detail"] == nowhere["detail"]
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


@pytest.mark.parametrize("reconciled", [False, True])
def test_what_it_made_ends_with_it_however_it_ended(ada: User, reconciled: bool) -> None:
    first, second, third = chain(ada)
    mail = third.post("channels/", MAIL)
    assert mail.status_code == 201, mail.content
    join = third.post("join-tokens/", {"comment": "rack 7", "expires_in_seconds": 30 * 86_400}).json()["token"]
    # Neither lives longer than the first of them.
    assert JoinToken.objects.get(comment="rack 7").expires_at <= of_ada().expires_at
    assert ApiToken.objects.get(name="made 1").expires_at <= of_ada().expires_at
    if reconciled:
        # Revoked neither by a call nor by a page, and no reconciliation has run yet.
        ApiToken.objects.filter(pk=of_ada().pk).update(revoked_at=datetime.now(UTC))
    else:
        assert in_person(ada).delete(f"tokens/{of_ada().prefix}/").status_code == 204
    for who in (first, second, third):
        problem(who.get("me/"), 401, "not-authenticated")
    with pytest.raises(Refused, match="join-token-refused"):
        enrolment.enrol(request=wire.EnrolRequest(**(ASKING | {"join_token": join})), now=datetime.now(UTC))
    assert not Machine.objects.exists()
    for _ in range(3 if reconciled else 0):
        tokens.tidy_up(now=datetime.now(UTC))
    assert not ApiToken.objects.filter(name__startswith="made", revoked_at=None).exists()
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


def test_it_ends_while_it_makes_another(ada: User) -> None:
    who = caller(ada)
    row = of_ada()
    ApiToken.objects.filter(pk=row.pk).update(revoked_at=datetime.now(UTC))
    acting = actors.person(ada, "api", token=row)
    sent = tokens.MakeTokenSerializer(data={"name": "x", "scopes": ["read"]})
    with refused("token-ended"):
        tokens.create_token(sent, actor=acting, now=datetime.now(UTC))
    problem(who.get("me/"), 401, "not-authenticated")
