"""Sign-in of this machine to a cache, by access key, password or a token of a managed identity.

Tokens come from the metadata service. Source:
https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import time
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from drydock_agent.connections import Connections, NoAnswer
from drydock_agent.metadata_service.rate_limit import OF_THIS_PROCESS
from drydock_agent.redis.errors import CacheConnectionLost, RefusedByCache
from drydock_agent.settings.caches import MANAGED_IDENTITY, Cache
from drydock_agent.version import user_agent

RESOURCE = "https://redis.azure.com"
API_VERSION = "2018-02-01"
TIMEOUT = (2.0, 10.0)
WHOLE_SECONDS = 20.0
LIMIT = 64 * 1024
# Assumed lifetime of a token if the response does not state it.
UNSTATED_SECONDS = 3600.0


@dataclass(slots=True, frozen=True)
class Login:
    """User name and secret for a cache, valid for `seconds` from now. With a token, `username` is the object id of the
    managed identity.
    """

    username: str
    secret: str = field(repr=False)
    seconds: float = math.inf


def login_for(cache: Cache, tokens: TokenClient) -> Login:
    """Return a login that is valid now. `tokens` requests tokens. Raises `RefusedByCache` if no login is possible, else
    `CacheConnectionLost`.
    """
    if cache.entra:
        token = tokens.fetch(cache)
        return replace(token, username=cache.username or token.username)
    try:
        return Login(cache.username, cache.secret())
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedByCache(f"its password file {cache.password_file} cannot be read ({error})") from error


class TokenClient:
    """Client of the metadata service for tokens of managed identities, for one thread."""

    def __init__(self, imds_url: str) -> None:
        self._url = imds_url
        self._connections = Connections(headers={"Metadata": "true", "User-Agent": user_agent()})

    def fetch(self, cache: Cache) -> Login:
        """Request a token for a cache. Raises `RefusedByCache` if the machine does not have the configured identity,
        else `CacheConnectionLost`.
        """
        asked = {"api-version": API_VERSION, "resource": RESOURCE}
        if cache.entra != MANAGED_IDENTITY:
            asked["client_id"] = cache.entra
        OF_THIS_PROCESS.wait()
        try:
            answer = self._connections.send(
                "GET",
                f"{self._url}/metadata/identity/oauth2/token?{urlencode(asked)}",
                timeout=TIMEOUT,
                whole=WHOLE_SECONDS,
                limit=LIMIT,
            )
        except NoAnswer as error:
            raise CacheConnectionLost(f"no token from the metadata service: {error}") from error
        if answer.status in (400, 403, 404):
            raise RefusedByCache(f"the metadata service has no token for this identity ({answer.status})")
        if answer.status != 200:
            raise CacheConnectionLost(f"no token: the metadata service answered {answer.status}")
        return _token(answer.body)

    def interrupt(self) -> None:
        """Abort the current call. May be called from any thread."""
        self._connections.interrupt()


def _token(body: bytes) -> Login:
    try:
        content = json.loads(body)
        secret = content["access_token"]
        if not isinstance(secret, str) or not secret:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CacheConnectionLost("the metadata service answered with something that is no token") from None
    seconds = UNSTATED_SECONDS
    with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
        seconds = float(content["expires_on"]) - time.time()
    return Login(_object_id(secret), secret, seconds)


def _object_id(secret: str) -> str:
    """Return the claim `oid` of a token, which is the user name at the cache, or an empty string if the token is
    unreadable.
    """
    try:
        middle = secret.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        found = claims.get("oid")
    except (IndexError, ValueError, AttributeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""
