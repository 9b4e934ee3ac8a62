"""Changes of users and service accounts: creation, group, scopes, access, password, owner."""

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, count
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
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.timeline import EntryKind, differing
from fleet.models import Scope, ServiceAccount
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
    _set_rights(person, getattr(person, "new_group", None), getattr(person, "new_scopes", None))
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
    _set_rights(person, getattr(person, "new_group", None), getattr(person, "new_scopes", None))
    if was_active and not person.is_active:
        sessions.end_access(person, now=now, actor=actor)
    if had_admins and not any_admin():
        raise Refused("validation", Reason("last-admin"))
    return person


def apply_rights(person: User, rights: Rights, *, now: datetime, actor: Actor) -> None:
    """Give a user exactly these rights. The caller holds the lock of users (`lock`) in a transaction and checks that an
    administrator remains.
    """
    before = shown(person)
    _set_rights(person, rights.role, sorted(rights.scopes))
    if shown(person) != before:
        _write("changed", person, before=before, now=now, actor=actor)


def make_for_sign_on(wanted: str, rights: Rights, *, now: datetime, actor: Actor) -> User:
    """Create a user who can sign in only by single sign-on. The caller holds the lock of users in a transaction. If the
    name `wanted` is taken, a number is appended.
    """
    wanted = wanted or "person"
    names = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
    person = User(username=next(name for name in names if not is_taken(name)))
    person.set_unusable_password()
    person.save()
    _set_rights(person, rights.role, sorted(rights.scopes))
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


def _set_rights(person: User, group: str | None, scopes: Sequence[Sequence[str]] | None) -> None:
    """Replace the role and the scopes of a user. None leaves them as they are, and an empty group removes the role.
    Groups that are not roles remain.
    """
    if group is not None:
        others = person.groups.exclude(name__in=GROUPS)
        person.groups.set([*others, *([Group.objects.get_or_create(name=group)[0]] if group else [])])
    if scopes is not None and [tuple(pair) for pair in scopes] != _scopes(person):
        Scope.objects.filter(user=person).delete()
        Scope.objects.bulk_create([Scope(user=person, kind=kind, pattern=pattern) for kind, pattern in scopes])


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


# Service accounts: created by administrators, owned by a user, and authenticated by tokens alone.


def _owner_named(name: str) -> User:
    if owner := User.objects.filter(username=name, is_active=True, service_account=None).first():
        return owner
    raise ValidationError("Enter the name of a user who has access: they own the service account.")


def _purpose(text: str) -> Any:
    return ServiceAccount._meta.get_field("purpose").clean(text, None)


class ServiceForm(AuditedForm):
    owner = forms.CharField(label="Owner", max_length=150)

    class Meta(AuditedForm.Meta):
        model, fields = ServiceAccount, ("owner", "purpose")

    def clean_owner(self) -> User:
        return _owner_named(self.cleaned_data["owner"])

    def clean_purpose(self) -> Any:
        return _purpose(self.cleaned_data["purpose"])


class NewServiceForm(PersonForm):
    """Form for a new service account. Owner and purpose are attributes of the user object until they are stored."""

    owner, purpose = ServiceForm.base_fields["owner"], ServiceForm.base_fields["purpose"]
    clean_owner, clean_purpose = ServiceForm.clean_owner, ServiceForm.clean_purpose


class ChangeServiceSerializer(AuditedSerializer):
    owner = serializers.CharField(required=False, max_length=150, help_text="The user who owns it.")

    class Meta:
        model, fields = ServiceAccount, ("owner", "purpose")
        extra_kwargs = {"purpose": {"required": False}}

    def validate_owner(self, name: str) -> User:
        return _owner_named(name)

    def validate_purpose(self, text: str) -> Any:
        return _purpose(text)


class MakeServiceSerializer(MakePersonSerializer):
    """Serializer for a new service account in an API call; it has the fields of `NewServiceForm`."""

    validate_owner, validate_purpose = ChangeServiceSerializer.validate_owner, ChangeServiceSerializer.validate_purpose

    def get_fields(self) -> Any:
        own = ChangeServiceSerializer().get_fields()
        for field in own.values():
            field.required = True
        return super().get_fields() | own


class ServiceAudit(PersonAudit):
    """Timeline entries about service accounts: owner and purpose, and for a new account its rights."""

    def values(self, row: Any) -> Values:
        rights = super().values(row) if isinstance(row, User) else {}
        return {"owner": row.owner and row.owner.get_username(), "purpose": row.purpose, **rights}


SERVICE_MADE, SERVICE_CHANGED = ServiceAudit("service-made"), ServiceAudit("service-changed", of="user.username")


@transaction.atomic
def make_service(sent: Sent, *, now: datetime, actor: Actor = COMMAND_LINE) -> ServiceAccount:
    """Create a service account. It never has a password. Raises Refused as `save_audited` does."""
    require_administrator(actor)
    user: Any = make_account(sent, SERVICE_MADE, password=None, actor=actor, now=now)
    control.note(control.OWNER, user, user.owner, now=now)
    return ServiceAccount.objects.create(user=user, owner=user.owner, purpose=user.purpose, created_at=now)


@transaction.atomic
def change_service(sent: Sent, *, username: str, now: datetime, actor: Actor = COMMAND_LINE) -> ServiceAccount:
    """Change the owner or purpose of a service account. Raises Refused: `unknown-person`, and as `save_audited`
    does.
    """
    user = changeable(username, actor)
    row = require_found(service_of(user), "validation", Reason("service-unknown", name=username))
    former = row.owner
    save_audited(sent, actor, SERVICE_CHANGED, row=row, now=now)
    if row.owner != former:
        # Keep the former owner in the record of control.
        control.note(control.OWNER, user, former, now=now)
        control.note(control.OWNER, user, row.owner, now=now)
    return row
