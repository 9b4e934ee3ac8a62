"""The tokens of people, and who a token or a session belongs to."""

from datetime import datetime, timedelta

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.domain.entries import EntryKind
from fleet.models import ApiToken
from fleet.operations import entries
from fleet.operations.errors import Refused
from fleet.operations.rights import can_administer, can_approve, can_read, require_administer
from fleet.operations.secrets import hash_of, new_secret, prefix_of

SCOPES = ("read", "approve", "admin")


# Who may have a token with which scope.
NEEDED = {
    "read": (can_read, "a viewer"),
    "approve": (can_approve, "an operator"),
    "admin": (can_administer, "an admin"),
}
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
    via: str = "command",
    token_name: str = "",
) -> tuple[ApiToken, str]:
    """A new token of this person. The plain text is returned this once; a hash is kept.

    Rights are asked anew at each call that carries it. Raises Refused `validation` for an unknown scope or none.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise Refused("validation", f"Scopes are {', '.join(SCOPES)}; name at least one.", unknown=unknown)
    plain = new_secret("dd")
    token = ApiToken.objects.create(
        prefix=prefix_of(plain),
        secret_hash=hash_of(plain),
        user=user,
        name=name,
        scopes=sorted(set(scopes)),
        created_at=now,
        expires_at=expires_at,
    )
    entries.write(
        [
            entries.entry(
                EntryKind.TOKEN_CREATED,
                f"An API token “{name}” of {user.get_username()} was made.",
                at=now,
                actor=entries.COMMAND_LINE if via == "command" else user.get_username(),
                via=via,
                token_name=token_name,
                before={"token": None},
                after={"token": token.prefix, "scopes": token.scopes, "expires_at": entries.iso(expires_at)},
                person=user.get_username(),
            )
        ]
    )
    return token, plain


def make_own_token(
    *,
    by: User,
    via: str,
    name: str,
    scopes: list[str],
    expires_in: timedelta,
    now: datetime,
    carried: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """A token for oneself, which may no more than its person; the plain text is returned this once.

    `carried` is the token that the request itself came with: the new one may no more and lives no longer than it, so
    that a token in wrong hands cannot outlive itself. Raises Refused `not-permitted` or `validation`.
    """
    if not can_read(by):
        raise Refused("not-permitted", "Making a token needs the right of a viewer. Ask an admin of your installation.")
    name = name.replace("\x00", "").strip()
    if not name or len(name) > MAX_TOKEN_NAME:
        raise Refused("validation", f"Give the token a name of up to {MAX_TOKEN_NAME} characters: what is it for?")
    if not timedelta(0) < expires_in <= MAX_TOKEN_TIME:
        raise Refused("validation", f"A token lives for more than no time and at most {MAX_TOKEN_TIME.days} days.")
    for scope, (allowed, right) in NEEDED.items():
        if scope in scopes and not allowed(by):
            raise Refused("not-permitted", f"A token with the scope `{scope}` needs the right of {right}.")
    expires_at = now + expires_in
    if carried is not None:
        beyond = [scope for scope in SCOPES if scope in scopes and scope not in carried.scopes]
        if beyond:
            raise Refused("not-permitted", f"The token that asks has not got the scope `{beyond[0]}` itself.")
        if carried.expires_at is not None:
            expires_at = min(expires_at, carried.expires_at)
    return issue_token(
        user=by,
        name=name,
        scopes=scopes,
        now=now,
        expires_at=expires_at,
        via=via,
        token_name=carried.name if carried else "",
    )


def person_of_token(*, token: str, now: datetime) -> tuple[User, ApiToken] | None:
    """Whose token it is; None when unknown, expired, revoked, or of a person who may not log in."""
    prefix = prefix_of(token)
    row = ApiToken.objects.select_related("user").filter(prefix=prefix, revoked_at__isnull=True).first()
    if row is None or not constant_time_compare(row.secret_hash, hash_of(token)):
        return None
    if (row.expires_at is not None and row.expires_at <= now) or not row.user.is_active:
        return None
    # To the minute is enough, and spares a write at every request.
    if row.last_used_at is None or now - row.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    return row.user, row


@transaction.atomic
def end_token(
    *, prefix: str, now: datetime, by: User | None = None, via: str = "command", token_name: str = ""
) -> ApiToken:
    """End a token at once, named by its public prefix or by itself; without `by` on the command line.

    Its owner and admins may. Raises Refused `validation` for one that is not known or has ended, `not-permitted`.
    """
    token = ApiToken.objects.select_related("user").filter(prefix=prefix_of(prefix.strip())).first()
    if token is None:
        raise Refused("validation", "No token begins like this.")
    if by is not None and by != token.user:
        require_administer(by)
    if not ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
        raise Refused("validation", "This token has ended already.")
    actor = by.get_username() if by else entries.COMMAND_LINE
    entries.write(
        [
            entries.entry(
                EntryKind.TOKEN_ENDED,
                f"The API token “{token.name}” of {token.user.get_username()} was ended by {actor}.",
                at=now,
                actor=actor,
                via=via,
                token_name=token_name,
                before={"token": token.prefix},
                after={"token": None},
                person=token.user.get_username(),
            )
        ]
    )
    return token


def person_of_session(*, session_key: str) -> User | None:
    """The person logged in under this session key, by the same checks as Django's own; None when there is none."""
    session = SessionStore(session_key=session_key)
    user_id = session.get(SESSION_KEY)
    if user_id is None or session.get(BACKEND_SESSION_KEY) is None:
        return None
    person = User.objects.filter(pk=user_id, is_active=True).first()
    if person is None:
        return None
    if not constant_time_compare(session.get(HASH_SESSION_KEY, ""), person.get_session_auth_hash()):
        return None
    return person
