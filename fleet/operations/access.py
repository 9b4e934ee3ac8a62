"""The account behind a token or session, and the facts on which access depends. Another package registers the
readers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from fleet.domain.people import Rights
from fleet.models import ApiToken


@dataclass(frozen=True, slots=True)
class AccountState:
    """Rights of an account, and (`rest`) other facts whose change ends sessions: password, single sign-on, owner."""

    rights: Rights
    rest: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AccessStates:
    """State of accounts (by row id), sessions (by key) and tokens (by public prefix). Ended ones are missing."""

    accounts: dict[int, AccountState]
    sessions: dict[str, Any]
    tokens: dict[str, Any]


@dataclass(slots=True)
class Credentials:
    """Functions that read credentials. Another package registers them.

    `person_of_token` (`token`, `now`, `address`) returns the user and the token's row. `person_of_session`
    (`session_key`, `now`, `told`) returns the user. `states` (`accounts`, `sessions`, `tokens`, `now`) returns many
    states at once.
    """

    person_of_token: Callable[..., tuple[User, ApiToken] | None] = lambda **by: None
    person_of_session: Callable[..., User | None] = lambda **by: None
    states: Callable[..., AccessStates] = lambda **of: AccessStates({}, {}, {})


# Of annexes: accounts fills it.
CREDENTIALS = Credentials()
