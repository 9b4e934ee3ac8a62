"""Rights from a token's claims: a user never gets more, in any set, than some line of the mapping grants."""

from ipaddress import ip_network
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.people import GROUPS, Place, Right
from fleet.domain.sign_on import (
    TOLD_BY_PROXY,
    ClaimFault,
    Grant,
    HeaderLogin,
    ToldByProxy,
    identity_of,
    issuer_fault,
    name_of,
    rights_by,
    told_by_proxy,
    values_of,
)
from fleet.domain.trace import CALL, Call, Trace
from fleet.gateway.django_pages import _environ
from fleet.models.people import rights_of
from tests import accounts, factories
from tests.dashboard.conftest import text_of

pytestmark = pytest.mark.django_db
TENANT = "6babcaad-604b-40ac-a9d7-9fd97c0b779f"
ENTRA = f"https://login.microsoftonline.com/{TENANT}/v2.0"
VALUES = ("web-team", "shop-team", "everybody", "admins")
SCOPES = st.lists(
    st.tuples(st.sampled_from(["name", "service"]), st.sampled_from(["web*", "shop", "*"])), max_size=2, unique=True
)
GRANTS = st.lists(
    st.builds(Grant, st.sampled_from(VALUES), st.sampled_from(GROUPS), SCOPES.map(tuple)),
    max_size=5,
    unique_by=lambda grant: grant.value,
)
PLACES = [Place("availability_set", name, service) for name in ("web-1", "shop-1", "dock") for service in ("", "shop")]
HELD = st.sets(st.sampled_from(VALUES))


@given(GRANTS, HELD)
def test_the_highest_group_counts_wherever_a_line_gives_it_and_no_right_is_beyond_a_single_line(
    grants: list[Grant], held: set[str]
) -> None:
    found = rights_by(grants, held)
    assert rights_by(list(reversed(grants)), sorted(held)) == found
    alone = {grant: rights for grant in grants if (rights := rights_by([grant], held)) is not None}
    assert (found is None) == (not alone)
    if found is None:
        return
    assert found.role == max((grant.group for grant in alone), key=GROUPS.index)
    for right, place in product(Right, PLACES):
        if found.may(right, place):
            assert any(rights.may(right, place) for rights in alone.values()), (right, place)
        for grant, rights in alone.items():
            assert grant.group != found.role or found.may(right, place) or not rights.may(right, place)


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "s", "oid": "A1", "tid": TENANT, **more}


def test_entra_names_people_by_tenant_and_object_and_others_by_subject() -> None:
    assert identity_of(claims(), issuer=ENTRA, claim="roles").subject == f"{TENANT}:a1"
    # A user who chooses their own claims at another provider cannot claim an identity in a directory.
    assert identity_of(claims(), issuer="https://login.example/realms/x", claim="roles").subject == "s"


@pytest.mark.parametrize(
    ("issuer", "said", "reason"),
    [
        (ENTRA, {"tid": "another"}, "other-tenant"),
        (ENTRA, {"tid": None}, "other-tenant"),
        (ENTRA, {"oid": ""}, "claim-missing"),
        (ENTRA, {"oid": 7}, "claim-missing"),
        ("https://login.example", {"sub": "x" * 300}, "claim-missing"),
        ("https://login.example", {"sub": "a\nb"}, "claim-missing"),
        (ENTRA, {"_claim_names": {"roles": "src1"}}, "claim-overage"),
        (ENTRA, {"roles": [f"r{n}" for n in range(501)]}, "claim-overage"),
    ],
)
def test_token_without_an_identity_is_refused(issuer: str, said: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClaimFault) as caught:
        identity_of(claims(**said), issuer=issuer, claim="roles")
    assert caught.value.reason.code == reason


