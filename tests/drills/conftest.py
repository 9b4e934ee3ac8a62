"""Callers of the API and people in their browsers, and a fleet whose story happens now."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from tests import factories


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    return factories.Fleet(now=datetime.now(UTC))


@pytest.fixture
def browser(db: None) -> Client:
    client = Client()
    client.force_login(factories.operator())
    return client
