"""A provider for the tests of single sign-on: one process for all of them in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleet.accounts import provider
from fleet.domain.sign_on import subject_prefix
from tests.people.directory import BACK, Directory, directory

BASE = "http://127.0.0.1:8000"


@pytest.fixture(scope="session")
def a_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with directory(tmp_path_factory.mktemp("entra"), f"{BASE}{BACK}") as found:
        yield found


@pytest.fixture
def entra(a_directory: Directory, settings: Any) -> Directory:
    """Switched on against the pretended Entra ID, which tells no lies yet."""
    settings.BASE_URL = BASE
    settings.OIDC_ISSUER = a_directory.issuer
    settings.OIDC_SUBJECT_PREFIX = subject_prefix(a_directory.issuer)
    settings.OIDC_CLIENT_ID = "drydock"
    settings.OIDC_CLIENT_SECRET = "pretended-secret-of-drydock"
    a_directory.control("calm")
    provider.forget()
    return a_directory
