"""Accounts of users: their group, scopes, access and password."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from fleet.accounts import logins, sessions
from fleet.accounts.entries import record_change
from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.people import ADMIN, GROUPS, Rights
from fleet.domain.pseudonyms import erased_name
from fleet.domain.reasons import Reason, Refused
from fleet.domain.texts import tidy
from fleet.domain.timeline import differing
from fleet.models import Scope
from fleet.models.people import service_of
from fleet.operations import control
from fleet.operations.locks import Lock, take
from fleet.operations.rights import require_administrator, require_reach, user_named

SCOPE_KINDS = ("name", "service", "resource_group")
MAX_NAME = 150
MAX_SCOPES = 50
MAX_PATTERN = 200
# Names that entries use for other actors.
TAKEN_NAMES = ("azure", "drydock")

ScopePair = tuple[str, str]


def shown(person: User) -> dict[str, Any]:
    """Return the properties of a user that may change, as `before` and `after` of an entry contain them; no secret.
    Two queries.
    """
    groups = person.groups.order_by("name").values_list("name", flat=True)
    return {
        "groups": list(groups),
        "scopes": [f"{kind}: {pattern}" for kind, pattern in _scopes(person)],
        "active": person.is_active,
        **({"superuser": True} if person.is_superuser else {}),
    }


@transaction.atomic
def make_person(
    *,
    username: str,
    group: str,
    now: datetime,
    actor: Actor = COMMAND_LINE,
    scopes: Sequence[ScopePair] = (),
    password: str = "",
) -> tuple[User, str]:
    """Create a user in this group. Return them with the password, which is generated if none is given and shown only
    once.

    Raises Refused `not-permitted` or `validation`.
    """
    require_administrator(actor)
    password = password or new_password()
    _check_password(password, User(username=username.strip()))
    person = make_account(username=username, group=group, scopes=scopes, password=password)
    control.note(control.MADE, person, actor.person, now=now)
    control.note_password(person, actor, now=now)
    _write("made", person, before=None, now=now, actor=actor)
    return person, password


def make_account(*, username: str, group: str, scopes: Sequence[ScopePair], password: str | None = None) -> User:
    """Create an account in this group, inside the transaction of an operation that checked the right. Without a
    password it never has one. Raises Refused `validation`.
    """
    lock()
    username = username.strip()
    try:
        User.username_validator(username)
    except ValidationError as error:
        raise Refused("validation", Reason("name-characters")) from error
    if not 0 < len(username) <= MAX_NAME:
        raise Refused("validation", Reason("name-length", longest=MAX_NAME))
    if _is_taken(username):
        raise Refused("validation", Reason("name-taken", name=username))
    chosen, pairs = _group(group), cleaned_scopes(scopes)
    person = User(username=username)
    # None sets an unusable password.
    person.set_password(password)
    person.save()
    person.groups.set([chosen])
    _set_scopes(person, pairs)
    return person


@transaction.atomic
def change_person(
    *,
    username: str,
    now: datetime,
    actor: Actor = COMMAND_LINE,
    group: str | None = None,
    scopes: Sequence[ScopePair] | None = None,
    active: bool | None = None,
) -> User:
    """Change the group, scopes or access of a user; None leaves a property as it is.

    Disabling ends every session, token and calendar permanently. The last active administrator stays one. Raises
    Refused `not-permitted`, `unknown-person` or `validation`.
    """
    person = changeable(username, actor)
    before, had_admins = shown(person), any_admin()
    if group is not None:
        _group(group)
        _set_group(person, group)
    if scopes is not None:
        _set_scopes(person, cleaned_scopes(scopes))
    if active is not None and active != person.is_active:
        person.is_active = active
        person.save(update_fields=["is_active"])
        if not active:
            sessions.end_access(person, now=now, actor=actor)
    if had_admins and not any_admin():
        raise Refused("validation", Reason("last-admin"))
    if shown(person) != before:
        _write("changed", person, before=before, now=now, actor=actor)
    return person


def apply_rights(person: User, rights: Rights, *, now: datetime, actor: Actor) -> None:
    """Give a user these rights, inside a transaction with the lock of users. The caller checks that an administrator
    is left.
    """
    before = shown(person)
    _set_rights(person, rights)
    if shown(person) != before:
        _write("changed", person, before=before, now=now, actor=actor)


def make_for_sign_on(wanted: str, rights: Rights, *, now: datetime, actor: Actor) -> User:
    """Create a user who signs in by single sign-on only, inside a transaction with the lock of users. If the name
    `wanted` is taken, the new user gets a number after it.
    """
    name, number = wanted or "person", 1
    while _is_taken(name):
        number += 1
        name = f"{wanted or 'person'}-{number}"
    person = User(username=name)
    person.set_unusable_password()
    person.save()
    _set_rights(person, rights)
    _write("made", person, before=None, now=now, actor=actor)
    return person


@transaction.atomic
def reset_password(*, username: str, now: datetime, actor: Actor = COMMAND_LINE) -> str:
    """Set a generated password for a user who lost theirs, end all their sessions, and return it. It is not stored.

    Raises Refused `not-permitted` or `unknown-person`.
    """
    person = changeable(username, actor)
    if service_of(person) is not None:
        raise Refused("validation", Reason("service-no-login", name=username))
    plain = new_password()
    person.set_password(plain)
    person.save(update_fields=["password"])
    record_password_change(person, now=now, actor=actor)
    return plain


def record_password_change(person: User, *, now: datetime, actor: Actor, but: str = "") -> None:
    """Record a password change without the password, inside the transaction that made it. Reset the count of failed
    sign-ins, and end all sessions except the one with the key `but`.
    """
    control.note_password(person, actor, now=now)
    sessions.drop(person, but=but)
    logins.release(username=person.get_username())
    record_change("password", person, actor, now, before={"password": "old"}, after={"password": "new"})


@transaction.atomic
def ensure_person(*, username: str, group: str, password: str, now: datetime) -> User:
    """Create or update a user with exactly this group and password. The demo calls it at each start."""
    person = User.objects.filter(username=username).first()
    if person is None:
        return make_person(username=username, group=group, password=password, now=now)[0]
    if not person.check_password(password):
        person.set_password(password)
        person.save(update_fields=["password"])
        record_password_change(person, now=now, actor=COMMAND_LINE)
    return change_person(username=username, group=group, now=now)


def new_password() -> str:
    """Return a random password of 96 bits."""
    return secrets.token_urlsafe(12)


def note_change(person: User, *, before: dict[str, Any] | None, actor: Actor, now: datetime) -> None:
    """Record a change of a user by Django's admin, inside its transaction. If it disabled the user, end their sessions
    and tokens.
    """
    if before is not None and before["active"] and not person.is_active:
        sessions.end_access(person, now=now, actor=actor)
    if before is None:
        control.note(control.MADE, person, actor.person, now=now)
        control.note_password(person, actor, now=now)
    if shown(person) != before:
        _write("made" if before is None else "changed", person, before=before, now=now, actor=actor)


def lock() -> None:
    """Lock all changes of users: two concurrent changes could otherwise remove the last administrator together."""
    take(Lock.PEOPLE)


def any_admin() -> bool:
    """Return whether any active user is an administrator. Service accounts do not count: they cannot grant access to
    users.
    """
    active = User.objects.filter(is_active=True, service_account=None)
    return active.filter(is_superuser=True).exists() or active.filter(groups__name=ADMIN).exists()


def changeable(username: str, actor: Actor) -> User:
    """Return a user whom this actor may change, and lock all changes of users. Raises Refused `not-permitted`,
    `unknown-person`, or `validation` for an erased user.
    """
    require_administrator(actor)
    lock()
    person = user_named(username)
    require_reach(actor, person)
    if username == erased_name(person.pk):
        raise Refused("validation", Reason("person-forgotten", name=username))
    return person


def _check_password(password: str, person: User) -> None:
    try:
        validate_password(password, person)
    except ValidationError as error:
        raise Refused("validation", Reason("password-refused", messages=error.messages)) from error


def _group(name: str) -> Group:
    if name not in GROUPS:
        raise Refused("validation", Reason("group-unknown", name=name, groups=GROUPS))
    return Group.objects.get_or_create(name=name)[0]


def _scopes(person: User) -> list[ScopePair]:
    return list(Scope.objects.filter(user=person).order_by("kind", "pattern").values_list("kind", "pattern"))


def cleaned_scopes(scopes: Sequence[ScopePair]) -> list[ScopePair]:
    found = sorted({(kind, tidy(pattern)) for kind, pattern in scopes})
    if len(found) > MAX_SCOPES:
        raise Refused("validation", Reason("too-many-scopes", most=MAX_SCOPES))
    for kind, pattern in found:
        if kind not in SCOPE_KINDS:
            raise Refused("validation", Reason("scope-kind", kinds=SCOPE_KINDS, kind=kind))
        if not 0 < len(pattern) <= MAX_PATTERN:
            raise Refused("validation", Reason("scope-pattern-length", longest=MAX_PATTERN))
    return found


def _is_taken(name: str) -> bool:
    return name.lower() in TAKEN_NAMES or User.objects.filter(username__iexact=name).exists()


def _set_rights(person: User, rights: Rights) -> None:
    _set_group(person, rights.role)
    _set_scopes(person, sorted(rights.scopes))


def _set_group(person: User, group: str) -> None:
    """Replace the role of a user, if one is named; groups that are no roles stay."""
    others = person.groups.exclude(name__in=GROUPS)
    person.groups.set([*others, *([_group(group)] if group else [])])


def _set_scopes(person: User, pairs: list[ScopePair]) -> None:
    if pairs == _scopes(person):
        return
    Scope.objects.filter(user=person).delete()
    Scope.objects.bulk_create([Scope(user=person, kind=kind, pattern=pattern) for kind, pattern in pairs])


def _write(did: str, person: User, *, before: dict[str, Any] | None, now: datetime, actor: Actor) -> None:
    after = shown(person)
    was, became = ({"person": None}, after) if before is None else differing(before, after)
    record_change(did, person, actor, now, before=was, after=became)


@transaction.atomic
def set_own_password(*, actor: Actor, password: str, now: datetime, session_key: str = "") -> None:
    """Set the actor's own password. The caller's form has checked the old and the new one. The session with this key
    stays open.
    """
    actor.person.set_password(password)
    actor.person.save(update_fields=["password"])
    record_password_change(actor.person, now=now, actor=actor, but=session_key)
