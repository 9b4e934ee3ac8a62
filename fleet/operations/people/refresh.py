"""Whether people who came in by single sign-on still may: their provider is asked every ten minutes. While it is away,
sessions go on until their time is up.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings

from fleet.domain.sign_on import ClaimFault, Identity, identity_of
from fleet.models import SignOn
from fleet.operations.locks import take_due
from fleet.operations.people import provider, sign_on
from fleet.operations.people.provider import ProviderError, Renewed, Why

# Asked at once, so long in one run, and again so much later where the provider was away.
AT_ONCE = provider.AT_ONCE
RUN_SECONDS = 20.0
AGAIN = timedelta(seconds=60)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Refreshed:
    """How many were confirmed, were refused by provider or mapping, and could not be asked about."""

    confirmed: int = 0
    refused: int = 0
    away: int = 0


def refresh(*, now: datetime, late: timedelta = timedelta()) -> Refreshed:
    """Ask about everybody who is due, a few at a time; the first that finds the provider away ends the run. Who stands
    in for Celery asks about those who have been due for so long.
    """
    found, ends = Refreshed(), time.monotonic() + RUN_SECONDS
    if not settings.OIDC_ISSUER:
        return found
    while not found.away and time.monotonic() < ends:
        due = take_due(SignOn, now=now - late, most=AT_ONCE, open_only="look_at IS NOT NULL")
        if not due:
            break
        rows = list(SignOn.objects.filter(pk__in=due, issuer=settings.OIDC_ISSUER))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = list(threads.map(lambda row: _asked(row.read_refresh_token(), now), rows))
        for row, answer in zip(rows, answers, strict=True):
            _settle(row, answer, found, now=now)
    return found


def _asked(refresh_token: str, now: datetime) -> Renewed | ProviderError:
    try:
        if not refresh_token:
            raise ProviderError(Why.NO, "no refresh token can be read")
        with provider.exchange():
            return provider.renew(refresh_token, now=now)
    except ProviderError as error:
        return error


def _settle(row: SignOn, answer: Renewed | ProviderError, found: Refreshed, *, now: datetime) -> None:
    if isinstance(answer, ProviderError):
        if answer.why is Why.NO:
            found.refused += 1
            sign_on.refuse(row.pk, now=now)
        else:
            found.away += 1
            log.warning("sign_on.provider_away", what=answer.what)
            SignOn.objects.filter(pk=row.pk, look_at__isnull=False).update(look_at=now + AGAIN)
        return
    try:
        identity = _identity(answer, row)
    except ClaimFault as fault:
        found.refused += 1
        sign_on.refuse(row.pk, now=now, reason=fault.reason)
        return
    sign_on.confirm(row.pk, identity, refresh_token=answer.refresh_token, now=now)
    found.confirmed += 1


def _identity(answer: Renewed, row: SignOn) -> Identity | None:
    """Who the answer is about. Raises ClaimFault; somebody else's token is taken for nobody's."""
    if answer.claims is None:
        return None
    identity = identity_of(answer.claims, issuer=row.issuer, claim=settings.OIDC_CLAIM)
    if identity.subject != row.subject:
        raise ClaimFault(sign_on.REFUSED_BY_PROVIDER)
    return identity
