"""Changes of users: creation, group, scopes, access and password."""

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from rest_framework import serializers

from fleet.accounts import logins, sessions
from fleet.accounts.models import WHERE, SignOnGrant
from fleet.accounts.sessions import record_change
from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.people import ADMIN, GROUPS, Rights
from fleet.domain.policy.rules import Fault
from fleet.domain.pseudonyms import erased_name
from fleet.domain.reasons import Reason, Refused
from fleet.domain.timeline import EntryKind, differing
from fleet.models import Scope
from fleet.models.people import service_of
from fleet.operations import control
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, Values, save_audited
from fleet.operations.locks import Lock, take
from fleet.operations.rights import require_administrator, require_reach, user_named

# Names that entries use for other actors.
TAKEN_NAMES = ("azure", "drydock")

SCOPES: Any = SignOnGrant._meta.get_field("scopes")


class ScopeSerializer(AuditedSerializer):
    class Meta:
        model, fields = Scope, ("kind", "pattern")

    def validate(self, sent: Any) -> Any:
        return [sent["kind"], sent["pattern"]]


class ScopedSerializer(AuditedSerializer):
    """Serializer with a field for scopes."""

    scopes = ScopeSerializer(many=True, required=False, help_text=WHERE)


# The group and scopes of a user are rows of other tables. Until they are stored, the changed ones are the
# attributes `new_group` and `new_scopes` of the user.


class ChangePersonForm(AuditedForm):
    """Form for the rights of a user. It uses the labels of the single sign-on mapping."""

    group = forms.ChoiceField(choices=[(group, group) for group in GROUPS])
    scopes = SCOPES.formfield()

    class Meta(AuditedForm.Meta):
        model, fields = User, ("group", "scopes", "is_active")

    def clean_scopes(self) -> Any:
        return SCOPES.clean(self.cleaned_data["scopes"], None)

    def clean(self) -> None:
        self.instance.new_group, self.instance.new_scopes = map(self.cleaned_data.get, ("group", "scopes"))


class PersonForm(ChangePersonForm):
    class Meta(ChangePersonForm.Meta):
        fields = ("username", "group", "scopes")
        labels = {"username": "Name"}


class ChangePersonSerializer(AuditedSerializer):
    group = serializers.ChoiceField(GROUPS, required=False, source="new_group")
    scopes = ScopeSerializer(
        many=True, required=False, source="new_scopes", help_text="All of them; an empty list: everywhere."
    )
    active = serializers.BooleanField(required=False, source="is_active")

    class Meta:
        model, fields = User, ("group", "scopes", "active")

    def validate_scopes(self, sent: Any) -> Any:
        return SCOPES.clean(sent, None)


class MakePersonSerializer(ChangePersonSerializer):
    group = serializers.ChoiceField(GROUPS, source="new_group")

    class Meta(ChangePersonSerializer.Meta):
        fields = ("username", "group", "scopes")
        extra_kwargs = {"username": {"help_text": "Letters, digits and @ . + - _"}}


class PersonAudit(Audit):
    """Timeline entries about users, with the new group and scopes. Two queries.

    The entries name the change by a code of `accounts.text.PERSON_CHANGES`.
    """

    def __init__(self, did: str, of: str = "username") -> None:
        kind, person = EntryKind.PERSON_CHANGED, attrgetter(of)
        super().__init__((), created=kind, deleted=kind, data=lambda row: {"person": person(row), "did": did})

    def values(self, row: Any) -> Values:
        groups = list(row.groups.order_by("name").values_list("name", flat=True)) if row.pk else []
        if (group := getattr(row, "new_group", None)) is not None:
            groups = sorted([*(name for name in groups if name not in GROUPS), *([group] if group else [])])
        if (scopes := getattr(row, "new_scopes", None)) is None:
            scopes = _scopes(row) if row.pk else []
        return {
            "groups": groups,
            "scopes": [f"{kind}: {pattern}" for kind, pattern in scopes],
            "active": row.is_active,
            **({"superuser": True} if row.is_superuser else {}),
        }


MADE, CHANGED = PersonAudit("made"), PersonAudit("changed")
shown = CHANGED.values


@transaction.atomic
def make_person(sent: Sent, *, now: datetime, actor: Actor = COMMAND_LINE, password: str = "") -> tuple[User, str]:
    """Create a user. Return the user and the password. An empty `password` means that one is generated, which is shown
    only once. Raises Refused as `save_audited` does.
    """
    require_administrator(actor)
    password = password or new_password()
    person = make_account(sent, MADE, password=password, actor=actor, now=now)
    control.note_password(person, actor, now=now)
    return person, password


def make_account(sent: Sent, audit: Audit, *, password: str | None, actor: Actor, now: datetime) -> User:
    """Create an account with its group and scopes. The caller has checked the right and opened the transaction. With
    the `password` None the account can never have one. Raises Refused as `save_audited` does.
    """
    lock()
    person = User()
    # None sets an unusable password.
    person.set_password(password)

    def check(row: User) -> Iterator[Fault]:
        if is_taken(row.username):
            yield "username", Reason("name-taken", name=row.username)
        try:
            if password is not None:
                validate_password(password, row)
        except ValidationError as error:
            yield "password", Reason("password-refused", messages=error.messages)

    save_audited(sent, actor, audit, row=person, now=now, check=check)
    _store_rights(person)
    control.note(control.MADE, person, actor.person, now=now)
    return person