def test_roles_and_groups_are_read_where_they_lie() -> None:
    assert values_of({"roles": ["b", "a", "a", "", 7, None, "x" * 201]}, "roles") == ("a", "b")
    assert values_of({"roles": "one"}, "roles") == ("one",)
    assert values_of({"realm_access": {"roles": ["ops"]}}, "realm_access.roles") == ("ops",)
    assert values_of({"https://x.example/roles": ["ops"]}, "https://x.example/roles") == ("ops",)
    assert values_of({"realm_access": "x"}, "realm_access.roles") == ()
    # Too many groups say nothing about roles, which are all there.
    assert values_of({"roles": ["a"], "_claim_names": {"groups": "src1"}, "hasgroups": True}, "roles") == ("a",)
    for beyond in ({"hasgroups": True}, {"_claim_names": {"groups": "src1"}}):
        # Also if the token names some of the groups.
        with pytest.raises(ClaimFault):
            values_of({"groups": ["a"], **beyond}, "groups")


@given(st.dictionaries(st.sampled_from(["preferred_username", "upn", "email", "name"]), st.text() | st.integers()))
def test_claimed_name_becomes_a_valid_user_name_or_none(said: dict[str, Any]) -> None:
    name = name_of(said)
    assert len(name) <= 100
    assert all(letter.isalnum() or letter in "_.@+-" or letter.isidentifier() or ("a" + letter).isidentifier()
               for letter in name)  # fmt: skip


def test_names_are_tidied() -> None:
    assert name_of({"preferred_username": " ada@contoso.example "}) == "ada@contoso.example"
    assert name_of({"name": "Ada <b>Admin</b>"}) == "Ada-b-Admin-b"
    assert name_of({"preferred_username": "\x00", "upn": "ada"}) == "ada"


@pytest.mark.parametrize(
    ("reason", "issuers"),
    [
        (None, f"{ENTRA} http://127.0.0.1:8170/x"),
        ("issuer-https", "http://login.example/ https://a:b@login.example/ https://login.example/?x=1"),
        ("issuer-https", "ftp://login.example https:// https://[::1"),
        ("issuer-shared", " ".join(ENTRA.replace(TENANT, shared) for shared in ("common", "Organizations"))),
    ],
)
def test_one_tenants_issuer_is_trusted_and_no_other(reason: str | None, issuers: str) -> None:
    for issuer in issuers.split():
        fault = issuer_fault(issuer)
        assert (fault and fault.code) == reason, issuer


SECRET = b"s" * 32
BY = HeaderLogin((ip_network("10.0.0.1/32"),), SECRET.decode(), "x-remote-user", "x-groups")
NAMED = (b"x-remote-user", b"otto")
PROVED = (b"x-proxy-secret", SECRET)
OTHER = (b"accept", b"text/html")


def test_a_proxy_is_believed_by_its_socket_and_its_secret_together() -> None:
    groups = (b"X-Groups", b"web, shop,,web")
    assert told_by_proxy([NAMED, PROVED, OTHER], peer="10.0.0.1", by=BY) == ([OTHER], ToldByProxy("otto", None))
    assert told_by_proxy([NAMED, PROVED, groups], peer="10.0.0.1", by=BY) == ([], ToldByProxy("otto", ("shop", "web")))


@pytest.mark.parametrize(
    ("headers", "peer"),
    [
        *(([NAMED, PROVED], "10.0.0.2"), ([NAMED, PROVED], "")),
        ([NAMED, PROVED, (b"x-forwarded-for", b"10.0.0.1")], "10.0.0.2"),
        *(([NAMED, *more], "10.0.0.1") for more in ([], [(b"x-proxy-secret", b"t" * 32)], [PROVED] * 2)),
        *(([NAMED, other, PROVED], "10.0.0.1") for other in (NAMED, (b"X-Remote-User", b"ada"))),
        *(([(b"x-remote-user", name), PROVED], "10.0.0.1") for name in (b"otto, ada", b"  ", b"o\ntto")),
        ([NAMED, PROVED, (b"x-groups", b"a"), (b"x-groups", b"b")], "10.0.0.1"),
    ],
)
def test_untrusted_peer_is_not_believed_and_its_headers_are_removed(
    headers: list[tuple[bytes, bytes]], peer: str
) -> None:
    left, told = told_by_proxy([*headers, OTHER], peer=peer, by=BY)
    assert told is None
    assert {name.lower() for name, _ in left} <= {b"accept", b"x-forwarded-for"}


