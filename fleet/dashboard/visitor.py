"""Who was here lately, by a signed cookie: it names the person where the session has ended, and speaks for them for a
few minutes where the database, which knows sessions, is away. It opens nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from fleet.domain.people import Rights
from fleet.domain.sign_on import TOLD_BY_PROXY, ToldByProxy

COOKIE = "drydock_visitor"
SALT = "drydock.visitor"
# So long it names the person, so long it speaks for them, and so often it is renewed; in seconds.
NAMES_FOR = 30 * 86400
SPEAKS_FOR = 15 * 60
RENEWED_EVERY = 60
# What a form sent, for its next step; a form that was left for longer is opened anew.
KEEPS_FOR = 3600
KEPT_SALT = "drydock.kept"
MOST_KEPT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Visitor:
    """`rights` are those of the last page that they saw."""

    username: str
    rights: Rights


def note(request: HttpRequest, answer: HttpResponseBase, username: str, rights: Rights) -> None:
    """Keep in mind who has just been answered."""
    if _read(request, RENEWED_EVERY, username=username, rights=rights):
        return
    told = {
        "name": username,
        "groups": sorted(rights.groups),
        "scopes": [list(scope) for scope in rights.scopes],
        "session": _session(request),
        # Whom the login proxy named: without it nobody speaks for them.
        "proxy": _named_by_proxy(request),
    }
    answer.set_cookie(
        COOKIE,
        signing.dumps(told, salt=SALT, compress=True),
        max_age=NAMES_FOR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def forget(answer: HttpResponseBase) -> None:
    """After logging out nobody is remembered."""
    answer.delete_cookie(COOKIE, samesite="Lax")


def name_of(request: HttpRequest) -> str:
    """Who used this browser last; empty where nobody knows."""
    found = _read(request, NAMES_FOR)
    return str(found["name"]) if found else ""


def opened_by(request: HttpRequest) -> str:
    """Who opened the page that asks for a part, as it says itself: another tab may have become somebody else's."""
    return unquote(request.headers.get("X-Drydock-User", "")) or name_of(request)


def here_lately(request: HttpRequest) -> Visitor | None:
    """Who was logged in here some minutes ago with this very session; asks no database."""
    found = _read(request, SPEAKS_FOR)
    if found is None or not found["session"] or found["session"] != _session(request):
        return None
    if found.get("proxy", "") and found["proxy"] != _named_by_proxy(request):
        return None
    scopes = tuple((kind, pattern) for kind, pattern in found["scopes"])
    return Visitor(found["name"], Rights(frozenset(found["groups"]), scopes))


def _named_by_proxy(request: HttpRequest) -> str:
    told = request.META.get(TOLD_BY_PROXY)
    return told.name if isinstance(told, ToldByProxy) else ""


def _session(request: HttpRequest) -> str:
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    return sha256(key.encode()).hexdigest() if key else ""


def _read(
    request: HttpRequest, seconds: int, *, username: str = "", rights: Rights | None = None
) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=seconds)
    except signing.BadSignature:
        return None
    if rights is None:
        return found
    same = (found["name"], found["groups"], found["scopes"], found["session"], found.get("proxy")) == (
        username, sorted(rights.groups), [list(scope) for scope in rights.scopes], _session(request),
        _named_by_proxy(request),
    )  # fmt: skip
    return found if same else None


@dataclass(frozen=True, slots=True)
class Kept:
    """What somebody typed into a form: where it goes, and its fields. Passwords are never kept."""

    to: str
    whose: str
    fields: Sequence[tuple[str, str]]

    @property
    def typed(self) -> list[tuple[str, str]]:
        """What people read of it: texts, by a name without dashes."""
        hidden = ("expected_version", "when", "event", "all", "count", "of", "do")
        return [
            (name.replace("-", " ").replace("_", " "), text)
            for name, text in self.fields
            if name not in hidden and text
        ]

    @property
    def sealed(self) -> str:
        """For a hidden field: nobody else can have written it."""
        return signing.dumps([self.to, self.whose, list(self.fields)], salt=KEPT_SALT, compress=True)


def kept_of(request: HttpRequest, whose: str) -> Kept | None:
    """What a form sent; None where it holds passwords, or too much."""
    fields = [(name, text) for name, texts in request.POST.lists() for text in texts if name != "csrfmiddlewaretoken"]
    too_much = sum(len(name) + len(str(text)) for name, text in fields) > MOST_KEPT
    if too_much or any("password" in name for name, _ in fields):
        return None
    return Kept(request.get_full_path(), whose, [(name, str(text)) for name, text in fields])


def unsealed(text: str) -> Kept | None:
    """The same out of the hidden field."""
    try:
        to, whose, fields = signing.loads(text, salt=KEPT_SALT, max_age=KEEPS_FOR)
    except signing.BadSignature:
        return None
    return Kept(to, whose, [(name, value) for name, value in fields])
