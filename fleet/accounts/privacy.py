"""Erasure of users: the columns that can contain the name of a user, and the action for each column.

`COLUMNS` lists each column that can name a user, as `app.Model.column`. Columns that hold text, JSON, bytes or an
account but can name no user are listed in `tests/people/impersonal_columns.txt`. If a row is deleted with its account
(`ErasureAction.GOES`), its other columns need no entry. A test compares both lists with the models.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Model, Q, QuerySet

from fleet.accounts import logins
from fleet.accounts.models import keys_by
from fleet.accounts.services import any_admin, changeable
from fleet.accounts.sessions import end_made_with
from fleet.accounts.text import MOST_COUNTED
from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.pseudonyms import erased_name, hash_of_name, pseudonym, rename_in_reasons
from fleet.domain.reasons import Reason, Refused
from fleet.domain.timeline import EntryKind, Trait, kinds_with
from fleet.models import Admission, ApiToken, Approval, Claim, Drill, Entry, FormerName, KnownDevice, Stop, Wave
from fleet.models.people import service_of
from fleet.models.timeline import ACTING
from fleet.operations.timeline.entries import tell


class ErasureAction(StrEnum):
    """What happens to a column when a user is erased."""

    # The only place that links a name to its pseudonym: the pseudonym replaces the name.
    NAME = "name"
    # The column is emptied.
    EMPTIED = "emptied"
    # Rows that refer to the user by this column are deleted.
    GOES = "goes"
    # The column refers to the account, and shows its pseudonym from then on.
    LEADS = "leads"
    # A name in a text that Drydock generated: the pseudonym replaces it.
    REPLACED = "replaced"
    # Emptied if the row belongs to the user alone; rows of the installation stay.
    OWN = "own"
    # Sealed. New entries contain the pseudonym. Entries from before 0.2.0 contain the name, which is no longer shown.
    SEALED = "sealed"
    # Free text of users and receivers, which may name anyone. It stays.
    TYPED = "typed"
    # Origin and means of an action, under a seal. It stays.
    TRACE = "trace"


COLUMNS: Mapping[str, ErasureAction] = {
    name if name.count(".") == 2 else f"fleet.{name}": action
    for action, names in {
        ErasureAction.NAME: "auth.User.username",
        ErasureAction.EMPTIED: "auth.User.first_name auth.User.last_name auth.User.email auth.User.password",
        ErasureAction.GOES: (
            "auth.User_groups.user auth.User_user_permissions.user admin.LogEntry.user Profile.user Scope.user"
            " ApiToken.user CalendarFeed.user OutsideAccount.user KnownDevice.user StoredAnswer.user SavedView.owner"
            " PersonSession.user ServiceAccount.user SignOn.user account.EmailAddress.user mfa.Authenticator.user"
            " socialaccount.SocialAccount.user"
            # Found without a column that refers to the account: by their content, and by their key.
            " sessions.Session.session_data LoginAttempts.key"
        ),
        ErasureAction.LEADS: (
            "JoinToken.created_by Rule.author NoApprovalWindow.author Wave.created_by Approval.decided_by"
            " Approval.consented_by Claim.by Hold.by Drill.started_by Channel.owner Route.owner"
            " Approval.decided_for ServiceAccount.owner ApiToken.made_by AvailabilitySet.lowering_by"
            " AccountLink.account AccountLink.person"
        ),
        ErasureAction.REPLACED: (
            "Admission.admitted_by Stop.stopped_by Stop.lifted_by Wave.reason Approval.reason Approval.overrides"
            " Drill.reason"
        ),
        ErasureAction.OWN: (
            "Channel.name Channel.settings Channel.secrets Channel.last_error Channel.last_answer Route.name"
            " Reference.value"
        ),
        ErasureAction.SEALED: "Entry.actor Entry.text Entry.before Entry.after Entry.data",
        ErasureAction.TYPED: (
            "JoinToken.comment Rule.name Rule.reason NoApprovalWindow.name NoApprovalWindow.reason Stop.why"
            " Stop.lifted_why Wave.comment Wave.token_name Approval.comment Approval.token_name"
            " Approval.consent_comment Approval.rule_wording Claim.comment Claim.token_name Hold.reason"
            " Hold.token_name Hold.rule_wording Drill.comment Drill.token_name Entry.why Entry.token_name"
            " Message.data DeliveryAttempt.answer"
        ),
        ErasureAction.TRACE: "Entry.request_id Entry.address Approval.request_id Approval.trace_id",
    }.items()
    for name in names.split()
}


def columns_with(action: ErasureAction) -> tuple[str, ...]:
    """Return the names (`app.Model.column`) of the columns with this action."""
    return tuple(name for name, found in COLUMNS.items() if found is action)


# Erasure of a user: the name and all personal data are removed; the record of their actions stays under a pseudonym.

# Registered by annexes: whether they keep entries outside the database, which may contain the name itself.
UNCHANGEABLE: list[Callable[[], bool]] = []


@dataclass(frozen=True, slots=True)
class Own:
    """Personal data of a user in an optional app, which the app registers in `OWN`. `what` is a code of `FORGOTTEN` in
    `fleet.accounts.text`, `count` returns the number of rows, and `empty` erases the data. Rows of `models` may remain
    without personal data.
    """

    what: str
    models: tuple[type[Model], ...]
    count: Callable[[User], int]
    empty: Callable[[User, datetime], None]


# Registered by annexes.
OWN: list[Own] = []


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Plan of an erasure: how many rows of each kind are deleted (`goes`) and how many remain under a pseudonym
    (`stays`), by codes of `FORGOTTEN` in `fleet.accounts.text`. `older` counts the user's timeline entries from before
    0.2.0, which contain the name itself.
    """

    pseudonym: str
    former: str
    goes: Mapping[str, int]
    stays: Mapping[str, int]
    older: int


