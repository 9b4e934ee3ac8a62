"""A provider for the tests of single sign-on: one process for all of them in a worker."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import provider
from fleet.domain.sign_on import subject_prefix
from tests import accounts, factories
from tests.people.directory import BACK, Directory, come, directory

BASE = "http://127.0.0.1:8000"


@pytest.fixture
def otto(db: None) -> User:
    """An operator, with the password of `factories`."""
    return factories.operator()


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    """With an announced event."""
    found = factories.Fleet(now=datetime.now(UTC))
    factories.announced(found)
    return found


@pytest.fixture(scope="session")
def a_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with directory(tmp_path_factory.mktemp("entra"), f"{BASE}{BACK}") as found:
        yield found


@pytest.fixture
def entra(a_directory: Directory, settings: Any, db: None) -> Directory:
    """Single sign-on against the pretended Entra ID, which tells no lies yet, with its operators and admins mapped."""
    settings.BASE_URL = BASE
    settings.OIDC_ISSUER = a_directory.issuer
    settings.OIDC_SUBJECT_PREFIX = subject_prefix(a_directory.issuer)
    settings.OIDC_CLIENT_ID = "drydock"
    settings.OIDC_CLIENT_SECRET = "pretended-secret-of-drydock"
    a_directory.control("calm")
    provider.forget()
    for group in ("operator", "admin"):
        root, value = factories.acting(factories.admin("root")), f"Drydock.{group.capitalize()}"
        accounts.map_group(actor=root, value=value, group=group, now=datetime.now(UTC))
    return a_directory


@pytest.fixture
def browser(entra: Directory) -> Client:
    """The browser of Otto, who signed in by single sign-on as an operator."""
    client = Client()
    assert come(client, "otto").status_code == 302
    return client
