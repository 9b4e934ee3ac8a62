"""Who may do what. Groups: viewer reads, operator approves, admin also manages people, tokens and machines."""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

from fleet.operations.errors import Refused

VIEWER, OPERATOR, ADMIN = "viewer", "operator", "admin"
GROUPS = (VIEWER, OPERATOR, ADMIN)

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


def can_read(person: Person) -> bool:
    """Everybody in one of the groups may read."""
    return bool(_groups(person) & set(GROUPS))


def can_approve(person: Person) -> bool:
    return bool(_groups(person) & {OPERATOR, ADMIN})


def can_administer(person: Person) -> bool:
    return ADMIN in _groups(person)


def require_approve(person: Person) -> None:
    """Raises Refused `not-permitted`, naming the missing right."""
    if not can_approve(person):
        raise Refused("not-permitted", "Approving needs the right of an operator. Ask an admin of your installation.")


def require_administer(person: Person) -> None:
    """Raises Refused `not-permitted`, naming the missing right."""
    if not can_administer(person):
        raise Refused("not-permitted", "This needs the right of an admin.")