def test_a_secret_that_can_be_guessed_is_none() -> None:
    for secret in ("", "short"):
        by = HeaderLogin(BY.networks, secret, BY.name, BY.groups)
        assert told_by_proxy([NAMED, (b"x-proxy-secret", secret.encode())], peer="10.0.0.1", by=by)[1] is None


# Sign-in by a proxy: each request acts as the user whom a trusted proxy names, and no other caller can name one.


@pytest.fixture(autouse=True)
def believed(settings: Any) -> None:
    settings.PROXY_SIGN_IN = BY


def got(client: Client, told: ToldByProxy | None, address: str = "/machines/") -> Any:
    """As the gateway hands it on."""
    return client.get(address, **({TOLD_BY_PROXY: told} if told else {}))


def me(client: Client, told: ToldByProxy | None) -> str:
    answer = got(client, told, "/api/v1/me/")
    return str(answer.json().get("username", answer.status_code))


def test_each_request_is_of_whom_the_proxy_names() -> None:
    client = Client()
    factories.operator(), factories.viewer()
    assert me(client, ToldByProxy("otto", None)) == "otto"
    assert me(client, ToldByProxy("otto", None)) == "otto"
    assert me(client, ToldByProxy("vera", None)) == "vera"
    assert got(client, None)["Location"].startswith("/accounts/login/")
    assert me(client, None) == "401"


def test_unknown_and_blocked_names_are_refused(settings: Any) -> None:
    settings.EMERGENCY_ACCOUNT = "ada"
    factories.admin()
    User.objects.filter(pk=factories.operator().pk).update(is_active=False)
    for name in ("stranger", "otto", "ada", "OTTO"):
        answer = got(Client(), ToldByProxy(name, None))
        assert answer.status_code == 403, name
    assert "There is no user stranger" in text_of(got(Client(), ToldByProxy("stranger", None)))


def test_where_it_names_groups_the_mapping_says_what_they_may() -> None:
    admin = factories.acting(factories.admin())
    otto = factories.operator()
    accounts.map_group(actor=admin, value="ops", group="approver", now=factories.NOW, scopes=[("name", "web*")])
    client = Client()
    assert got(client, ToldByProxy("otto", ("ops", "x"))).status_code == 200
    found = rights_of(User.objects.get(pk=otto.pk))
    assert (found.role, found.scopes) == ("approver", (("name", "web*"),))
    assert got(client, ToldByProxy("otto", ("x",))).status_code == 403
    assert rights_of(User.objects.get(pk=otto.pk)).role == ""


@pytest.mark.parametrize(
    ("peer", "headers", "named"),
    [
        ("10.0.0.1", [(b"x-remote-user", b"otto"), PROVED], True),
        ("10.0.0.1", [(b"X_Remote_User", b"otto"), PROVED], False),
        ("10.0.0.9", [(b"x-remote-user", b"otto"), PROVED], False),
    ],
)
def test_the_gateway_hands_on_only_what_it_believes(peer: str, headers: list[tuple[bytes, bytes]], named: bool) -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": headers,
        "client": (peer, 1),
        "server": ("x", 80),
        "http_version": "1.1",
        CALL: Call(Trace.new()),
    }
    environ = _environ(scope, b"")
    assert (TOLD_BY_PROXY in environ) is named
    assert not [name for name in environ if name.startswith("HTTP_X_")]


def test_disabled_proxy_sign_in_refuses_names_and_ends_sessions(settings: Any) -> None:
    client = Client()
    factories.operator()
    assert me(client, ToldByProxy("otto", None)) == "otto"
    settings.PROXY_SIGN_IN = HeaderLogin((), "", "x-remote-user", "x-remote-groups")
    assert me(client, ToldByProxy("otto", None)) == "401"
