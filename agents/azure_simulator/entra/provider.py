"""Simulated OpenID Connect Core 1.0 provider for one confidential client, with the code flow.

It rejects requests without PKCE (RFC 7636, S256) or nonce, unregistered redirect addresses, and a refresh token that
was already replaced (RFC 9700). It also rejects a second use of a code and then revokes the tokens of the first.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from azure_simulator.entra.accounts import Account, everybody
from azure_simulator.entra.tokens import LIES, Keys
from azure_simulator.http import Answer, Request, Reset, Response

TENANT = "6babcaad-604b-40ac-a9d7-9fd97c0b779f"
CODE_SECONDS = 60
MOST_IN_TOKEN = 200
COOKIE = "pretended_entra"
# Faults of the endpoints on request: no response, half a response, 503, or a closed connection.
TROUBLES = ("hang", "cut", "down", "reset")


@dataclass(slots=True)
class Given:
    """The grant behind a code or a refresh token. All grants of one login have the same `family`."""

    account: str
    family: str
    auth_time: int
    nonce: str = ""
    challenge: str = ""
    redirect: str = ""
    offline: bool = False
    until: float = 0.0
    used: bool = False


@dataclass(slots=True)
class Trouble:
    name: str
    count: int


@dataclass
class Provider:
    """OpenID provider with one tenant and one client, registered with `client_id`, `client_secret` and redirect
    addresses.
    """

    client_id: str
    client_secret: str
    redirects: tuple[str, ...]
    url: str = ""
    tenant: str = TENANT
    clock: Callable[[], float] = time.time
    accounts: dict[str, Account] = field(default_factory=everybody)
    codes: dict[str, Given] = field(default_factory=dict)
    refresh_tokens: dict[str, Given] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    faults: list[Trouble] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    _keys: Keys | None = None

    @property
    def issuer(self) -> str:
        return f"{self.url}/{self.tenant}/v2.0"

    @property
    def keys(self) -> Keys:
        if self._keys is None:
            self._keys = Keys(self.issuer, self.client_id)
        return self._keys

    def answer(self, request: Request) -> Answer:
        """Handle any request."""
        if request.path.startswith("/control/"):
            return self._control(request)
        if request.path == "/healthz":
            return Response(200, b'{"status":"ok"}')
        self.log.append({"method": request.method, "path": request.path})
        trouble = self._fault(TROUBLES)
        if trouble:
            return _troubled(trouble)
        base = f"/{self.tenant}/v2.0"
        handlers = {
            ("GET", f"{base}/.well-known/openid-configuration"): self._configuration,
            ("GET", f"{base}/keys"): lambda _: _json(self.keys.public),
            ("GET", f"{base}/authorize"): self._authorize,
            ("POST", f"{base}/token"): self._token,
            ("GET", f"{base}/logout"): self._logout,
        }
        handler = handlers.get((request.method, request.path))
        return handler(request) if handler else Response(404, b'{"error":"not found"}')

    def _configuration(self, request: Request) -> Response:
        return _json(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "end_session_endpoint": f"{self.issuer}/logout",
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "subject_types_supported": ["pairwise"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
                "code_challenge_methods_supported": ["S256"],
                "scopes_supported": ["openid", "profile", "email", "offline_access"],
                "claims_supported": ["sub", "iss", "aud", "exp", "iat", "auth_time", "nonce", "oid", "tid", "roles"],
            }
        )

    def _authorize(self, request: Request) -> Response:
        asked = dict(request.query)
        redirect = asked.get("redirect_uri", "")
        # Until these two are right, the browser is not redirected.
        if asked.get("client_id") != self.client_id or redirect not in self.redirects:
            return _page(400, "This program, or this redirect address, is not registered here.")

        def refused(error: str, why: str) -> Response:
            return _to(redirect, error=error, error_description=why, state=asked.get("state", ""))

        if asked.get("response_type") != "code" or "openid" not in asked.get("scope", "").split():
            return refused("invalid_request", "the code flow of OpenID Connect only")
        if asked.get("code_challenge_method") != "S256" or len(asked.get("code_challenge", "")) != 43:
            return refused("invalid_request", "PKCE with S256 is required")
        if not asked.get("nonce") or not asked.get("state"):
            return refused("invalid_request", "nonce and state are required")
        if asked.get("cancel"):
            return refused("access_denied", "the person said no")
        reauthenticate = asked.get("prompt") == "login" or asked.get("max_age") == "0"
        name, auth_time = self._who(request, asked, reauthenticate=reauthenticate)
        account = self.accounts.get(name)
        if account is None or not account.enabled:
            if asked.get("prompt") == "none":
                return refused("login_required", "no user is signed in")
            return self._ask(asked)
        code = secrets.token_urlsafe(24)
        self.codes[code] = Given(
            account=name,
            family=secrets.token_hex(8),
            auth_time=auth_time,
            nonce=asked["nonce"],
            challenge=asked["code_challenge"],
            redirect=redirect,
            offline="offline_access" in asked.get("scope", "").split(),
            until=self.clock() + CODE_SECONDS,
        )
        cookie = ("Set-Cookie", f"{COOKIE}={quote(name)}.{auth_time}; HttpOnly; SameSite=Lax; Path=/")
        return _to(redirect, code=code, state=asked["state"], headers=(cookie,))

    def _who(self, request: Request, asked: dict[str, str], *, reauthenticate: bool) -> tuple[str, int]:
        """Return the account that the user chose just now, else the one signed in here, with the time of the
        sign-in.
        """
        if asked.get("as"):
            return asked["as"], int(self.clock())
        cookies = dict(part.strip().partition("=")[::2] for part in request.headers.get("cookie", "").split(";"))
        name, _, since = cookies.get(COOKIE, "").rpartition(".")
        return ("", 0) if reauthenticate or not since.isdecimal() else (unquote(name), int(since))

    def _ask(self, asked: dict[str, str]) -> Response:
        """Return the page on which the user chooses an account. There are no passwords."""
        query = urlencode({name: value for name, value in asked.items() if name != "as"})
        rows = "".join(
            f'<li><a href="?{html.escape(query)}&amp;as={quote(one.name)}">{html.escape(one.display)}</a>'
            f" {html.escape(one.login_name)}: {html.escape(', '.join(one.roles) or 'no role')}</li>"
            for one in self.accounts.values()
            if one.enabled
        )
        return _page(200, f"<ul>{rows}</ul><p><a href='?{html.escape(query)}&amp;cancel=1'>Cancel</a></p>", safe=True)

    def _token(self, request: Request) -> Response:
        said = dict(parse_qsl(request.body.decode("utf-8", "replace")))
        client, secret = said.get("client_id", ""), said.get("client_secret", "")
        scheme, _, packed = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            client, _, secret = base64.b64decode(packed).decode().partition(":")
        if client != self.client_id or not compare_digest(secret, self.client_secret):
            return _error("invalid_client", status=401)
        if said.get("grant_type") == "authorization_code":
            return self._for_code(said)
        if said.get("grant_type") == "refresh_token":
            return self._for_refresh(said)
        return _error("unsupported_grant_type")

    def _for_code(self, said: dict[str, str]) -> Response:
        given = self.codes.get(said.get("code", ""))
        if given is None or given.until < self.clock() or given.redirect != said.get("redirect_uri"):
            return _error("invalid_grant")
        if given.used:
            self.revoked.add(given.family)
            return _error("invalid_grant")
        challenge = hashlib.sha256(said.get("code_verifier", "").encode()).digest()
        if not compare_digest(base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(), given.challenge):
            return _error("invalid_grant")
        given.used = True
        return self._give(given)

    def _for_refresh(self, said: dict[str, str]) -> Response:
        given = self.refresh_tokens.get(said.get("refresh_token", ""))
        if given is None:
            return _error("invalid_grant")
        if given.used:
            # A token was used twice: neither holder may continue.
            self.revoked.add(given.family)
        account = self.accounts.get(given.account)
        if given.family in self.revoked or account is None or not account.enabled:
            return _error("invalid_grant")
        given.used = True
        return self._give(given, nonce=False)

    def _give(self, given: Given, *, nonce: bool = True) -> Response:
        account = self.accounts[given.account]
        claims: dict[str, Any] = {
            "sub": account.sub,
            "oid": account.oid,
            "tid": self.tenant,
            "preferred_username": account.login_name,
            "name": account.display,
            "auth_time": given.auth_time,
            **({"nonce": given.nonce} if nonce else {}),
            **({"roles": account.roles} if account.roles else {}),
        }
        if len(account.groups) > MOST_IN_TOKEN:
            claims["_claim_names"] = {"groups": "src1"}
            claims["_claim_sources"] = {"src1": {"endpoint": f"{self.url}/users/{account.oid}/getMemberObjects"}}
        elif account.groups:
            claims["groups"] = account.groups
        lie = self._fault(LIES)
        answer: dict[str, Any] = {
            "access_token": secrets.token_urlsafe(24),
            "token_type": "Bearer",
            "expires_in": 3600,
            "id_token": self.keys.id_token(claims, now=int(self.clock()), lie=lie),
        }
        if lie == "no-id-token":
            del answer["id_token"]
        if given.offline:
            answer["refresh_token"] = secrets.token_urlsafe(32)
            self.refresh_tokens[answer["refresh_token"]] = Given(
                account=given.account, family=given.family, auth_time=given.auth_time, offline=True
            )
        return _json(answer)

    def _logout(self, request: Request) -> Response:
        asked = dict(request.query)
        back = asked.get("post_logout_redirect_uri", "")
        gone = ("Set-Cookie", f"{COOKIE}=; Max-Age=0; Path=/")
        homes = {urlsplit(one)._replace(path="", query="").geturl() for one in self.redirects}
        if asked.get("client_id") == self.client_id and urlsplit(back)._replace(path="", query="").geturl() in homes:
            return _to(back, headers=(gone,))
        answer = _page(200, "You are logged out.")
        return Response(200, answer.body, answer.content_type, headers=(gone,))

    def _fault(self, kinds: tuple[str, ...]) -> str:
        for fault in self.faults:
            if fault.name in kinds and fault.count > 0:
                fault.count -= 1
                return fault.name
        return ""

    def _control(self, request: Request) -> Response:
        said = json.loads(request.body or b"{}")
        if request.path == "/control/faults" and said.get("fault") in (*LIES, *TROUBLES):
            self.faults.append(Trouble(said["fault"], int(said.get("count", 1))))
        elif request.path == "/control/accounts" and said.get("name"):
            one = self.accounts.setdefault(said["name"], Account(said["name"], said.get("display", said["name"])))
            for name in ("roles", "groups", "enabled"):
                setattr(one, name, said.get(name, getattr(one, name)))
        elif request.path == "/control/keys/rotate":
            self.keys.rotate()
        elif request.path == "/control/calm":
            self.faults.clear()
            self.accounts = everybody()
        elif request.path == "/control/log":
            return _json(self.log)
        else:
            return Response(404, b'{"error":"no such control"}')
        return _json({"issuer": self.issuer})


def _troubled(trouble: str) -> Answer:
    if trouble == "down":
        return Response(503, b'{"error":"temporarily_unavailable"}')
    if trouble == "reset":
        return Reset()
    if trouble == "cut":
        return Response(200, b"{", length=1_000_000)
    return _never()


async def _never() -> Response:
    await asyncio.sleep(3600)
    return Response(503)


def _json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode(), headers=(("Cache-Control", "no-store"),))


def _error(code: str, *, status: int = 400) -> Response:
    return Response(status, json.dumps({"error": code}).encode(), headers=(("Cache-Control", "no-store"),))


def _to(address: str, *, headers: tuple[tuple[str, str], ...] = (), **query: str) -> Response:
    joined = f"{address}{'&' if '?' in address else '?'}{urlencode(query)}" if query else address
    return Response(302, headers=(("Location", joined), ("Cache-Control", "no-store"), *headers))


def _page(status: int, said: str, *, safe: bool = False) -> Response:
    text = said if safe else f"<p>{html.escape(said)}</p>"
    page = f"<!doctype html><html lang=en><title>Pretended Entra ID</title><h1>Who are you?</h1>{text}"
    return Response(status, page.encode(), "text/html; charset=utf-8")
