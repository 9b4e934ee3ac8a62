"""Callers of the API, and a fleet whose story happens now, for the API goes by the real clock."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.domain.people import TOKEN_SCOPES
from fleet.domain.secrets import new_secret
from tests import accounts, factories
from tests.api.described import as_described
from tests.rows import TokenFactory

BASE = "/api/v1/"


class Caller:
    """Speaks JSON with a bearer token, or without one. Addresses are below `/api/v1/`. Whatever it is answered has to
    be as the OpenAPI document says.
    """

    def __init__(self, token: str = "", user: User | None = None) -> None:
        self.client = Client()
        self.user = user
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def __call__(self, method: str, address: str, body: Any = None, **headers: str) -> Any:
        full = address if address.startswith(("/", "http")) else f"{BASE}{address}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = {} if body is None else {"data": body, "content_type": "application/json"}
        response = self.client.generic(method, full, headers={**self.headers, **named}, **_encoded(data))
        as_described(response, method)
        return response

    def get(self, address: str, **headers: str) -> Any:
        return self("GET", address, **headers)

    def rows(self, address: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list page by page, from this address on."""
        following: str | None = address
        while following:
            page = self.get(following).json()
            yield from page["results"]
            following = page["next"]

    def post(self, address: str, body: Any = None, **headers: str) -> Any:
        return self("POST", address, body, **headers)

    def delete(self, address: str, body: Any = None, **headers: str) -> Any:
        return self("DELETE", address, body, **headers)


def _encoded(data: dict[str, Any]) -> dict[str, Any]:
    if data and not isinstance(data["data"], bytes | str):
        data["data"] = Client()._encode_json(data["data"], data["content_type"])  # type: ignore[attr-defined]
    return data


def caller(user: User, *scopes: str, **columns: object) -> Caller:
    """A caller with a new token of this person: all scopes unless some are named."""
    secret = new_secret("dd")
    TokenFactory(secret=secret, user=user, scopes=list(scopes or TOKEN_SCOPES), **columns)
    return Caller(secret, user)


def in_person(user: User) -> Caller:
    """The same without a token: by the session of a browser, which has just proved who they are."""
    found = Caller(user=user)
    found.client.force_login(user)
    accounts.prove(found.client)
    return found


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    return factories.Fleet(now=datetime.now(UTC))


@pytest.fixture
def viewer(db: None) -> Caller:
    return caller(factories.viewer())


@pytest.fixture
def operator(db: None) -> Caller:
    return caller(factories.operator())


@pytest.fixture
def admin(db: None) -> Caller:
    return caller(factories.admin())


def problem(response: Any, status: int, name: str) -> dict[str, Any]:
    """The answer's problem document; it has to be this one, whole, and to say what to do."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == name
    assert body["status"] == status
    assert body["title"]
    assert body["detail"].endswith((".", "!"))
    return body