@transaction.atomic
def change_person(sent: Sent, *, username: str, now: datetime, actor: Actor = COMMAND_LINE) -> User:
    """Change the group, scopes or access of a user.

    Disabling a user permanently ends their sessions, tokens and calendar feeds. Raises Refused: `unknown-person`;
    `validation` for the last active administrator; and as `save_audited` does.
    """
    person = changeable(username, actor)
    had_admins, was_active = any_admin(), person.is_active
    save_audited(sent, actor, CHANGED, row=person, now=now)
    _store_rights(person)
    if was_active and not person.is_active:
        sessions.end_access(person, now=now, actor=actor)
    if had_admins and not any_admin():
        raise Refused("validation", Reason("last-admin"))
    return person


def _store_rights(person: Any) -> None:
    if (group := getattr(person, "new_group", None)) is not None:
        _set_group(person, group)
    if (scopes := getattr(person, "new_scopes", None)) is not None:
        _set_scopes(person, scopes)


def apply_rights(person: User, rights: Rights, *, now: datetime, actor: Actor) -> None:
    """Give a user exactly these rights. The caller holds the lock of users (`lock`) in a transaction and checks that an
    administrator remains.
    """
    before = shown(person)
    _set_rights(person, rights)
    if shown(person) != before:
        _write("changed", person, before=before, now=now, actor=actor)


def make_for_sign_on(wanted: str, rights: Rights, *, now: datetime, actor: Actor) -> User:
    """Create a user who can sign in only by single sign-on. The caller holds the lock of users in a transaction. If the
    name `wanted` is taken, a number is appended.
    """
    name, number = wanted or "person", 1
    while is_taken(name):
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
    """Set a generated password for a user, end all their sessions, and return the password, which is not stored in
    plain text.

    Raises Refused: `not-permitted`, `unknown-person`.
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
    """Record a password change, inside the same transaction. Reset the count of failed sign-ins and end all sessions of
    the user except the session with the key `but`.
    """
    control.note_password(person, actor, now=now)
    sessions.drop(person, but=but)
    logins.release(username=person.get_username())
    record_change("password", person, actor, now, before={"password": "old"}, after={"password": "new"})


@transaction.atomic
def ensure_person(*, username: str, group: str, password: str, now: datetime) -> User:
    """Create or update a user with exactly this group and password. The demo calls this at each start."""
    person = User.objects.filter(username=username).first()
    if person is None:
        sent = MakePersonSerializer(data={"username": username, "group": group})
        return make_person(sent, password=password, now=now)[0]
    if not person.check_password(password):
        person.set_password(password)
        person.save(update_fields=["password"])
        record_password_change(person, now=now, actor=COMMAND_LINE)
    return change_person(ChangePersonSerializer(data={"group": group}), username=username, now=now)


def new_password() -> str:
    """Return a random password of 96 bits."""
    return secrets.token_urlsafe(12)


def note_change(person: User, *, before: dict[str, Any] | None, actor: Actor, now: datetime) -> None:
    """Record a change of a user in Django's admin, inside the same transaction. If the change disabled the user, end
    their sessions and tokens. `before` has the old values, None for a new user.
    """
    if before is not None and before["active"] and not person.is_active:
        sessions.end_access(person, now=now, actor=actor)
    if before is None:
        control.note(control.MADE, person, actor.person, now=now)
        control.note_password(person, actor, now=now)
    if shown(person) != before:
        _write("made" if before is None else "changed", person, before=before, now=now, actor=actor)


def lock() -> None:
    """Lock all changes of users until the transaction ends. Without this lock, two concurrent changes could together
    remove the last administrator.
    """
    take(Lock.PEOPLE)


def any_admin() -> bool:
    """Return whether at least one active user is an administrator. Service accounts do not count, because they cannot
    give users access.
    """
    active = User.objects.filter(is_active=True, service_account=None)
    return active.filter(is_superuser=True).exists() or active.filter(groups__name=ADMIN).exists()


def changeable(username: str, actor: Actor) -> User:
    """Return a user whom the actor may change, after locking all changes of users. Raises Refused: `not-permitted`,
    `unknown-person`; `validation` for an erased user.
    """
    require_administrator(actor)
    lock()
    person = user_named(username, User.objects.select_for_update())
    require_reach(actor, person)
    if username == erased_name(person.pk):
        raise Refused("validation", Reason("person-forgotten", name=username))
    return person


def _scopes(person: User) -> list[tuple[str, str]]:
    return list(Scope.objects.filter(user=person).order_by("kind", "pattern").values_list("kind", "pattern"))


def is_taken(name: str) -> bool:
    return name.lower() in TAKEN_NAMES or User.objects.filter(username__iexact=name).exists()


def _set_rights(person: User, rights: Rights) -> None:
    _set_group(person, rights.role)
    _set_scopes(person, sorted(rights.scopes))


def _set_group(person: User, group: str) -> None:
    """Replace the role of a user by `group`; an empty one removes the role. Groups that are not roles remain."""
    others = person.groups.exclude(name__in=GROUPS)
    person.groups.set([*others, *([Group.objects.get_or_create(name=group)[0]] if group else [])])


def _set_scopes(person: User, pairs: Sequence[Sequence[str]]) -> None:
    if [tuple(pair) for pair in pairs] == _scopes(person):
        return
    Scope.objects.filter(user=person).delete()
    Scope.objects.bulk_create([Scope(user=person, kind=kind, pattern=pattern) for kind, pattern in pairs])


def _write(did: str, person: User, *, before: dict[str, Any] | None, now: datetime, actor: Actor) -> None:
    after = shown(person)
    was, became = ({"person": None}, after) if before is None else differing(before, after)
    record_change(did, person, actor, now, before=was, after=became)


@transaction.atomic
def set_own_password(*, actor: Actor, password: str, now: datetime, session_key: str = "") -> None:
    """Set the actor's own password, after the caller's form has checked both passwords. The session with the key
    `session_key` stays open; all others end.
    """
    actor.person.set_password(password)
    actor.person.save(update_fields=["password"])
    record_password_change(actor.person, now=now, actor=actor, but=session_key)
