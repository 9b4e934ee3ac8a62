"""Access matrix fixture: one world with its callers, in a test's own transaction."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from fleet.accounts import provider
from tests.access.calls import Matrix
from tests.access.world import ISSUER

A_DAY = 86400.0
PROVIDER = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "end_session_endpoint": f"{ISSUER}/end",
}


@pytest.fixture
def matrix(db: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Matrix:
    # Each refusal would be a line.
    monkeypatch.setattr(logging.getLogger("django.request"), "disabled", True)
    # A channel test waits for the channel's answer, which never arrives here.
    monkeypatch.setattr("fleet.notifications.api.TEST_SECONDS", 0.0)
    # A matrix run takes minutes; nothing in its world may expire meanwhile.
    settings.MACHINE_LIVE_SECONDS = settings.MACHINE_LATE_SECONDS = settings.MACHINE_GONE_SECONDS = (
        settings.STEP_UP_SECONDS
    ) = A_DAY
    monkeypatch.setattr("fleet.accounts.external_accounts.INVITATION", timedelta(seconds=A_DAY))
    # An identity provider is configured, but no test calls it.
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = ISSUER, "drydock"
    monkeypatch.setattr(provider, "configuration", lambda: PROVIDER)
    found = Matrix()
    # From here on no setting states how machines enrol.
    settings.ENROLMENT_POLICY = ""
    return found
