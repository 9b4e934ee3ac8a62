"""Accounts of users in Slack and PagerDuty. If such an account claims an event, the linked user claims it.

Administrators link accounts. Users link their own accounts with an invitation that only the external account receives.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.core import signing
from django.db import IntegrityError, transaction

from fleet.accounts.sessions import record_change
from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.texts import tidy
from fleet.models import OutsideAccount
from fleet.models.people import service_of
from fleet.operations.rights import require, require_administrator, require_person, require_reach, user_named

KINDS = ("slack", "pagerduty")
MAX_ID, MAX_NAME = 100, 100
# Limit of unlinked accounts per kind: each unknown account that presses a button adds one.
MOST_STRANGERS = 200
INVITATION = timedelta(minutes=10)
SALT = "drydock.outside-account"


def person_of(*, kind: str, team: str, account: str) -> User | None:
    """Return the user who is linked to an external account, or None. The caller must still check the rights of this
    user.
    """
    row = OutsideAccount.objects.filter(kind=kind, team=team, account=account).select_related("user").first()
    return row.user if row is not None else None


def note_stranger(*, kind: str, team: str, account: str, name: str, now: datetime) -> None:
    """Record that an unlinked external account tried to claim an event, so that administrators can find and link it. If
    the list is full, the oldest records are deleted.
    """
    if not _sane(team, account):
        return
    known = {"name": tidy(name)[:MAX_NAME], "seen_at": now}
    OutsideAccount.objects.update_or_create(kind=kind, team=team, account=account, defaults=known)
    strangers = OutsideAccount.objects.filter(kind=kind, user=None).order_by("-seen_at", "-pk")
    OutsideAccount.objects.filter(pk__in=list(strangers.values_list("pk", flat=True)[MOST_STRANGERS:])).delete()


@transaction.atomic
def link(
    *, actor: Actor, username: str, kind: str, account: str, now: datetime, team: str = "", name: str = ""
) -> OutsideAccount:
    """Link an external account to a user, as an administrator. Raises Refused: `not-permitted`, `unknown-person`,
    `validation`.
    """
    require_administrator(actor)
    person = user_named(username)
    require_reach(actor, person)
    return _link(person, kind, team.strip(), account.strip(), name, actor=actor, now=now)


def invitation(*, kind: str, team: str, account: str, name: str) -> str:
    """Return a signed token that proves control of this external account, valid for 10 minutes. Send it to this account
    only.
    """
    return signing.dumps([kind, team, account, tidy(name)[:MAX_NAME]], salt=SALT)


def invited(token: str) -> tuple[str, str, str, str]:
    """Return the kind, team, account and account name from an invitation token. Raises Refused `validation` if the
    token is invalid or expired.
    """
    try:
        kind, team, account, name = signing.loads(token, salt=SALT, max_age=INVITATION)
    except (signing.BadSignature, ValueError) as error:
        raise Refused("validation", Reason("outside-invitation")) from error
    return str(kind), str(team), str(account), str(name)


@transaction.atomic
def link_own(*, actor: Actor, token: str, now: datetime) -> OutsideAccount:
    """Link the external account of an invitation token to the actor. Raises Refused: `not-permitted`, `validation`."""
    require(actor, Right.READ)
    require_person(actor)
    kind, team, account, name = invited(token)
    return _link(actor.person, kind, team, account, name, actor=actor, now=now)


@transaction.atomic
def unlink(*, actor: Actor, account_id: int, now: datetime) -> None:
    """Unlink the external account with this row id. Users may unlink their own accounts, administrators all. Raises
    Refused: `not-permitted`, `validation`.
    """
    rows = OutsideAccount.objects.select_for_update(of=("self",)).select_related("user")
    linked = rows.filter(pk=account_id, user__isnull=False).first()
    require_person(actor)
    if linked is None or linked.user != actor.person:
        require(actor, Right.ADMINISTER)
    row = require_found(linked, "validation", Reason("outside-unknown"))
    row.delete()
    if row.user is not None:
        _record("unlinked", row, row.user, actor=actor, now=now)


def _link(
    person: User, kind: str, team: str, account: str, name: str, *, actor: Actor, now: datetime
) -> OutsideAccount:
    if kind not in KINDS:
        raise Refused("validation", Reason("outside-kind", kinds=KINDS, kind=kind))
    if not _sane(team, account):
        raise Refused("validation", Reason("outside-account", longest=MAX_ID))
    if service_of(person) is not None:
        raise Refused("validation", Reason("service-no-login", name=person.get_username()))
    key = {"kind": kind, "team": team, "account": account}
    row = OutsideAccount.objects.select_for_update(of=("self",)).select_related("user").filter(**key).first()
    if row is not None and row.user == person:
        return row
    if row is not None and row.user is not None:
        raise Refused("validation", Reason("outside-taken", name=row.user.get_username()))
    row = row or OutsideAccount(**key)
    row.user, row.linked_at, row.name = person, now, tidy(name)[:MAX_NAME] or row.name
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        raise Refused("validation", Reason("outside-taken", name="somebody")) from error
    _record("linked", row, person, actor=actor, now=now)
    return row


def _sane(team: str, account: str) -> bool:
    sizes = 0 < len(account) <= MAX_ID and len(team) <= MAX_ID
    return sizes and all(c.isprintable() and not c.isspace() for c in team + account)


def _record(did: str, row: OutsideAccount, person: User, *, actor: Actor, now: datetime) -> None:
    whose = ({"account": None}, {"account": row.account})
    before, after = whose if did == "linked" else reversed(whose)
    account = {"where": row.kind, "team": row.team, "account": row.account, "name": ""}
    record_change(did, person, actor, now, before=before, after=after, **account)
