"""Checks of rights, which refuse actions that a person may not do. The table of roles is `fleet.domain.people`."""

from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet

from fleet.domain.actor import Actor, ActorKind
from fleet.domain.people import Place, Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.texts import cleaned
from fleet.models import ApiToken
from fleet.models.people import Person, rights_of


def require(who: Actor | Person, right: Right, place: Place | None = None, *, doing: str = "this") -> None:
    """Raise Refused `not-permitted`, naming the missing right, unless `who` may do this. `doing` is a code of
    `fleet.accounts.text.DOING`.

    A user of the server's command line has all rights.
    """
    if isinstance(who, Actor) and who.kind is ActorKind.COMMAND:
        return
    missing = rights_of(who.person if isinstance(who, Actor) else who).missing(right, place, doing=doing)
    if missing is not None and settings.SCOPED_READ_ACCESS and missing.code != "right-missing":
        # For a user with scoped read access, objects outside the scope do not exist.
        if doing == "drill":
            raise Refused("unknown-set", Reason("drill-of-no-set"))
        raise Refused("unknown-event", Reason("event-unknown"))
    if missing is not None:
        raise Refused("not-permitted", missing)


def can_see(actor: Actor, place: Place) -> bool:
    """Return whether the actor may see this place: with SCOPED_READ_ACCESS only what is in their scopes."""
    if not settings.SCOPED_READ_ACCESS or actor.kind is ActorKind.COMMAND:
        return True
    missing = rights_of(actor.person).missing(Right.READ, place)
    return missing is None or missing.code == "right-missing"


def acting(actor: Actor, right: Right, *, doing: str) -> Actor:
    """Return the actor, who has this right in at least one place, with a cleaned reason. Raises Refused:
    `not-permitted`, `validation`.
    """
    require(actor, right, doing=doing)
    return actor.because(cleaned(actor.why))


def require_person(actor: Actor) -> None:
    """Raises Refused `not-permitted` where a token or a service account acts: only a person with a session, or who runs
    commands on the server, decides who may sign in, and as what.
    """
    if actor.token is not None or actor.kind is ActorKind.SERVICE:
        raise Refused("not-permitted", Reason("token-is-no-person"))


def require_administrator(actor: Actor, *, doing: str = "this") -> None:
    """An administrator in person, for everything about accounts and sign-in. Raises Refused `not-permitted`."""
    require(actor, Right.ADMINISTER, doing=doing)
    require_person(actor)


def require_change(actor: Actor, *, own: bool) -> None:
    """Check that the actor, and the token of the call, may change their own (`own`) or what only administrators change.

    A token with only the scope `read` changes nothing: objects that it created would outlive it. Raises Refused
    `not-permitted`.
    """
    if own:
        require(actor, Right.READ)
        if is_read_only(actor.token):
            raise Refused("not-permitted", Reason("token-only-reads"))
        return
    require(actor, Right.ADMINISTER)
    if actor.token is not None and "admin" not in actor.token.scopes:
        raise Refused("not-permitted", Reason("token-without-scope", scope="admin"))


def is_read_only(token: ApiToken | None) -> bool:
    """Return whether the token of a call has the scope `read` only."""
    return token is not None and set(token.scopes) <= {"read"}


def expiry_within_token(wanted: datetime, actor: Actor) -> datetime:
    """Return the expiry of an object that a call creates: at most that of its token.

    Locks the token's row inside the caller's transaction, so that the token cannot be revoked without the object.
    Raises Refused `not-permitted` if it has ended.
    """
    if actor.token is None:
        return wanted
    row = ApiToken.objects.select_for_update(of=("self",)).filter(pk=actor.token.pk).first()
    if row is None or row.revoked_at is not None:
        raise Refused("not-permitted", Reason("token-ended"))
    return min(wanted, row.expires_at) if row.expires_at is not None else wanted


def is_token_valid(token: ApiToken, *, now: datetime) -> bool:
    """Whether a token counts still: neither it has ended nor any by which it was made. One query for each of those."""
    each: ApiToken | None = token
    while each is not None:
        if each.revoked_at is not None or (each.expires_at is not None and each.expires_at <= now):
            return False
        each = each.made_with
    return True


def user_named(username: str, people: QuerySet[User] | None = None) -> User:
    """Return the user with this name, of these people or of all. Raises Refused `unknown-person`."""
    found = (User.objects.all() if people is None else people).filter(username=username).first()
    return require_found(found, "unknown-person", Reason("person-unknown", name=username))


def require_reach(actor: Actor, person: User) -> None:
    """Raise Refused `not-permitted` when an account without superuser rights would change a superuser."""
    if actor.person is not None and person.is_superuser and not actor.person.is_superuser:
        raise Refused("not-permitted", Reason("superusers-only", name=person.get_username()))
