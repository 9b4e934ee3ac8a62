"""Access matrix fixture: one world with its callers, in a test's own transaction."""

import logging
from typing import Any

import pytest

from fleet.accounts import provider
from tests.access.calls import Matrix
from tests.access.world import ISSUER, lasting_world

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
    # An identity provider is configured, but no test calls it.
    settings.OIDC_CLIENT_ID = "drydock"
    monkeypatch.setattr(provider, "configuration", lambda: PROVIDER)
    return Matrix(lasting_world(monkeypatch, settings))
