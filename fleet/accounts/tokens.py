"""API tokens of users, lookup of the user for a token or session, and periodic maintenance: expiry notifications, and
revocation of credentials that an expired token created.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.db.models import F, Q
from django.utils.crypto import constant_time_compare

from fleet.accounts import sessions, sign_on
from fleet.accounts.sessions import TOKENS
from fleet.domain.actor import COMMAND_LINE, DRYDOCK, Actor
from fleet.domain.addresses import NetworkFault, allows, beyond, read_networks
from fleet.domain.people import TOKEN_SCOPES, Right
from fleet.domain.policy.rules import Fault
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.sign_on import ToldByProxy
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken
from fleet.models.people import rights_of, service_of
from fleet.operations import rights as of_rights
from fleet.operations.audited import AuditedForm, AuditedSerializer, Sent, save_audited
from fleet.operations.inputs import LifetimeField
from fleet.operations.rights import require, require_administrator, require_change, user_named
from fleet.operations.timeline.entries import tell

DAY = 86_400
NETWORKS = forms.Textarea({"rows": 2, "placeholder": "10.0.0.0/8"})


class TokenForm(AuditedForm):
    expires_in_seconds = forms.TypedChoiceField(
        label="Expires after",
        coerce=int,
        initial=90 * DAY,
        choices=[(days * DAY, f"{days} day{'' if days == 1 else 's'}") for days in (1, 7, 30, 90, 365)],
    )
    allowed_from = forms.CharField(label="Allowed networks", required=False, max_length=4000, widget=NETWORKS)

    class Meta(AuditedForm.Meta):
        model, fields = ApiToken, ("name", "scopes", "expires_in_seconds", "allowed_from")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["scopes"].required, self.fields["scopes"].initial = True, ["read"]

    def clean_allowed_from(self) -> list[str]:
        return [line for line in self.cleaned_data["allowed_from"].splitlines() if line.strip()]


class MakeTokenSerializer(AuditedSerializer):
    expires_in_seconds = LifetimeField("API_TOKEN_SECONDS")

    class Meta:
        model, fields = ApiToken, ("name", "scopes", "expires_in_seconds", "allowed_from")
        extra_kwargs = {"scopes": {"required": True, "min_length": 1}}


@transaction.atomic
def issue_token(
    sent: Sent,
    *,
    user: User,
    now: datetime,
    actor: Actor = COMMAND_LINE,
    check: Callable[[ApiToken], None] = lambda row: None,
) -> tuple[ApiToken, str]:
    """Create an API token for this user. Return it with the token text, which is shown once; the database stores only a
    hash.

    Each call with the token checks the current rights of the user. `check` may refuse or limit the new token. Raises
    Refused as `save_audited` does.
    """
    plain = new_secret("dd")
    row = ApiToken(prefix=prefix_of(plain), secret_hash=hash_of(plain), user=user, created_at=now)
    row.made_by, row.made_with = actor.person, actor.token

    def complete(row: ApiToken) -> Iterator[Fault]:
        row.expires_at = of_rights.expiry_within_token(now + timedelta(seconds=row.expires_in_seconds), actor)
        try:
            row.allowed_from = read_networks(row.allowed_from)
            check(row)
        except NetworkFault as fault:
            yield "allowed_from", fault.reason

    return save_audited(sent, actor, TOKENS, row=row, now=now, check=complete), plain


@transaction.atomic
def create_token(sent: Sent, *, actor: Actor, now: datetime, username: str | None = None) -> tuple[ApiToken, str]:
    """Create an API token for the actor, or as an administrator for the service account `username`. Return it with the
    token text, which is shown once.

    The token never has more rights than its account. If this call is made with a token, the new token has at most the
    scopes and source addresses of that token and ends with it. Raises Refused: `not-permitted`, `unknown-person`,
    `validation`.
    """
    if username is None:
        require(actor, Right.READ, doing="make-token")
        require_change(actor, own=True)
        user = actor.person
    else:
        require_administrator(actor, doing="make-token")
        user = user_named(username)
        require_found(service_of(user), "validation", Reason("service-unknown", name=username))
    rights = rights_of(user)

    def limit(row: ApiToken) -> None:
        for scope, right in TOKEN_SCOPES.items():
            if scope in row.scopes and not rights.may(right):
                raise Refused("not-permitted", Reason("token-needs-right", scope=scope, right=right.value))
        if actor.token is not None:
            if wider_scopes := [one for one in TOKEN_SCOPES if one in row.scopes and one not in actor.token.scopes]:
                raise Refused("not-permitted", Reason("beyond-carried-token", scope=wider_scopes[0]))
            if wider_network := beyond(row.allowed_from, actor.token.allowed_from):
                raise Refused("not-permitted", Reason("beyond-carried-addresses", network=wider_network))
            row.allowed_from = row.allowed_from or actor.token.allowed_from

    return issue_token(sent, user=user, now=now, actor=actor, check=limit)


def person_of_token(*, token: str, now: datetime, address: str | None = None) -> tuple[User, ApiToken] | None:
    """Return the user and the database row of an API token, or None if the token is unknown, expired or revoked or its
    user is disabled.

    `address` is the source address of the call; None means this server itself. Raises Refused `not-permitted` if the
    token does not accept calls from this address. A refused call does not count as a use of the token.
    """
    rows = ApiToken.objects.select_related("user__service_account__owner")
    row = rows.filter(prefix=prefix_of(token), revoked_at__isnull=True).first()
    if row is None or not constant_time_compare(row.secret_hash, hash_of(token)):
        return None
    if not of_rights.is_token_valid(row, now=now) or not row.user.is_active:
        return None
    if address is not None and not allows(row.allowed_from, address):
        raise Refused("not-permitted", Reason("token-address", address=address))
    # Accurate to a minute, which saves a write at every request.
    if row.last_used_at is None or now - row.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    return row.user, row


@transaction.atomic
def end_token(*, prefix: str, now: datetime, actor: Actor = COMMAND_LINE) -> ApiToken:
    """Revoke an API token and everything that was created with it. `prefix` is the public prefix or the whole token.

    The owner and administrators may do this. A call with a token may revoke that token, with a scope other than `read`
    also the user's other tokens, and with the scope `admin` also tokens of other users. Raises Refused: `validation` if
    the token is unknown or already ended; `not-permitted`.
    """
    row = sessions.locked(ApiToken.objects.filter(prefix=prefix_of(prefix.strip()))).first()
    if row is not None and actor.token is not None and actor.token.pk == row.pk:
        require(actor, Right.READ)
    else:
        require_change(actor, own=row is not None and (actor.person == row.user or _answers(actor, row)))
    token = require_found(row, "validation", Reason("token-unknown"))
    if token.revoked_at is not None:
        raise Refused("validation", Reason("token-ended"))
    sessions.revoke_token(token, actor=actor, now=now)
    return token


def _answers(actor: Actor, token: ApiToken) -> bool:
    """Return whether the token belongs to a service account whose owner is the actor."""
    service = service_of(token.user)
    return service is not None and actor.person is not None and service.owner_id == actor.person.pk


def person_of_session(*, session_key: str, now: datetime, told: ToldByProxy | None) -> User | None:
    """Return the user of the session with this key, or None, by the same checks as Django's own. `told` is what the
    proxy sent with this call: a session that began at a proxy is valid only while the proxy sends the same.
    """
    session = SessionStore(session_key=session_key)
    user_id, backend = session.get(SESSION_KEY), session.get(BACKEND_SESSION_KEY)
    if user_id is None or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    if backend == sign_on.PROXY_BACKEND and not sign_on.is_confirmed_by_proxy(session.get(sign_on.SAID_BY_PROXY), told):
        return None
    person = User.objects.select_related("sign_on").filter(pk=user_id, is_active=True).first()
    if person is None or (backend == sign_on.BACKEND and not sign_on.good(person, now=now)):
        return None
    same = constant_time_compare(session.get(HASH_SESSION_KEY, ""), person.get_session_auth_hash())
    return person if same else None


# Periodic maintenance of tokens and sessions.

# Days before expiry at which a token is reported, if it is valid for at least twice as long.
A_WEEK, A_DAY = 7, 1
# Limit per run.
MOST = 500


def tidy_up(*, now: datetime) -> None:
    """Run all periodic maintenance of credentials once."""
    tell_expiring(now=now)
    end_what_ended_tokens_made(now=now)
    sessions.forget_sessions(now=now)


@transaction.atomic
def tell_expiring(*, now: datetime) -> int:
    """Write a timeline entry for each token that expires within a week, and another one within a day. Return the number
    of entries. Row locks ensure that concurrent runs write each entry once.
    """
    day, week = now + timedelta(days=A_DAY), now + timedelta(days=A_WEEK)
    in_a_week = Q(notified_days=None, expires_at__gt=day, expires_at__lte=week) & _lives(2 * A_WEEK)
    unsaid = Q(notified_days=None) | Q(notified_days__gt=A_DAY)
    in_a_day = unsaid & Q(expires_at__gt=now, expires_at__lte=day) & _lives(2 * A_DAY)
    rows = ApiToken.objects.select_for_update(of=("self",), skip_locked=True).select_related("user")
    rows = rows.filter(in_a_week | in_a_day, revoked_at=None, user__is_active=True)
    expiring = list(rows.order_by("expires_at", "pk")[:MOST])
    for row in expiring:
        row.notified_days = A_DAY if row.expires_at is not None and row.expires_at <= day else A_WEEK
        row.save(update_fields=["notified_days"])
        names = {"person": row.user.get_username(), "name": row.name, "token": row.prefix}
        tell(EntryKind.TOKEN_EXPIRES, DRYDOCK, at=now, expires_at=row.expires_at, **names)
    return len(expiring)


@transaction.atomic
def end_what_ended_tokens_made(*, now: datetime) -> int:
    """Revoke everything that was created with an API token which has since expired or been revoked. Return the number
    of these API tokens.

    Created tokens stop working even before this runs, because each use also checks the token that created them.
    """
    over = Q(revoked_at__isnull=False) | Q(expires_at__lte=now)
    left = (
        Q(made__revoked_at=None, made__isnull=False)
        | Q(join_tokens__revoked_at=None, join_tokens__isnull=False)
        | Q(channels__enabled=True, channels__deleted_at=None, channels__isnull=False)
    )
    ended = list(ApiToken.objects.filter(over).filter(left).distinct().order_by("pk")[:MOST])
    for row in ended:
        sessions.end_made_with(row, actor=DRYDOCK, now=now)
    return len(ended)


def _lives(days: int) -> Q:
    return Q(expires_at__gte=F("created_at") + timedelta(days=days))
