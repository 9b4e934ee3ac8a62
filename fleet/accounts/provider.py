"""Client of the single sign-on provider: configuration, keys and tokens. Duration, size and number of requests are
limited, because the provider may hang.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import jwt
import requests
import structlog
from django.conf import settings
from django.db.models import Q
from django.utils.crypto import constant_time_compare

from fleet.accounts import sign_on
from fleet.accounts.models import SignOn
from fleet.domain.sign_on import LOOPBACK, ClaimFault, identity_of
from fleet.domain.texts import parse_json
from fleet.operations.locks import take_due

# Maximum time of one sign-in or refresh, and of one request in it.
EXCHANGE_SECONDS = 5.0
STEP_SECONDS = 3.0
# Concurrent exchanges per process; further ones are rejected and may retry.
AT_ONCE = 2
# Limit of abandoned threads that still wait for the provider.
MOST_HELD = 8
MOST_BYTES = 512 * 1024
# Cache time of configuration and keys, and the shortest interval at which an unknown key reloads the keys.
BELIEVED_SECONDS = 3600.0
KEYS_EVERY_SECONDS = 60.0
# No `none` and no shared-secret algorithms: an attacker could sign with the public key as the secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
LEAST_RSA_BITS = 2048
SKEW_SECONDS = 60.0
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")

log = structlog.get_logger(__name__)


class Why(StrEnum):
    """Reason why an exchange with the provider failed: the provider is unavailable (`AWAY`), all slots for concurrent
    exchanges are in use (`BUSY`), the provider refused (`NO`), or its response is invalid (`WRONG`).
    """

    AWAY = "away"
    BUSY = "busy"
    NO = "no"
    WRONG = "wrong"


class ProviderError(Exception):
    """Failure of an exchange with the provider. `what` names the failed check for the log; it never contains a part of
    a token.
    """

    def __init__(self, why: Why, what: str) -> None:
        super().__init__(f"{why}: {what}")
        self.why = why
        self.what = what


# Cached documents of the configured issuer (its configuration and its signing keys) by address, each with the time at
# which it was fetched.
_known: dict[str, tuple[dict[str, Any], float]] = {}
_deadline: ContextVar[float] = ContextVar("deadline", default=0.0)
_exchanges = threading.BoundedSemaphore(AT_ONCE)
_held = threading.BoundedSemaphore(MOST_HELD)


def forget() -> None:
    """Clear the cached configuration and keys of the provider."""
    _known.clear()


@contextmanager
def exchange() -> Iterator[None]:
    """Limit the duration of one sign-in or token refresh, as a context manager. Raises ProviderError `BUSY` if too many
    exchanges run.
    """
    if not _exchanges.acquire(blocking=False):
        raise ProviderError(Why.BUSY, "exchanges")
    token = _deadline.set(time.monotonic() + EXCHANGE_SECONDS)
    try:
        yield
    finally:
        _deadline.reset(token)
        _exchanges.release()


class Session(requests.Session):
    """HTTP session for the provider that follows no redirects and limits the size and duration of each response."""

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **more: Any) -> requests.Response:
        """Send a request. Raises ProviderError for every failure."""
        left = min(STEP_SECONDS, (_deadline.get() or time.monotonic() + STEP_SECONDS) - time.monotonic())
        if left <= 0:
            raise ProviderError(Why.AWAY, "time is up")
        more |= {"timeout": left, "allow_redirects": False, "stream": True}
        return _within(left, lambda: self._whole(method, url, *args, **more))

    def _whole(self, *args: Any, **more: Any) -> requests.Response:
        answer = super().request(*args, **more)
        body = bytearray()
        for piece in answer.iter_content(16 * 1024):
            body += piece
            if len(body) > MOST_BYTES:
                answer.close()
                raise ProviderError(Why.WRONG, "answer too long")
        answer._content = bytes(body)
        if answer.status_code >= 500:
            raise ProviderError(Why.AWAY, f"status {answer.status_code}")
        return answer


def _within(seconds: float, do: Any) -> requests.Response:
    """Run `do` in a thread and abandon it after this time. A socket timeout is not enough: a server that sends one byte
    each second never exceeds it.
    """
    if not _held.acquire(blocking=False):
        raise ProviderError(Why.AWAY, "too many hang")
    results: list[requests.Response | ProviderError] = []

    def run() -> None:
        try:
            results.append(do())
        except requests.RequestException as error:
            results.append(ProviderError(Why.AWAY, type(error).__name__))
        except ProviderError as error:
            results.append(error)
        finally:
            _held.release()

    thread = threading.Thread(target=run, name="provider", daemon=True)
    thread.start()
    thread.join(seconds)
    if not results:
        raise ProviderError(Why.AWAY, "no answer in time")
    if isinstance(results[0], ProviderError):
        raise results[0]
    return results[0]


def configuration() -> dict[str, Any]:
    """Return the OpenID Connect configuration of the provider. It is fetched again after an hour; an older copy is used
    while the provider is unavailable. Raises ProviderError.
    """
    address = f"{settings.OIDC_ISSUER.rstrip('/')}/.well-known/openid-configuration"
    known, fetched_at = _known.get(address, ({}, 0.0))
    if known and time.monotonic() - fetched_at <= BELIEVED_SECONDS:
        return known
    try:
        _known[address] = _checked(_fetched(address)), time.monotonic()
    except ProviderError as error:
        # An older configuration is better than none.
        if not known or error.why is not Why.AWAY:
            raise
        return known
    return _known[address][0]


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    if document.get("issuer") != settings.OIDC_ISSUER:
        raise ProviderError(Why.WRONG, "issuer of the configuration")
    local = urlsplit(settings.OIDC_ISSUER).hostname in LOOPBACK
    for name in (*ENDPOINTS, *(["end_session_endpoint"] if "end_session_endpoint" in document else [])):
        try:
            parts = urlsplit(str(document.get(name, "")))
        except ValueError as error:
            raise ProviderError(Why.WRONG, name) from error
        if parts.scheme != "https" and not (local and parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise ProviderError(Why.WRONG, name)
    return document


def _json(url: str, method: str = "GET", **more: Any) -> tuple[int, dict[str, Any]]:
    """Send a request and return the status and JSON object of the response. Raises ProviderError."""
    with Session() as session:
        answer = session.request(method, url, **more)
    try:
        document = parse_json(answer.content)
    except ValueError as error:
        raise ProviderError(Why.AWAY, type(error).__name__) from error
    if not isinstance(document, dict):
        raise ProviderError(Why.AWAY, "no object")
    return answer.status_code, document


def _fetched(url: str) -> dict[str, Any]:
    status, document = _json(url)
    if status != 200:
        raise ProviderError(Why.AWAY, f"status {status}")
    return document


def _key(header: Mapping[str, Any]) -> Any:
    """Return the key that signed a token, by the token's header. If the key is unknown, fetch the keys again, at most
    once a minute.
    """
    kid, algorithm = header.get("kid"), header.get("alg")
    if algorithm not in ALGORITHMS:
        raise ProviderError(Why.WRONG, "algorithm")
    address = configuration()["jwks_uri"]
    for longest in (BELIEVED_SECONDS, KEYS_EVERY_SECONDS):
        keys, fetched_at = _known.get(address, (None, 0.0))
        if keys is None or time.monotonic() - fetched_at > longest:
            keys = _fetched(address)
            _known[address] = keys, time.monotonic()
        listed = keys.get("keys")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and one.get("use", "sig") == "sig" and (kid is None or one.get("kid") == kid):
                with suppress(jwt.PyJWTError):
                    return _strong(jwt.PyJWK(one, algorithm=algorithm))
    raise ProviderError(Why.WRONG, "key")


def _strong(key: jwt.PyJWK) -> jwt.PyJWK:
    if getattr(key.key, "key_size", LEAST_RSA_BITS) < LEAST_RSA_BITS and key.key_type == "RSA":
        raise ProviderError(Why.WRONG, "key is short")
    return key


def verified(id_token: str, *, now: datetime, nonce: str | None) -> dict[str, Any]:
    """Verify an ID token (signature, issuer, audience, times and nonce) and return its claims. `nonce` is None if none
    was sent, as in a refresh. Raises ProviderError.
    """
    try:
        header = jwt.get_unverified_header(id_token)
        key = _key(header)
        claims: dict[str, Any] = jwt.decode(
            id_token,
            key,
            algorithms=[header["alg"]],
            audience=settings.OIDC_CLIENT_ID,
            issuer=settings.OIDC_ISSUER,
            # Checked below with Drydock's own clock.
            options={"require": ["iss", "aud", "exp", "iat"], "verify_exp": False, "verify_iat": False,
                     "verify_nbf": False},
        )  # fmt: skip
    except jwt.PyJWTError as error:
        raise ProviderError(Why.WRONG, type(error).__name__) from error
    at = now.timestamp()
    times = {name: claims.get(name, at) for name in ("exp", "iat", "nbf")}
    if not all(isinstance(value, int | float) for value in times.values()):
        raise ProviderError(Why.WRONG, "times")
    # Written so that a time that is no number fails.
    if not (times["exp"] > at - SKEW_SECONDS and times["iat"] <= at + SKEW_SECONDS >= times["nbf"]):
        raise ProviderError(Why.WRONG, "expired or not yet valid")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != settings.OIDC_CLIENT_ID:
        raise ProviderError(Why.WRONG, "authorized party")
    if nonce is not None and not constant_time_compare(str(claims.get("nonce", "")), nonce):
        raise ProviderError(Why.WRONG, "nonce")
    return claims


# The answer of the provider that confirms an account: its claims, None without an ID token, and its refresh token.
Renewed = tuple[dict[str, Any] | None, str]


def renew(refresh_token: str, *, now: datetime) -> Renewed:
    """Check with the provider that an account is still valid, by its refresh token. Raises ProviderError; the reason is
    `NO` if the provider refuses the account.
    """
    url, auth = configuration()["token_endpoint"], None
    sent = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    if by_basic(configuration()):
        auth = (settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)
    else:
        sent |= {"client_id": settings.OIDC_CLIENT_ID, "client_secret": settings.OIDC_CLIENT_SECRET}
    status, answer = _json(url, "POST", data=sent, auth=auth)
    if status != 200:
        # Only this answer is about the account: an expired client secret must end no sessions.
        why = Why.NO if answer.get("error") == "invalid_grant" else Why.AWAY
        raise ProviderError(why, str(answer.get("error", status))[:100])
    id_token = answer.get("id_token")
    claims = verified(id_token, now=now, nonce=None) if isinstance(id_token, str) else None
    return claims, str(answer.get("refresh_token") or refresh_token)


def by_basic(configured: Mapping[str, Any]) -> bool:
    """Return whether the client secret must be sent in the Authorization header, because the provider does not accept
    it in the request body. `configured` is the provider's configuration.
    """
    methods = configured.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return "client_secret_post" not in methods


def end_address(back: str) -> str:
    """Return the sign-out URL of the provider, which returns the browser to `back`. Return an empty string if the
    provider has none or is unavailable.
    """
    try:
        with exchange():
            endpoint = str(configuration().get("end_session_endpoint", ""))
    except ProviderError:
        return ""
    query = {"client_id": settings.OIDC_CLIENT_ID, "post_logout_redirect_uri": back}
    address: str = requests.Request("GET", endpoint, params=query).prepare().url or "" if endpoint else ""
    return address


# Refresh of single sign-on accounts: the provider is queried every ten minutes. While it is unavailable, sessions stay
# valid until their expiry.


# Concurrent queries, maximum time of one run, and the delay after the provider was unavailable.
MAX_REFRESHES = AT_ONCE
RUN_SECONDS = 20.0
AGAIN = timedelta(seconds=60)


def refresh(*, now: datetime, late: timedelta = timedelta()) -> Counter[str]:
    """Check with the provider every account whose check is due, a few at a time. Return the number of accounts by
    outcome: `confirmed`, `refused` (by provider or mapping), and `unavailable`, which ends the run.

    With `late`, check only accounts that are overdue by this time: the web process calls it while Celery is
    unavailable.
    """
    outcomes: Counter[str] = Counter()
    ends = time.monotonic() + RUN_SECONDS
    while settings.OIDC_ISSUER and not outcomes["unavailable"] and time.monotonic() < ends:
        due = take_due(SignOn, now=now - late, most=MAX_REFRESHES, open_only="next_check_at IS NOT NULL")
        if not due:
            break
        rows = list(SignOn.objects.filter(pk__in=due, issuer=settings.OIDC_ISSUER))
        with ThreadPoolExecutor(MAX_REFRESHES) as threads:
            answers = list(threads.map(lambda row: _asked(row.read_refresh_token(), now), rows))
        outcomes.update([_settle(row, answer, now=now) for row, answer in zip(rows, answers, strict=True)])
    return outcomes


def _asked(refresh_token: str, now: datetime) -> Renewed | ProviderError:
    try:
        if not refresh_token:
            raise ProviderError(Why.NO, "no refresh token can be read")
        with exchange():
            return renew(refresh_token, now=now)
    except ProviderError as error:
        return error


def _settle(row: SignOn, answer: Renewed | ProviderError, *, now: datetime) -> str:
    """Record the result of checking one account. Return the outcome, a key of the result of `refresh`."""
    if isinstance(answer, ProviderError) and answer.why is not Why.NO:
        log.warning("sign_on.provider_away", what=answer.what)
        SignOn.objects.filter(pk=row.pk, next_check_at__isnull=False).update(next_check_at=now + AGAIN)
        return "unavailable"
    try:
        if isinstance(answer, ProviderError):
            raise ClaimFault(sign_on.REFUSED_BY_PROVIDER)
        claims, refresh_token = answer
        # Without an ID token the account stays as it is.
        identity = None if claims is None else identity_of(claims, issuer=row.issuer, claim=settings.OIDC_CLAIM)
        if identity is not None and identity.subject != row.subject:
            raise ClaimFault(sign_on.REFUSED_BY_PROVIDER)
    except ClaimFault as fault:
        sign_on.refuse(Q(pk=row.pk), now=now, reason=fault.reason)
        return "refused"
    sign_on.confirm(row.pk, identity, refresh_token=refresh_token, now=now)
    return "confirmed"
