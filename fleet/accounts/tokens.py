"""The tokens of people, and who a token or a session belongs to."""

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
from fleet.operations.rights import expiry_within_token, is_token_valid, require, require_change
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
    """A new token of this person. The plain text is returned this once; a hash is kept.

    Rights are asked anew at each call that carries it. `allowed_from` are networks from which its calls count;
    none: from everywhere. Raises Refused `validation` for an unknown scope or none, and for what is no network.
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


def make_own_token(
    *,
    actor: Actor,
    name: str,
    scopes: list[str],
    expires_in: timedelta,
    now: datetime,
    allowed_from: Sequence[str] = (),
    carried: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """A token for oneself, which may no more than its person; the plain text is returned this once.

    `carried` is the token that the request itself came with: the new one may no more, counts from nowhere else and
    ends with it, so that a token in wrong hands cannot outlive itself; one that only reads makes none. Raises Refused
    `not-permitted` or `validation`.
    """
    require(actor, Right.READ, doing="make-token")
    require_change(actor, own=True, carried=carried)
    return make_within(
        actor.person,
        actor=actor,
        name=name,
        scopes=scopes,
        expires_in=expires_in,
        now=now,
        allowed_from=allowed_from,
        carried=carried,
    )


@transaction.atomic
def make_within(
    user: User,
    *,
    actor: Actor,
    name: str,
    scopes: list[str],
    expires_in: timedelta,
    now: datetime,
    allowed_from: Sequence[str],
    carried: ApiToken | None,
) -> tuple[ApiToken, str]:
    """A token for this account, within its rights and what the token that asks for it may itself; whether the actor may
    make it was asked before. Raises Refused `not-permitted` or `validation`.
    """
    name = tidy(name)
    if not name or len(name) > MAX_TOKEN_NAME:
        raise Refused("validation", Reason("token-name-length", longest=MAX_TOKEN_NAME))
    if not timedelta(0) < expires_in <= MAX_TOKEN_TIME:
        raise Refused("validation", Reason("token-time", days=MAX_TOKEN_TIME.days))
    rights = rights_of(user)
    for scope, right in TOKEN_SCOPES.items():
        if scope in scopes and not rights.may(right):
            raise Refused("not-permitted", Reason("token-needs-right", scope=scope, right=right.value))
    expires_at, networks = now + expires_in, networks_of(allowed_from)
    if carried is not None:
        more = [scope for scope in TOKEN_SCOPES if scope in scopes and scope not in carried.scopes]
        if more:
            raise Refused("not-permitted", Reason("beyond-carried-token", scope=more[0]))
        expires_at = expiry_within_token(expires_at, carried=carried)
        if wider := beyond(networks, carried.allowed_from):
            raise Refused("not-permitted", Reason("beyond-carried-addresses", network=wider))
        networks = networks or carried.allowed_from
    return issue_token(
        user=user, name=name, scopes=scopes, now=now, expires_at=expires_at, allowed_from=networks, actor=actor
    )


def networks_of(texts: Sequence[str]) -> list[str]:
    """Networks as a token keeps them. Raises Refused `validation`, about the field `allowed_from`."""
    try:
        return read_networks(texts)
    except NetworkFault as fault:
        errors = [{"field": "allowed_from", "message": fault.reason}]
        raise Refused("validation", fault.reason, errors=errors) from fault


def person_of_token(*, token: str, now: datetime, address: str | None = None) -> tuple[User, ApiToken] | None:
    """Whose token it is; None when unknown, expired, revoked, or of a person who may not log in. `address` is from
    where it came; None: from this server itself. Raises Refused `not-permitted` where its calls do not count from
    there: that is no use of it.
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
    # To the minute is enough, and spares a write at every request.
    if row.last_used_at is None or now - row.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    return row.user, row


@transaction.atomic
def end_token(*, prefix: str, now: datetime, actor: Actor = COMMAND_LINE, carried: ApiToken | None = None) -> ApiToken:
    """End a token at once, named by its public prefix or by itself. `carried` is the token that asks for it.

    Its owner and admins may; an admin's token only with the scope of admins, and one that only reads ends itself
    alone. What was made by it ends with it. Raises Refused `validation` for one that is not known or has ended,
    `not-permitted` also for one that is not known where the actor may end their own only.
    """
    found = ApiToken.objects.select_related("user").filter(prefix=prefix_of(prefix.strip())).first()
    if found is not None and carried is not None and carried.pk == found.pk:
        # Whoever has found it may end it, whatever else it may do.
        require(actor, Right.READ)
    elif found is not None and (actor.person == found.user or _answers(actor, found)):
        require_change(actor, own=True, carried=carried)
    else:
        require_change(actor, own=False, carried=carried)
    token = require_found(found, "validation", Reason("token-unknown"))
    if not sessions.revoke_token(token, actor=actor, now=now):
        raise Refused("validation", Reason("token-ended"))
    return token


def _answers(actor: Actor, token: ApiToken) -> bool:
    """Whether it is a service account's for whom the actor answers."""
    service = service_of(token.user)
    return service is not None and actor.person is not None and service.owner_id == actor.person.pk


def person_of_session(*, session_key: str, now: datetime, told: ToldByProxy | None = None) -> User | None:
    """The person logged in under this session key, by the same checks as Django's own; None when there is none. `told`
    is what the login proxy said with the call: a session that began there counts with it alone.
    """
    session = SessionStore(session_key=session_key)
    user_id, backend = session.get(SESSION_KEY), session.get(BACKEND_SESSION_KEY)
    if user_id is None or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    if backend == sign_on.PROXY_BACKEND and not sign_on.spoken_for(session.get(sign_on.SAID_BY_PROXY), told):
        return None
    person = User.objects.select_related("sign_on").filter(pk=user_id, is_active=True).first()
    if person is None:
        return None
    if backend == sign_on.BACKEND and not sign_on.good(person, now=now):
        return None
    if not constant_time_compare(session.get(HASH_SESSION_KEY, ""), person.get_session_auth_hash()):
        return None
    return person
