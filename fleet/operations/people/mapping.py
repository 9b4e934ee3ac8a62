"""The mapping of single sign-on: which group and scopes a role or group of the provider gives. Admins make it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import GROUPS, Rights
from fleet.domain.reasons import Reason, Refused, or_refuse
from fleet.domain.sign_on import LONGEST_VALUE, Grant, rights_by
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import SignOn, SignOnGrant
from fleet.models.people import know_rights_of, rights_of
from fleet.operations.people import accounts, sessions
from fleet.operations.rights import require_administrator
from fleet.operations.timeline.entries import tell

MOST_GRANTS = 200
# What sessions name that began at a proxy in front.
PROXY_BACKEND = "fleet.dashboard.people.proxy.HeaderBackend"
NOT_MAPPED = Reason("sign-on-not-mapped")


def grants() -> list[Grant]:
    """The mapping as it stands. One query."""
    return [row.grant for row in SignOnGrant.objects.order_by("value")]


@transaction.atomic
def create(
    *, actor: Actor, value: str, group: str, now: datetime, scopes: Sequence[accounts.ScopePair] = ()
) -> SignOnGrant:
    """A new line. It counts at once for everybody who is known. Raises Refused: `not-permitted`, `validation`."""
    require_administrator(actor)
    accounts.lock()
    value = tidy(value)
    if not 0 < len(value) <= LONGEST_VALUE:
        raise Refused("validation", Reason("grant-value", longest=LONGEST_VALUE))
    if SignOnGrant.objects.filter(value=value).exists():
        raise Refused("validation", Reason("grant-taken", value=value))
    if SignOnGrant.objects.count() >= MOST_GRANTS:
        raise Refused("validation", Reason("too-many-grants", most=MOST_GRANTS))
    row = SignOnGrant(value=value, created_at=now, **_stated(group, scopes))
    row.save()
    _changed(row, before=None, after=_shown(row), actor=actor, now=now)
    return row


@transaction.atomic
def change(
    *,
    actor: Actor,
    grant_id: int,
    now: datetime,
    group: str | None = None,
    scopes: Sequence[accounts.ScopePair] | None = None,
) -> SignOnGrant:
    """Another group or other scopes for the same role; what is None stays. Raises Refused: `not-permitted`,
    `not-found`, `validation`.
    """
    row = _changeable(grant_id, actor)
    before, stands = _shown(row), row.grant
    wanted = stands.scopes if scopes is None else scopes
    for name, said in _stated(stands.group if group is None else group, wanted).items():
        setattr(row, name, said)
    row.save()
    if _shown(row) != before:
        _changed(row, before=before, after=_shown(row), actor=actor, now=now)
    return row


@transaction.atomic
def delete(*, actor: Actor, grant_id: int, now: datetime) -> SignOnGrant:
    """Nobody has anything by this line from now on. Raises Refused: `not-permitted`, `not-found`, `validation`."""
    row = _changeable(grant_id, actor)
    before = _shown(row)
    row.delete()
    _changed(row, before=before, after=None, actor=actor, now=now)
    return row


def _changeable(grant_id: int, actor: Actor) -> SignOnGrant:
    require_administrator(actor)
    accounts.lock()
    found = SignOnGrant.objects.select_for_update().filter(pk=grant_id).first()
    return or_refuse(found, "not-found", Reason("grant-unknown"))


def _stated(group: str, scopes: Sequence[accounts.ScopePair]) -> dict[str, Any]:
    if group not in GROUPS:
        raise Refused("validation", Reason("group-unknown", name=group, groups=GROUPS))
    return {"group": group, "scopes": [list(pair) for pair in accounts.cleaned_scopes(scopes)]}


def _shown(row: SignOnGrant) -> dict[str, Any]:
    return {"group": row.group, "scopes": [f"{kind}: {pattern}" for kind, pattern in row.scopes]}


def _changed(
    row: SignOnGrant, *, before: dict[str, Any] | None, after: dict[str, Any] | None, actor: Actor, now: datetime
) -> None:
    """Tell it, and let it count: whoever is known gets what the mapping says now, and nobody is asked to log in anew
    who keeps a right. The last admin who may log in stays one.
    """
    did = "made" if before is None else "deleted" if after is None else "changed"
    tell(EntryKind.MAPPING_CHANGED, actor, at=now, before=before, after=after, value=row.value, did=did)
    had_admins, lines = accounts.any_admin(), grants()
    known = list(SignOn.objects.filter(user__isnull=False, seen_at__isnull=False).select_related("user").order_by("pk"))
    know_rights_of([one.user for one in known if one.user is not None])
    ended = [one.user for one in known if settle(one, rights_by(lines, one.values), now=now) and one.user is not None]
    # A proxy in front signs its users in again with their next request, by the mapping as it is then.
    sessions.end_for_good(people=ended, backend=PROXY_BACKEND if settings.HEADER_LOGIN.networks else "")
    if had_admins and not accounts.any_admin():
        raise Refused("validation", Reason("last-admin"))


def settle(row: SignOn, granted: Rights | None, *, now: datetime) -> bool:
    """Give the person of this account what the mapping grants. Return whether that is nothing and was something before:
    then their sessions have to end.
    """
    if row.user is None:
        return False
    if not row.user.is_superuser and rights_of(row.user) != (granted or Rights()):
        accounts.apply_rights(row.user, granted or Rights(), now=now, actor=DRYDOCK)
    if granted is None and not row.refused:
        row.refused, row.good_until, row.look_at = NOT_MAPPED.stored, now, None
        row.keep_refresh_token("")
        row.save()
        return True
    return False
