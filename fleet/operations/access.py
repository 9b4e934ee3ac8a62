"""The account behind a token or session, and the facts its access depends on. Empty until an annex registers how to
read it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from fleet.domain.people import Rights
from fleet.models import ApiToken


@dataclass(frozen=True, slots=True)
class AccountState:
    """The rights of an account, and the other facts that may end its sessions: password, single sign-on, owner of a
    service account.
    """

    rights: Rights
    rest: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AccessStates:
    """State of each account by row id, of each session by its key, of each token by its public prefix. Revoked or
    expired ones are missing.
    """

    accounts: dict[int, AccountState]
    sessions: dict[str, Any]
    tokens: dict[str, Any]


@dataclass(slots=True)
class Credentials:
    """Readers of credentials.

    They return the user of a token (`token`, `now`, `address`) with its row, the user of a session (`session_key`,
    `now`, `told`), and many states at once (`accounts`, `sessions`, `tokens`, `now`).
    """

    person_of_token: Callable[..., tuple[User, ApiToken] | None] = lambda **by: None
    person_of_session: Callable[..., User | None] = lambda **by: None
    states: Callable[..., AccessStates] = lambda **of: AccessStates({}, {}, {})


# Of annexes: accounts fills it.
CREDENTIALS = Credentials()
