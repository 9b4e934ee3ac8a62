"""People, their groups and their tokens."""

from datetime import datetime, timedelta

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.domain.entries import EntryKind
from fleet.models import ApiToken
from fleet.operations import entries
from fleet.operations.errors import Refused
from fleet.operations.rights import GROUPS, require_administer
from fleet.operations.secrets import hash_of, new_secret, prefix_of

SCOPES = ("read", "approve", "admin")


def ensure_groups() -> None:
    """Make the groups of the product where they are missing."""
    for name in GROUPS:
        Group.objects.get_or_create(name=name)


@transaction.atomic
def ensure_person(*, username: str, group: str, password: str) -> User:
    """A person of this name in exactly this group, with this password."""
    if group not in GROUPS:
        raise Refused("validation", f"There is no group {group!r}: choose one of {', '.join(GROUPS)}.")
    ensure_groups()
    person, _ = User.objects.get_or_create(username=username)
    if not person.check_password(password):
        person.set_password(password)
        person.save(update_fields=["password"])
    person.groups.set([Group.objects.get(name=group)])
    return person


@transaction.atomic
def issue_token(
    *, user: User, name: str, scopes: list[str], now: datetime, expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """A new token of this person. The plain text is returned this once; a hash is kept.

    Raises Refused `validation` for an unknown scope or none.
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
    text = f"An API token “{name}” of {user.get_username()} was made."
    entries.write(
        [entries.entry(EntryKind.TOKEN_CREATED, text, at=now, actor=user.get_username(), scopes=token.scopes)]
    )
    return token, plain


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
def end_token(*, prefix: str, now: datetime, by: User | None = None) -> ApiToken:
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
    actor = by.get_username() if by else "the command line"
    text = f"The API token “{token.name}” of {token.user.get_username()} was ended by {actor}."
    entries.write([entries.entry(EntryKind.TOKEN_ENDED, text, at=now, actor=actor, prefix=token.prefix)])
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
