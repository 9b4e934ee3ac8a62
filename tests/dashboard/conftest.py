"""People in their browsers, without one: Django's client, signed in, and a fleet whose story happens now."""

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests import factories


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    return factories.Fleet(now=datetime.now(UTC))


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    return logged_in(factories.viewer())


@pytest.fixture
def operator(db: None) -> Client:
    return logged_in(factories.operator())


@pytest.fixture
def admin(db: None) -> Client:
    return logged_in(factories.admin())


def marks(response: Any, name: str) -> list[str]:
    """The values of an attribute of an answer, in their order: `data-code`, `data-state`, `action`, `name`."""
    return [unescape(value) for value in re.findall(rf'[\s"]{name}="([^"]*)"', response.content.decode())]


def codes(response: Any) -> list[str]:
    """Which reasons an answer shows."""
    return [code for code in marks(response, "data-code") + marks(response, "data-guard") if code]


def states(response: Any) -> list[str]:
    """Which states an answer shows, without that of its own connection."""
    return [state for state in marks(response, "data-state") if state != "starting"]


def acts(response: Any) -> set[str]:
    """Where the forms of an answer go: the last part of each address."""
    return {address.rstrip("/").rpartition("/")[2] for address in marks(response, "action")}


def text_of(response: Any) -> str:
    """What a person reads of an answer: without tags, white space as one blank."""
    return plain(response.content.decode())


def plain(body: str) -> str:
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("&#x27;", "'").replace("&quot;", '"')
