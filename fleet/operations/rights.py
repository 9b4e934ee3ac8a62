"""Checks of rights that refuse what a user may not do. The table of roles is in `fleet.domain.people`."""

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
    """Raise Refused `not-permitted`, naming the missing right, unless `who` has this right (in this place).

    `doing` is a code of `fleet.accounts.text.DOING`. The server's command line has all rights.
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
    """Return whether the actor may see this place. With SCOPED_READ_ACCESS, only places within their scopes."""
    if not settings.SCOPED_READ_ACCESS or actor.kind is ActorKind.COMMAND:
        return True
    missing = rights_of(actor.person).missing(Right.READ, place)
    return missing is None or missing.code == "right-missing"


def acting(actor: Actor, right: Right, *, doing: str = "this") -> Actor:
    """Return the actor with a cleaned reason, if they have this right in at least one place.

    Raises Refused: `not-permitted`, `validation`.
    """
    require(actor, right, doing=doing)
    return actor.because(cleaned(actor.why))


def require_person(actor: Actor) -> None:
    """Raise Refused `not-permitted` if a token or a service account acts.

    Only a person with a session, or the server's command line, may decide who can sign in and with which rights.
    """
    if actor.token is not None or actor.kind is ActorKind.SERVICE:
        raise Refused("not-permitted", Reason("token-is-no-person"))


def require_administrator(actor: Actor, *, doing: str = "this") -> None:
    """Raise Refused `not-permitted` unless an administrator acts in person. For changes of accounts and sign-in."""
    require(actor, Right.ADMINISTER, doing=doing)
    require_person(actor)


def require_change(actor: Actor, *, own: bool) -> None:
    """Raise Refused `not-permitted` if the actor, or the call's token, may not make this change.

    `own`: the object belongs to the actor; otherwise only administrators change it. A token with only the scope `read`
    may change nothing, because objects that it creates would outlive it.
    """
    if own:
        require(actor, Right.READ)
        if actor.token is not None and set(actor.token.scopes) <= {"read"}:
            raise Refused("not-permitted", Reason("token-only-reads"))
        return
    require(actor, Right.ADMINISTER)
    if actor.token is not None and "admin" not in actor.token.scopes:
        raise Refused("not-permitted", Reason("token-without-scope", scope="admin"))


def expiry_within_token(wanted: datetime, actor: Actor) -> datetime:
    """Return when an object that a call creates expires: at `wanted`, but not later than the call's token.

    Locks the token's row in the caller's transaction, so that a revocation also finds the new object. Raises Refused
    `not-permitted` if the token has ended.
    """
    if actor.token is None:
        return wanted
    row = ApiToken.objects.select_for_update(of=("self",)).filter(pk=actor.token.pk).first()
    if row is None or row.revoked_at is not None:
        raise Refused("not-permitted", Reason("token-ended"))
    return min(wanted, row.expires_at) if row.expires_at is not None else wanted


def is_token_valid(token: ApiToken, *, now: datetime) -> bool:
    """Return whether a token is valid, and each token by which it was created. Runs one query for each of those."""
    each: ApiToken | None = token
    while each is not None:
        if each.revoked_at is not None or (each.expires_at is not None and each.expires_at <= now):
            return False
        each = each.made_with
    return True


def user_named(username: str, people: QuerySet[User] | None = None) -> User:
    """Return the user with this username, among `people` or all. Raises Refused `unknown-person`."""
    found = (User.objects.all() if people is None else people).filter(username=username).first()
    return require_found(found, "unknown-person", Reason("person-unknown", name=username))


def require_reach(actor: Actor, person: User) -> None:
    """Raise Refused `not-permitted` if an account without superuser rights would change a superuser."""
    if actor.person is not None and person.is_superuser and not actor.person.is_superuser:
        raise Refused("not-permitted", Reason("superusers-only", name=person.get_username()))
