"""What the access of open calls rests on, read for many calls at once: sessions, tokens, accounts and their rights."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from fleet.domain.people import Rights
from fleet.models import ApiToken
from fleet.models.people import know_rights_of, rights_of
from fleet.models.sessions import contents_of
from fleet.projections.visibility import seen

# Columns of a token that change while it is used, and say nothing of what it may do.
OF_USE = ("last_used_at", "told_days")


@dataclass(frozen=True, slots=True)
class AccountState:
    """What an account may do, and everything else that may end its sessions: the password, single sign-on, who answers
    for a service account.
    """

    rights: Rights
    rest: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AccessStates:
    """State of each account by row id, of each session by its key, of each token by its public prefix. What has ended
    is missing.
    """

    accounts: dict[int, AccountState]
    sessions: dict[str, Any]
    tokens: dict[str, Any]


def access_states(
    *, accounts: Collection[int], sessions: Collection[str], tokens: Collection[str], now: datetime
) -> AccessStates:
    """Up to four queries, however many are asked for, and one for each level of tokens that were made by tokens."""
    people = list(
        seen(User).filter(pk__in=list(accounts), is_active=True).select_related("sign_on", "service_account__owner")
    )
    know_rights_of(people)
    return AccessStates(
        {one.pk: _account_state(one, now) for one in people},
        contents_of(sessions, now=now) if sessions else {},
        _token_states(tokens, now) if tokens else {},
    )


def _account_state(person: User, now: datetime) -> AccountState:
    signed_on = getattr(person, "sign_on", None)
    good = signed_on is not None and signed_on.issuer == settings.OIDC_ISSUER and signed_on.good_until
    service = getattr(person, "service_account", None)
    owner = service.owner if service is not None else None
    rest = (person.password, bool(good and good > now), owner and (owner.pk, owner.is_active))
    return AccountState(rights_of(person), rest)


def _token_states(prefixes: Collection[str], now: datetime) -> dict[str, Any]:
    """Without those that have ended, or that were made by one that has."""
    counts = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
    names = [field.attname for field in ApiToken._meta.concrete_fields if field.attname not in OF_USE]
    rows = {row["prefix"]: row for row in seen(ApiToken).filter(counts, prefix__in=list(prefixes)).values(*names)}
    # By whom each was made, level by level: nearly always by none.
    makers = {prefix: row["made_with_id"] for prefix, row in rows.items() if row["made_with_id"] is not None}
    while makers:
        found = dict(seen(ApiToken).filter(counts, pk__in=set(makers.values())).values_list("pk", "made_with_id"))
        for prefix in [prefix for prefix, maker in makers.items() if maker not in found]:
            del rows[prefix], makers[prefix]
        makers = {prefix: found[maker] for prefix, maker in makers.items() if found[maker] is not None}
    return rows
