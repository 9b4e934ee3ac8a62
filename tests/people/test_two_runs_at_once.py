"""Jobs of accounts that two beats send at once: what one run does, the other does not do again."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

from fleet.accounts import provider, tokens
from fleet.accounts.models import SignOn
from fleet.accounts.provider import ProviderError, Renewed, Why
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, Entry, JoinToken
from tests import accounts, factories
from tests.approvals.racing import thread_group

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
COUNT = 12


def test_each_account_is_checked_with_the_provider_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.OIDC_ISSUER = "https://login.example"
    for number in range(COUNT):
        row = SignOn(issuer=settings.OIDC_ISSUER, subject=f"subject {number}", checked_at=NOW, next_check_at=NOW)
        row.user = factories.operator(f"user{number}")
        row.keep_refresh_token(f"token {number}")
        row.save()
    asked: list[str] = []

    def refuse(refresh_token: str, now: datetime) -> Renewed | ProviderError:
        asked.append(refresh_token)
        return ProviderError(Why.NO, "played")

    monkeypatch.setattr(provider, "_asked", refuse)
    with thread_group(2) as group:
        group.at_once(*[partial(provider.refresh, now=NOW)] * 2)
    assert len(asked) == len(set(asked)) == COUNT
    assert SignOn.objects.exclude(refused="").count() == COUNT


def test_credentials_are_tidied_up_once() -> None:
    owner = factories.admin()
    for number in range(COUNT):
        values: dict[str, Any] = {"user": owner, "scopes": ["read", "admin"], "now": NOW}
        first, _ = accounts.token(name=f"first {number}", expires_at=NOW + timedelta(days=1), **values)
        made, _ = accounts.token(name=f"made {number}", expires_at=NOW + timedelta(days=30), **values)
        accounts.token(name=f"soon {number}", expires_at=NOW + timedelta(days=3), **values)
        join, _ = accounts.join_token(comment=f"join {number}", expires_in=timedelta(days=30), now=NOW)
        ApiToken.objects.filter(pk=made.pk).update(made_with=first)
        JoinToken.objects.filter(pk=join.pk).update(made_with=first)
    tidy_up = partial(tokens.tidy_up, now=NOW + timedelta(days=2, hours=1))
    with thread_group(2) as group:
        group.at_once(*[tidy_up] * 2)
    # Whom a lock kept out of a notice has nothing left to do.
    tidy_up()
    assert not ApiToken.objects.filter(name__startswith="made", revoked_at=None).exists()
    assert not JoinToken.objects.filter(revoked_at=None).exists()
    for kind in (EntryKind.TOKEN_ENDED, EntryKind.JOIN_TOKEN_ENDED, EntryKind.TOKEN_EXPIRES):
        assert Entry.objects.filter(kind=kind.value).count() == COUNT, kind
