"""Service accounts, and periodic work on credentials: expiry notifications, revocation after ended tokens, removal of
expired sessions.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q

from fleet.accounts import logins, sessions
from fleet.accounts import services as account_services
from fleet.accounts.entries import record_change
from fleet.domain.actor import COMMAND_LINE, DRYDOCK, Actor
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind, differing
from fleet.models import ApiToken, ServiceAccount
from fleet.models.people import service_of
from fleet.operations import control
from fleet.operations.rights import require_administrator
from fleet.operations.timeline.entries import tell

# Days before expiry at which a token is reported, if it is valid for at least twice as long.
WEEK, DAY = 7, 1
# Limit per run.
MOST = 500


def tidy_up(*, now: datetime) -> None:
    """Run all of it once."""
    tell_expiring(now=now)
    end_what_ended_tokens_made(now=now)
    logins.forget_sessions(now=now)


@transaction.atomic
def tell_expiring(*, now: datetime) -> int:
    """Report tokens that expire within a week, and again within a day. Return their number. The row lock ensures that
    concurrent runs report each token once.
    """
    day, week = now + timedelta(days=DAY), now + timedelta(days=WEEK)
    in_a_week = Q(notified_days=None, expires_at__gt=day, expires_at__lte=week) & _lives(2 * WEEK)
    in_a_day = (
        (Q(notified_days=None) | Q(notified_days__gt=DAY))
        & Q(expires_at__gt=now, expires_at__lte=day)
        & _lives(2 * DAY)
    )
    rows = ApiToken.objects.select_for_update(of=("self",), skip_locked=True).select_related("user")
    found = list(
        rows.filter(in_a_week | in_a_day, revoked_at=None, user__is_active=True).order_by("expires_at", "pk")[:MOST]
    )
    for row in found:
        row.notified_days = DAY if row.expires_at is not None and row.expires_at <= day else WEEK
        row.save(update_fields=["notified_days"])
        told = {"person": row.user.get_username(), "name": row.name, "token": row.prefix}
        tell(EntryKind.TOKEN_EXPIRES, DRYDOCK, at=now, expires_at=row.expires_at, **told)
    return len(found)


@transaction.atomic
def end_what_ended_tokens_made(*, now: datetime) -> int:
    """End everything created by tokens that have expired or were revoked otherwise. Return the number of these tokens.

    Tokens and join tokens stop working earlier, because each use checks the token that created them.
    """
    over = Q(revoked_at__isnull=False) | Q(expires_at__lte=now)
    left = (
        Q(made__revoked_at=None, made__isnull=False)
        | Q(join_tokens__revoked_at=None, join_tokens__isnull=False)
        | Q(channels__enabled=True, channels__deleted_at=None, channels__isnull=False)
    )
    found = list(ApiToken.objects.filter(over).filter(left).distinct().order_by("pk")[:MOST])
    for row in found:
        sessions.end_made_with(row, actor=DRYDOCK, now=now)
    return len(found)


def _lives(days: int) -> Q:
    return Q(expires_at__gte=F("created_at") + timedelta(days=days))


# Service accounts: created by administrators, owned by a user, and authenticated by tokens alone.

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
    scopes: Sequence[account_services.ScopePair] = (),
) -> ServiceAccount:
    """Create a service account owned by the user `owner`. It never has a password. Raises Refused `not-permitted`,
    `unknown-person` or `validation`.
    """
    require_administrator(actor)
    said, whose = _purpose(purpose), _owner(owner)
    user = account_services.make_account(username=username, group=group, scopes=scopes)
    row = ServiceAccount.objects.create(user=user, owner=whose, purpose=said, created_at=now)
    control.note(control.MADE, user, actor.person, now=now)
    control.note(control.OWNER, user, whose, now=now)
    _tell(row, "service-made", before={}, now=now, actor=actor, rights=account_services.shown(user))
    return row


@transaction.atomic
def change(
    *, username: str, now: datetime, actor: Actor = COMMAND_LINE, owner: str | None = None, purpose: str | None = None
) -> ServiceAccount:
    """Change the owner or purpose of a service account; None leaves them. Raises Refused as `make` does."""
    user = account_services.changeable(username, actor)
    row = require_found(service_of(user), "validation", Reason("service-unknown", name=username))
    before = _shown(row)
    if owner is not None:
        # Keep the former owner in the record of control.
        control.note(control.OWNER, user, row.owner, now=now)
        row.owner = _owner(owner)
        control.note(control.OWNER, user, row.owner, now=now)
    if purpose is not None:
        row.purpose = _purpose(purpose)
    row.save(update_fields=["owner", "purpose"])
    if _shown(row) != before:
        _tell(row, "service-changed", before=before, now=now, actor=actor)
    return row


def _owner(name: str) -> User:
    found = User.objects.filter(username=name.strip(), is_active=True).first()
    owner = require_found(found, "validation", Reason("service-owner", name=name.strip()[:150]))
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
    record_change(did, row.user, actor, now, before=was, after=became)
