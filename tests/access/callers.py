"""Callers of the access matrix: each column is a person, a program or a machine with one kind of login."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from drydock_agent.backend.machine_key import Key, authorization

from fleet.accounts import sign_on
from fleet.accounts.models import SignOn
from fleet.domain.secrets import new_secret
from fleet.domain.sign_on import TOLD_BY_PROXY, HeaderLogin, ToldByProxy
from fleet.models import ApiToken, AvailabilitySet, Scope
from tests import accounts, factories
from tests.access.world import ISSUER, World
from tests.rows import TokenFactory

PROXY = HeaderLogin((ip_network("10.0.0.1/32"),), "a-secret-that-nobody-guesses", "x-remote-user", "x-remote-groups")

# Each column and its caller. The columns after `operator` are the same person and differ only as described.
COLUMNS = {
    "anonymous": "not signed in",
    "half": "correct password, second factor not given yet",
    "blocked": "the session of a user who was deactivated later",
    "groupless": "a user in no group",
    "viewer": "a viewer by session",
    "operator": "an operator by session, just verified",
    "here": "an operator whose scopes cover the objects in the address",
    "elsewhere": "an operator whose scopes cover another set only",
    "elsewhere-narrow": "the same with `SCOPED_READ_ACCESS`",
    "unproved": "an operator who signed in long ago, where each set requires verification",
    "by-provider": "an operator by single sign-on",
    "by-proxy": "an operator by proxy sign-in",
    "approver": "an approver by session",
    "admin": "an admin by session",
    "superuser": "a superuser in no group, by session",
    "service-token": "a service account's token of all scopes; it has the role of an operator",
    "viewer-token": "a viewer's token of all scopes",
    "read-token": "an admin's token of the scope `read`",
    "approve-token": "an admin's token of the scope `approve`",
    "admin-token": "an admin's token of the scope `admin`",
    "strange-token": "an admin's token of all scopes that is valid only from another network",
    "old-token": "an admin's token of all scopes that has expired",
    "ended-token": "an admin's token of all scopes that was deleted",
    "machine": "a machine by its credential",
    "key": "a machine by a call that it signed",
    "join-token": "a join token instead of a token",
    "calendar": "the secret of a calendar's address, instead of a token",
}


@dataclass
class Caller:
    """What a request carries: a session's key, headers, what the layer below says (`environ`); the `settings` of the
    installation, and what is done `before` the call.
    """

    session: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    environ: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    before: Callable[[], object] | None = None


def by_session(user: User, *, proved: bool = True, backend: str | None = None, **more: Any) -> Caller:
    client = Client()
    client.force_login(user, backend=backend)
    if proved:
        accounts.prove(client)
    return Caller(client.cookies[settings.SESSION_COOKIE_NAME].value, **more)


def by_token(user: User, *scopes: str, **changes: Any) -> Caller:
    secret = new_secret("dd")
    token = TokenFactory(secret=secret, user=user, **({"scopes": list(scopes)} if scopes else {}))
    ApiToken.objects.filter(pk=token.pk).update(**changes)
    return bearer(secret)


def bearer(secret: str) -> Caller:
    return Caller(headers={"authorization": f"Bearer {secret}"})


def half_in() -> Caller:
    """As the login leaves it between its two steps."""
    accounts.add_app(factories.operator("hal"))
    client = Client()
    answer = client.post("/accounts/login/", {"login": "hal", "password": "harbour-hal"})
    assert answer["Location"] == "/accounts/second-factor/"
    return Caller(client.cookies[settings.SESSION_COOKIE_NAME].value)


def scoped(name: str, pattern: str, **more: Any) -> Caller:
    user = factories.operator(name)
    Scope.objects.create(user=user, kind="name", pattern=pattern)
    return by_session(user, **more)


def by_provider() -> Caller:
    user, now = factories.operator("olga"), datetime.now(UTC)
    SignOn.objects.create(
        issuer=ISSUER, subject="olga", user=user, valid_until=now + timedelta(hours=1), linked_at=now, checked_at=now
    )
    return by_session(user, backend=sign_on.BACKEND)


def by_proxy() -> Caller:
    """Behind the first request, which is their login."""
    factories.operator("orla")
    found = Caller(environ={TOLD_BY_PROXY: ToldByProxy("orla", None)}, settings={"PROXY_SIGN_IN": PROXY})
    client = Client()
    with override_settings(**found.settings):
        assert client.get("/you/", **found.environ).status_code == 200
    found.session = client.cookies[settings.SESSION_COOKIE_NAME].value
    return found


def blocked() -> Caller:
    user = factories.admin("bert")
    found = by_session(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    return found


def callers(world: World) -> dict[str, Caller]:
    """By the names of the columns."""
    now = datetime.now(UTC)
    otto, ada = factories.operator("otto"), factories.admin("ada")
    root = User.objects.create(username="root", is_superuser=True, is_staff=True)
    signed = authorization(Key(world.fleet.agents["vm1"].machine.vm_id, 1, "00" * 32), "GET", "/", None, now)
    return {
        "anonymous": Caller(),
        "half": half_in(),
        "blocked": blocked(),
        "groupless": by_session(User.objects.create(username="gert")),
        "viewer": by_session(factories.viewer("vera")),
        "operator": by_session(otto),
        "here": scoped("hera", "web*"),
        "elsewhere": scoped("elsa", "dock*"),
        "elsewhere-narrow": scoped("nina-narrow", "dock*", settings={"SCOPED_READ_ACCESS": True}),
        "unproved": by_session(otto, proved=False, before=lambda: AvailabilitySet.objects.update(step_up=True)),
        "by-provider": by_provider(),
        "by-proxy": by_proxy(),
        "approver": by_session(factories.approver("anna")),
        "admin": by_session(ada),
        "superuser": by_session(root),
        "service-token": by_token(User.objects.get(username="robot")),
        "viewer-token": by_token(factories.viewer("vera")),
        "read-token": by_token(ada, "read"),
        "approve-token": by_token(ada, "approve"),
        "admin-token": by_token(ada, "admin"),
        "strange-token": by_token(ada, allowed_from=["192.0.2.0/24"]),
        "old-token": by_token(ada, created_at=now - timedelta(days=2), expires_at=now - timedelta(days=1)),
        "ended-token": by_token(ada, revoked_at=now),
        "machine": bearer(world.secrets["machine"]),
        "key": Caller(headers={"authorization": signed}),
        "join-token": bearer(world.secrets["join-token"]),
        "calendar": bearer(world.secrets["calendar"]),
    }
