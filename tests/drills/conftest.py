"""Callers of the API and people in their browsers, and a fleet whose story happens now."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from tests import factories
from tests.dashboard.conftest import logged_in


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    return factories.Fleet(now=datetime.now(UTC))


@pytest.fixture
def browser(db: None) -> Client:
    return logged_in(factories.operator())
