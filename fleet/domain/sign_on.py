"""Single sign-on: the user that an ID token names, and the user's rights from its roles or groups.

`claims` are the content of an ID token whose signature, issuer, audience, nonce and times were already checked.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

from fleet.domain.addresses import Network, lies_in_networks
from fleet.domain.people import GROUPS, Rights
from fleet.domain.reasons import Reason
from fleet.domain.texts import tidy

# Limits on the parts of a token that are read.
MOST_VALUES = 500
LONGEST_VALUE = 200
LONGEST_SUBJECT = 255
LONGEST_NAME = 100
# Directories shared by many tenants: any account of any tenant would be admitted.
SHARED_TENANTS = ("common", "organizations", "consumers")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Entra ID's issuer names its tenant: `https://login.microsoftonline.com/<tenant>/v2.0`, in each of its clouds.
ENTRA = re.compile(r"/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/v2\.0/?", re.IGNORECASE)


class ClaimFault(Exception):
    """Error: the claims of a token do not identify a user. `reason` is the text for people."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of the sign-on mapping: users whose claim contains `value` get this group, limited to these scopes.

    Without scopes the group applies everywhere.
    """

    value: str
    group: str
    scopes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as the identity provider names them. `subject` is permanent at the provider, `name` may become the
    username.

    `values` are the roles or groups of the user.
    """

    issuer: str
    subject: str
    name: str
    values: tuple[str, ...]


def issuer_fault(issuer: str) -> Reason | None:
    """Return why this issuer URL cannot be trusted; None if it can. It must use https, except on localhost."""
    try:
        parts = urlsplit(issuer)
        secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        plain = bool(parts.hostname) and not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        secure = plain = False
        parts = urlsplit("")
    if not secure or not plain:
        return Reason("issuer-https")
    if any(part.lower() in SHARED_TENANTS for part in parts.path.split("/")):
        return Reason("issuer-shared")
    return None


def rights_by(grants: Iterable[Grant], values: Collection[str]) -> Rights | None:
    """Return the rights that these roles or groups (`values`) grant; None if no grant names one of them.

    The highest granted group applies, within the scopes of all grants of that group. So a user has nowhere more rights
    than one single grant gives there.
    """
    held = set(values)
    found = [grant for grant in grants if grant.value in held and grant.group in GROUPS]
    if not found:
        return None
    group = max((grant.group for grant in found), key=GROUPS.index)
    ways = [grant.scopes for grant in found if grant.group == group]
    # No scopes at all are everywhere.
    scopes = () if () in ways else tuple(sorted({scope for way in ways for scope in way}))
    return Rights(frozenset({group}), scopes)


def identity_of(claims: Mapping[str, Any], *, issuer: str, claim: str) -> Identity:
    """Return the user that the claims identify. `claim` is the name of the claim with roles or groups. Raises
    ClaimFault.
    """
    return Identity(issuer, subject_of(claims, issuer=issuer), name_of(claims), values_of(claims, claim))


def subject_of(claims: Mapping[str, Any], *, issuer: str) -> str:
    """Return the permanent identifier of a user: tenant and object id from Entra ID, `sub` from others. Raises
    ClaimFault.
    """
    prefix = subject_prefix(issuer)
    if not prefix:
        return _subject(claims.get("sub"), "sub")
    if f"{claims.get('tid', '')}:".lower() != prefix:
        raise ClaimFault(Reason("other-tenant"))
    return prefix + _subject(claims.get("oid"), "oid").lower()


def subject_prefix(issuer: str) -> str:
    """Return the prefix of all subjects of this issuer: `<tenant>:` for Entra ID, otherwise empty."""
    tenant = ENTRA.fullmatch(urlsplit(issuer).path)
    return f"{tenant.group(1).lower()}:" if tenant else ""


def _subject(said: Any, claim: str) -> str:
    if not isinstance(said, str) or not 0 < len(said) <= LONGEST_SUBJECT or not said.isprintable():
        raise ClaimFault(Reason("claim-missing", claim=claim))
    return said


def name_of(claims: Mapping[str, Any]) -> str:
    """Return a possible username from the claims, with invalid characters replaced; empty if no claim has a name."""
    for claim in ("preferred_username", "upn", "email", "name"):
        said = claims.get(claim)
        if isinstance(said, str):
            name = re.sub(r"[^\w.@+-]+", "-", unicodedata.normalize("NFKC", tidy(said)))[:LONGEST_NAME].strip("-")
            if name:
                return name
    return ""


def values_of(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    """Return the roles or groups in this claim. A dotted name such as `realm_access.roles` is a nested claim.

    Raises ClaimFault if there are too many.
    """
    # For a user in too many groups, Entra sends no groups but a link to query them.
    elsewhere = claims.get("_claim_names")
    if (isinstance(elsewhere, Mapping) and claim in elsewhere) or (claim == "groups" and claims.get("hasgroups")):
        raise ClaimFault(Reason("claim-overage", claim=claim))
    said: Any = claims.get(claim)
    if claim not in claims:
        said = claims
        for part in claim.split("."):
            said = said.get(part) if isinstance(said, Mapping) else None
    listed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    if len(listed) > MOST_VALUES:
        raise ClaimFault(Reason("claim-overage", claim=claim))
    return tuple(sorted({one for one in listed if isinstance(one, str) and 0 < len(one) <= LONGEST_VALUE}))


# Where the environment of a request keeps whom a proxy in front has logged in; no header can have this name.
TOLD_BY_PROXY = "drydock.told_by_proxy"
PROXY_SECRET = "x-proxy-secret"  # noqa: S105 - a header's name
LEAST_SECRET = 32
Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class HeaderLogin:
    """Settings of the sign-in by a reverse proxy: the proxy's networks and secret, and the names of two headers (lower
    case).
    """

    networks: tuple[Network, ...]
    secret: str
    name: str
    groups: str


@dataclass(frozen=True, slots=True)
class ToldByProxy:
    """The user that the reverse proxy has signed in. `groups` is None if the proxy does not state groups."""

    name: str
    groups: tuple[str, ...] | None


def told_by_proxy(headers: Sequence[Header], *, peer: str, by: HeaderLogin) -> tuple[list[Header], ToldByProxy | None]:
    """Remove the headers that only the proxy may send, and return the other headers with the user that the proxy names.

    The user is None unless `peer` is in the proxy's networks, the secret is right, and each header occurs exactly once.
    """
    own: dict[bytes, list[bytes]] = {each.encode(): [] for each in (by.name, by.groups, PROXY_SECRET)}
    others = []
    for name, value in headers:
        if name.lower() in own:
            own[name.lower()].append(value)
        else:
            others.append((name, value))
    names, groups, secrets = own.values()
    believed = (
        len(by.secret) >= LEAST_SECRET
        and lies_in_networks(peer, by.networks)
        and len(secrets) == 1
        and compare_digest(secrets[0], by.secret.encode())
        and len(names) == 1
        and len(groups) <= 1
    )
    said = names[0].decode("utf-8", "replace").strip() if believed else ""
    if not said or len(said) > LONGEST_NAME or not said.isprintable() or "," in said:
        return others, None
    listed = [part.strip() for part in groups[0].decode("utf-8", "replace").split(",")] if groups else None
    kept = None if listed is None else tuple(sorted({one for one in listed[:MOST_VALUES] if 0 < len(one) <= 200}))
    return others, ToldByProxy(said, kept)
