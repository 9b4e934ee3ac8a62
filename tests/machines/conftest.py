"""Clients of pages, and a pretended Azure that the installation trusts."""

from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from tests.dashboard.conftest import logged_in
from tests.factories import admin, approver
from tests.machines.newcomers import trust_azure


@pytest.fixture
def azure(settings: Settings, tmp_path: Path) -> None:
    """Trust the pretended Azure and one subscription."""
    trust_azure(settings, tmp_path)


@pytest.fixture
def ada(db: None) -> Client:
    return logged_in(admin())


@pytest.fixture
def anna(db: None) -> Client:
    return logged_in(approver())
