"""API tokens of users, and the user of a token or session."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.accounts import sessions, sign_on
from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.addresses import NetworkFault, allows, beyond, read_networks
from fleet.domain.people import TOKEN_SCOPES, Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.sign_on import ToldByProxy
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken
from fleet.models.people import rights_of, service_of
from fleet.operations.rights import (
    expiry_within_token,
    is_token_valid,
    require,
    require_administrator,
    require_change,
    user_named,
)
from fleet.operations.timeline.entries import tell

MAX_TOKEN_NAME = 200
MAX_TOKEN_TIME = timedelta(days=366)


@transaction.atomic
def issue_token(
    *,
    user: User,
    name: str,
    scopes: list[str],
    now: datetime,
    expires_at: datetime | None = None,
    allowed_from: Sequence[str] = (),
    actor: Actor = COMMAND_LINE,
) -> tuple[ApiToken, str]:
    """Create a token for this user. Return it with its plain text, which is not stored; the database keeps a hash.

    Rights are checked at each call with the token. `allowed_from` are the networks from which its calls are
    accepted; empty: all. Raises Refused `validation` for an unknown scope, no scope, or an invalid network.
    """
    networks = networks_of(allowed_from)
    unknown = sorted(set(scopes) - set(TOKEN_SCOPES))
    if unknown or not scopes:
        raise Refused("validation", Reason("token-scopes", scopes=list(TOKEN_SCOPES)), unknown=unknown)
    plain = new_secret("dd")
    token = ApiToken.objects.create(
        prefix=prefix_of(plain),
        secret_hash=hash_of(plain),
        user=user,
        name=name,
        scopes=sorted(set(scopes)),
        created_at=now,
        expires_at=expires_at,
        allowed_from=networks,
        made_by=actor.person,
        made_with=actor.token,
    )
    tell(
        EntryKind.TOKEN_CREATED,
        actor,
        at=now,
        before={"token": None},
        after={
            "token": token.prefix,
            "scopes": token.scopes,
            "expires_at": expires_at,
            **({"allowed_from": networks} if networks else {}),
        },
        person=user.get_username(),
        name=name,
    )
    return token, plain


@transaction.atomic
def create_token(
    *,
    actor: Actor,
    name: str,
    scopes: list[str],
    expires_in: timedelta,
    now: datetime,
    allowed_from: Sequence[str] = (),
    username: str | None = None,
) -> tuple[ApiToken, str]:
    """Create a token for the actor, or as an administrator for the service account `username`. Return it with its
    plain text, which is not stored.

    The token has at most the rights of its account. If the call came with a token, the new one has at most its
    scopes and addresses, and ends with it. Raises Refused: `not-permitted`, `unknown-person`, `validation`.
    """
    if username is None:
        require(actor, Right.READ, doing="make-token")
        require_change(actor, own=True)
        user = actor.person
    else:
        require_administrator(actor, doing="make-token")
        user = user_named(username)
        require_found(service_of(user), "validation", Reason("service-unknown", name=username))
    name = tidy(name)
    if not name or len(name) > MAX_TOKEN_NAME:
        raise Refused("validation", Reason("token-name-length", longest=MAX_TOKEN_NAME))
    if not timedelta(0) < expires_in <= MAX_TOKEN_TIME:
        raise Refused("validation", Reason("token-time", days=MAX_TOKEN_TIME.days))
    rights = rights_of(user)
    for scope, right in TOKEN_SCOPES.items():
        if scope in scopes and not rights.may(right):
            raise Refused("not-permitted", Reason("token-needs-right", scope=scope, right=right.value))
    networks, expires_at = networks_of(allowed_from), expiry_within_token(now + expires_in, actor)
    if actor.token is not None:
        if wider_scopes := [scope for scope in TOKEN_SCOPES if scope in scopes and scope not in actor.token.scopes]:
            raise Refused("not-permitted", Reason("beyond-carried-token", scope=wider_scopes[0]))
        if wider_network := beyond(networks, actor.token.allowed_from):
            raise Refused("not-permitted", Reason("beyond-carried-addresses", network=wider_network))
        networks = networks or actor.token.allowed_from
    return issue_token(
        user=user, name=name, scopes=scopes, now=now, expires_at=expires_at, allowed_from=networks, actor=actor
    )


def networks_of(texts: Sequence[str]) -> list[str]:
    """Return networks in the stored form of a token. Raises Refused `validation` for the field `allowed_from`."""
    try:
        return read_networks(texts)
    except NetworkFault as fault:
        errors = [{"field": "allowed_from", "message": fault.reason}]
        raise Refused("validation", fault.reason, errors=errors) from fault


def person_of_token(*, token: str, now: datetime, address: str | None = None) -> tuple[User, ApiToken] | None:
    """Return the user and the token; None if the token is unknown, expired or revoked, or its user disabled.

    `address` is the source of the call; None: this server itself. Raises Refused `not-permitted` if the token does
    not accept calls from there; this does not count as a use.
    """
    prefix = prefix_of(token)
    row = (
        ApiToken.objects.select_related("user__service_account__owner")
        .filter(prefix=prefix, revoked_at__isnull=True)
        .first()
    )
    if row is None or not constant_time_compare(row.secret_hash, hash_of(token)):
        return None
    if not is_token_valid(row, now=now) or not row.user.is_active:
        return None
    if address is not None and not allows(row.allowed_from, address):
        raise Refused("not-permitted", Reason("token-address", address=address))
    # Accurate to a minute, which saves a write at every request.
    if row.last_used_at is None or now - row.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    return row.user, row


@transaction.atomic
def end_token(*, prefix: str, now: datetime, actor: Actor = COMMAND_LINE) -> ApiToken:
    """End a token and everything that it created. `prefix` is its public prefix or the token itself.

    Its owner and administrators may end it. A token may end itself with any scope, other tokens of its user unless
    it only reads, and tokens of others with the scope `admin`. Raises Refused: `validation` for a token that is
    unknown or has ended; `not-permitted`, also for an unknown one if the actor may end only their own.
    """
    found = ApiToken.objects.select_related("user").filter(prefix=prefix_of(prefix.strip())).first()
    if found is not None and actor.token is not None and actor.token.pk == found.pk:
        require(actor, Right.READ)
    else:
        require_change(actor, own=found is not None and (actor.person == found.user or _answers(actor, found)))
    token = require_found(found, "validation", Reason("token-unknown"))
    if not sessions.revoke_token(token, actor=actor, now=now):
        raise Refused("validation", Reason("token-ended"))
    return token


def _answers(actor: Actor, token: ApiToken) -> bool:
    """Return whether the token belongs to a service account that the actor owns."""
    service = service_of(token.user)
    return service is not None and actor.person is not None and service.owner_id == actor.person.pk


def person_of_session(*, session_key: str, now: datetime, told: ToldByProxy | None = None) -> User | None:
    """Return the user of this session key by the same checks as Django's; None if there is none. `told` is the proxy's
    statement in this call: a session that began at a proxy is valid only with the same statement.
    """
    session = SessionStore(session_key=session_key)
    user_id, backend = session.get(SESSION_KEY), session.get(BACKEND_SESSION_KEY)
    if user_id is None or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    if backend == sign_on.PROXY_BACKEND and not sign_on.is_confirmed_by_proxy(session.get(sign_on.SAID_BY_PROXY), told):
        return None
    person = User.objects.select_related("sign_on").filter(pk=user_id, is_active=True).first()
    if person is None:
        return None
    if backend == sign_on.BACKEND and not sign_on.good(person, now=now):
        return None
    if not constant_time_compare(session.get(HASH_SESSION_KEY, ""), person.get_session_auth_hash()):
        return None
    return person