@transaction.atomic
def preview(*, username: str, actor: Actor = COMMAND_LINE) -> Forgetting:
    """Return the plan of an erasure (`forget`) without any change. Raises Refused as `forget` does."""
    return _look(_checked(username, actor))


@transaction.atomic
def forget(*, username: str, now: datetime, actor: Actor = COMMAND_LINE, confirmed: str | None = None) -> Forgetting:
    """Erase the name and all personal data of a user. This cannot be undone; past actions remain under a pseudonym.

    `confirmed` is the user name that the administrator typed to confirm; None skips this check. Raises Refused:
    `not-permitted`, `unknown-person`; `validation` if the confirmation differs, or if the user is the actor, the last
    administrator or already erased.
    """
    person = _checked(username, actor)
    if confirmed is not None and confirmed.strip() != username:
        raise Refused("validation", Reason("forget-unconfirmed", name=username))
    plan, had_admins = _look(person), any_admin()
    _end_claims(person, actor, now)
    # Entries from before 0.2.0 contain the name, as the actor or as the changed user.
    about = Entry.objects.filter(kind__in=[kind.value for kind in kinds_with(Trait.NAMES_PERSON)])
    named = _acts(username) or about.filter(data__person=username).exists()
    if named or any(has_lines() for has_lines in UNCHANGEABLE):
        FormerName.objects.update_or_create(hash=hash_of_name(username), defaults={"number": person.pk})
    for token in ApiToken.objects.filter(user=person).order_by("pk"):
        end_made_with(token, actor=actor, now=now)
    for rows in _going(person).values():
        rows.delete()
    for own in OWN:
        own.empty(person, now)
    _replace(person, username)
    # Counts of the name with an address or device are hashes, and expire within days.
    logins.release(username=username)
    person.username, person.first_name, person.last_name, person.email = erased_name(person.pk), "", "", ""
    person.is_active = person.is_staff = person.is_superuser = False
    person.last_login, person.date_joined = None, now
    person.set_unusable_password()
    person.save()
    if had_admins and not any_admin():
        raise Refused("validation", Reason("last-admin"))
    known = {"before": {"name": "known"}, "after": {"name": "erased"}}
    tell(EntryKind.PERSON_FORGOTTEN, actor, at=now, **known, goes=plan.goes, person=plan.pseudonym)
    return plan


