"""Tokens, accounts, calendars and lines of the mapping, as tests create and change them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import calendars, factors, services, sessions, sign_on, tokens
from fleet.accounts.models import PersonSession, SignOnGrant
from fleet.domain import actor as actors
from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.secrets import hash_of
from fleet.models import ApiToken, CalendarFeed, JoinToken, ServiceAccount
from fleet.operations import step_up
from fleet.operations.machines import entrance


def join_token(
    *,
    now: datetime,
    expires_in: timedelta = timedelta(days=1),
    actor: Actor = COMMAND_LINE,
    set_name: str = "",
    comment: str = "",
    **sent: Any,
) -> tuple[JoinToken, str]:
    """Return a new join token with its plain text."""
    values = {"comment": comment, "set": set_name, "expires_in_seconds": int(expires_in.total_seconds()), **sent}
    return entrance.create_join_token(entrance.JoinTokenRequestSerializer(data=values), actor=actor, now=now)


def token(
    *,
    user: User,
    now: datetime,
    expires_at: datetime | None = None,
    actor: Actor = COMMAND_LINE,
    **sent: Any,
) -> tuple[ApiToken, str]:
    """Return a new token of this user with its plain text."""
    lifetime = expires_at - now if expires_at else timedelta(days=90)
    data = {**sent, "expires_in_seconds": int(lifetime.total_seconds())}
    return tokens.issue_token(tokens.MakeTokenSerializer(data=data), user=user, now=now, actor=actor)


def add_app(user: User) -> tuple[str, list[str]]:
    """Add an authenticator app to this user. Return its secret and the recovery codes."""
    # Long ago, so that today's codes are fresh.
    secret, at = factors.new_secret(), datetime.fromtimestamp(0, UTC)
    code, who = factors.code_at(secret, 0), actors.person(user, "page")
    return secret, factors.add_app(actor=who, secret=secret, code=code, now=at)


def prove(client: Client) -> Client:
    """Note in the session of this client that its user has just proved who they are. Return the client."""
    session = client.session
    step_up.note(session, at=datetime.now(UTC))
    session.save()
    return client


def calendar(*, actor: Actor, now: datetime, **sent: str) -> tuple[CalendarFeed, str]:
    """Return a new calendar of the actor with its plain text."""
    return calendars.make(calendars.CalendarForm(sent), actor=actor, now=now)


def map_group(
    *, value: str, group: str, actor: Actor, now: datetime, scopes: Sequence[tuple[str, str]] = ()
) -> SignOnGrant:
    """Return a new line of the mapping."""
    pairs = [{"kind": kind, "pattern": pattern} for kind, pattern in scopes]
    sent = sign_on.GrantRequestSerializer(data={"value": value, "group": group, "scopes": pairs})
    return sign_on.create(sent, actor=actor, now=now)


def make_person(*, now: datetime, actor: Actor = COMMAND_LINE, **sent: Any) -> User:
    """Return a new user."""
    return services.make_person(services.MakePersonSerializer(data=sent), now=now, actor=actor)[0]


def change_person(*, username: str, now: datetime, actor: Actor = COMMAND_LINE, **sent: Any) -> User:
    """Change the rights or the access of a user."""
    return services.change_person(services.ChangePersonSerializer(data=sent), username=username, now=now, actor=actor)


def make_service(*, now: datetime, actor: Actor = COMMAND_LINE, **sent: Any) -> ServiceAccount:
    """Return a new service account."""
    return services.make_service(services.MakeServiceSerializer(data=sent), now=now, actor=actor)


def change_service(*, username: str, now: datetime, actor: Actor = COMMAND_LINE, **sent: Any) -> ServiceAccount:
    """Change the owner or purpose of a service account."""
    serializer = services.ChangeServiceSerializer(data=sent)
    return services.change_service(serializer, username=username, now=now, actor=actor)


FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"


def a_session(person: User, *, agent: str = FIREFOX, address: str = "192.0.2.1") -> PersonSession:
    """Return a session of this person that stays open, begun without a browser."""
    client = Client()
    client.force_login(person)
    key, now = client.session.session_key or "", datetime.now(UTC)
    sessions.begin(user=person, session_key=key, way="password", agent=agent, address=address, now=now)
    return PersonSession.objects.get(user=person, key_hash=hash_of(key))
