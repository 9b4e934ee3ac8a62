"""Service accounts: made by admins, owned by a person, and let in by tokens alone.

Admins make their tokens: one may give a service account more than its owner may, and a token would hand that over. The
owner is told of each, and ends them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.reasons import Reason, Refused, or_refuse
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind, differing
from fleet.models import ApiToken, ServiceAccount
from fleet.models.people import service_of
from fleet.operations.people import accounts, control, tokens
from fleet.operations.rights import named, require_administrator
from fleet.operations.timeline.entries import tell

MAX_PURPOSE = 200


@transaction.atomic
def make(
    *,
    username: str,
    group: str,
    owner: str,
    purpose: str,
    now: datetime,
    actor: Actor = COMMAND_LINE,
    scopes: Sequence[accounts.ScopePair] = (),
) -> ServiceAccount:
    """A new account that is no person, for whom `owner` answers. It has no password, and never gets one. Raises Refused
    `not-permitted`, `unknown-person` or `validation`.
    """
    require_administrator(actor)
    said, whose = _purpose(purpose), _owner(owner)
    user = accounts.make_account(username=username, group=group, scopes=scopes)
    row = ServiceAccount.objects.create(user=user, owner=whose, purpose=said, created_at=now)
    control.note(control.MADE, user, actor.person, now=now)
    control.note(control.OWNER, user, whose, now=now)
    _tell(row, "service-made", before={}, now=now, actor=actor, rights=accounts.shown(user))
    return row


@transaction.atomic
def change(
    *, username: str, now: datetime, actor: Actor = COMMAND_LINE, owner: str | None = None, purpose: str | None = None
) -> ServiceAccount:
    """Who answers for it, and what it is for; what is None stays. Raises Refused as `make` does."""
    user = accounts.changeable(username, actor)
    row = or_refuse(service_of(user), "validation", Reason("service-unknown", name=username))
    before = _shown(row)
    if owner is not None:
        # Whoever owned it before stays behind it.
        control.note(control.OWNER, user, row.owner, now=now)
        row.owner = _owner(owner)
        control.note(control.OWNER, user, row.owner, now=now)
    if purpose is not None:
        row.purpose = _purpose(purpose)
    row.save(update_fields=["owner", "purpose"])
    if _shown(row) != before:
        _tell(row, "service-changed", before=before, now=now, actor=actor)
    return row


def make_token(
    *,
    username: str,
    name: str,
    scopes: list[str],
    expires_in: timedelta,
    now: datetime,
    actor: Actor,
    allowed_from: Sequence[str] = (),
    carried: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """A token for a service account, by an admin; the plain text is returned this once. It may no more than the
    account, and no longer or from elsewhere than the token that asks. Raises Refused `not-permitted`,
    `unknown-person` or `validation`.
    """
    return tokens.make_within(
        _service(username, actor),
        actor=actor,
        name=name,
        scopes=scopes,
        expires_in=expires_in,
        now=now,
        allowed_from=allowed_from,
        carried=carried,
    )


def _service(username: str, actor: Actor) -> User:
    require_administrator(actor, doing="make-token")
    user = named(username)
    or_refuse(service_of(user), "validation", Reason("service-unknown", name=username))
    return user


def _owner(name: str) -> User:
    found = User.objects.filter(username=name.strip(), is_active=True).first()
    owner = or_refuse(found, "validation", Reason("service-owner", name=name.strip()[:150]))
    if service_of(owner) is not None:
        raise Refused("validation", Reason("service-owner", name=name.strip()[:150]))
    return owner


def _purpose(text: str) -> str:
    said = tidy(text)
    if not 0 < len(said) <= MAX_PURPOSE:
        raise Refused("validation", Reason("service-purpose", longest=MAX_PURPOSE))
    return said


def _shown(row: ServiceAccount) -> dict[str, Any]:
    return {"owner": row.owner.get_username() if row.owner else None, "purpose": row.purpose}


def _tell(
    row: ServiceAccount,
    did: str,
    *,
    before: dict[str, Any],
    now: datetime,
    actor: Actor,
    rights: dict[str, Any] | None = None,
) -> None:
    was, became = differing(before, _shown(row) | (rights or {}))
    name = row.user.get_username()
    tell(EntryKind.PERSON_CHANGED, actor, at=now, before=was, after=became, person=name, did=did)