def _checked(username: str, actor: Actor) -> User:
    person = changeable(username, actor)
    if actor.person == person:
        raise Refused("validation", Reason("forget-oneself"))
    if service_of(person) is not None:
        raise Refused("validation", Reason("forget-service", name=username))
    return person


def _look(person: User) -> Forgetting:
    goes = {what: rows.count() for what, rows in _going(person).items()} | {own.what: own.count(person) for own in OWN}
    stays = {"acts": _acts(pseudonym(person.pk))}
    for name in columns_with(ErasureAction.LEADS):
        model, column = _column(name)
        if not any(model in own.models for own in OWN):
            stays[name] = model._default_manager.filter(**{column.name: person}).count()
    return Forgetting(
        pseudonym=pseudonym(person.pk),
        former=erased_name(person.pk),
        goes={what: count for what, count in goes.items() if count},
        stays={what: count for what, count in stays.items() if count},
        older=min(_acts(person.get_username()), MOST_COUNTED),
    )


def _going(person: User) -> dict[str, QuerySet[Any]]:
    """Return the rows to delete by kind. The order deletes each row before the rows that it references."""
    rows: dict[str, QuerySet[Any]] = {
        "devices": KnownDevice.objects.filter(user=person),
        "sessions": Session.objects.filter(pk__in=keys_by([person.pk])),
        "admin-log": LogEntry.objects.filter(
            Q(user=person) | Q(content_type=ContentType.objects.get_for_model(User), object_id=str(person.pk))
        ),
    }
    for name in columns_with(ErasureAction.GOES):
        model, column = _column(name)
        if column.is_relation and model not in (LogEntry, KnownDevice):
            rows[model._meta.label] = model._default_manager.filter(**{column.name: person})
    return rows


def _acts(name: str) -> int:
    """Return how many actions the timeline has of this actor, at most one more than `MOST_COUNTED`."""
    rows = Entry.objects.filter(actor=name, via__in=ACTING)
    return rows.order_by("-at", "-pk")[: MOST_COUNTED + 1].count()


def _column(name: str) -> tuple[type[Model], Any]:
    app, model, column = name.split(".")
    owner = apps.get_model(app, model)
    return owner, owner._meta.get_field(column)


def _end_claims(person: User, actor: Actor, now: datetime) -> None:
    """End the open claims of a user, so that escalation of these events continues."""
    for claim in Claim.objects.filter(by=person, ended_at=None).select_related("event"):
        if Claim.objects.filter(pk=claim.pk, ended_at=None).update(ended_at=now):
            about = {"event_id": claim.event_id, "set_id": claim.event.availability_set_id}
            before, after = {"claim": pseudonym(person.pk)}, {"claim": None}
            tell(EntryKind.CLAIM_ENDED, actor, at=now, before=before, after=after, **about)


def _replace(person: User, name: str) -> None:
    """Replace the name of a user by `name` in texts that Drydock generated and that are not sealed."""
    called = erased_name(person.pk)
    Admission.objects.filter(admitted_by=name).update(admitted_by=called)
    Stop.objects.filter(stopped_by=name).update(stopped_by=called)
    Stop.objects.filter(lifted_by=name).update(lifted_by=called)

    def change(text: str) -> str:
        return called if text == name else text

    quoted = json.dumps(name)
    with_reasons: tuple[type[Approval | Wave | Drill], ...] = (Approval, Wave, Drill)
    named: list[QuerySet[Any]] = [model._default_manager.filter(reason__contains=quoted) for model in with_reasons]
    for row in chain.from_iterable(named):
        # A reason that is no JSON is the text of a user.
        with suppress(ValueError):
            _save_changed(row, "reason", json.dumps(rename_in_reasons(json.loads(row.reason), change)))
    for approval in Approval.objects.filter(overrides__icontains=quoted):
        _save_changed(approval, "overrides", rename_in_reasons(approval.overrides, change))


def _save_changed(row: Any, column: str, value: Any) -> None:
    if getattr(row, column) != value:
        type(row)._default_manager.filter(pk=row.pk).update(**{column: value})
