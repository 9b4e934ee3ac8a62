"""Who may do what, and where.

Groups: viewer reads; operator claims, approves and holds; approver is also the second person and may override what
guards block; admin also manages people, tokens, rules and sets. Each group may do what those before it may. A person
with scopes acts in the sets of these scopes only; reading is never narrowed.
"""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

from fleet.domain.places import PROVISIONAL, Place, in_scopes
from fleet.models import Scope
from fleet.operations.errors import Refused

VIEWER, OPERATOR, APPROVER, ADMIN = "viewer", "operator", "approver", "admin"
GROUPS = (VIEWER, OPERATOR, APPROVER, ADMIN)

Person = User | AbstractBaseUser | AnonymousUser


def _groups(person: Person) -> set[str]:
    if not isinstance(person, User) or not person.is_active:
        return set()
    if person.is_superuser:
        return {ADMIN}
    # Asked several times in one request: kept on the object, as Django keeps permissions.
    cached: set[str] | None = getattr(person, "_drydock_groups", None)
    if cached is None:
        cached = set(person.groups.values_list("name", flat=True))
        person._drydock_groups = cached  # type: ignore[attr-defined]
    return cached


def scopes_of(person: Person) -> tuple[tuple[str, str], ...]:
    """(kind, pattern) of each scope; none at all means everywhere. Admins act everywhere."""
    if not isinstance(person, User) or can_administer(person):
        return ()
    cached: tuple[tuple[str, str], ...] | None = getattr(person, "_drydock_scopes", None)
    if cached is None:
        rows = Scope.objects.filter(user=person).order_by("kind", "pattern")
        cached = tuple(rows.values_list("kind", "pattern"))
        person._drydock_scopes = cached  # type: ignore[attr-defined]
    return cached


def can_read(person: Person) -> bool:
    """Everybody in one of the groups may read."""
    return bool(_groups(person) & set(GROUPS))


def can_approve(person: Person, place: Place | None = None) -> bool:
    """Claim, approve, hold: anywhere at all, or in this place."""
    return bool(_groups(person) & {OPERATOR, APPROVER, ADMIN}) and _there(person, place)


def can_override(person: Person, place: Place | None = None) -> bool:
    """Be the second person, and override what guards block: anywhere at all, or in this place."""
    return bool(_groups(person) & {APPROVER, ADMIN}) and _there(person, place)


def can_administer(person: Person) -> bool:
    return ADMIN in _groups(person)


def _there(person: Person, place: Place | None) -> bool:
    return place is None or in_scopes(place, scopes_of(person))


def require_approve(person: Person, place: Place | None = None, *, verb: str = "Approving") -> None:
    """Raises Refused `not-permitted`, naming the missing right. `verb` is how the sentence begins."""
    if not can_approve(person):
        raise Refused("not-permitted", f"{verb} needs the right of an operator. Ask an admin of your installation.")
    _require_place(person, place)


def require_override(person: Person, place: Place | None = None, *, verb: str = "This") -> None:
    """Raises Refused `not-permitted`, naming the missing right."""
    if not can_override(person):
        raise Refused("not-permitted", f"{verb} needs the right of an approver. Ask an admin of your installation.")
    _require_place(person, place)


def _require_place(person: Person, place: Place | None) -> None:
    if _there(person, place) or place is None:
        return
    if place.kind == PROVISIONAL:
        raise Refused(
            "not-permitted",
            "Nobody has named this set yet: only people whose right is not limited to certain sets may act in it.",
        )
    where = " or ".join(f"{kind.replace('_', ' ')} {pattern}" for kind, pattern in scopes_of(person))
    raise Refused("not-permitted", f"Your right ends before the set {place.name}: it covers {where}.")


def require_administer(person: Person) -> None:
    """Raises Refused `not-permitted`, naming the missing right."""
    if not can_administer(person):
        raise Refused("not-permitted", "This needs the right of an admin.")
