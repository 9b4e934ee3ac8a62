"""Forms that are preserved while their user signs in again, and the signed cookie with the last user of a browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase

COOKIE = "drydock_last_user"
COOKIE_SECONDS = 30 * 86400
FORM_SALT = "drydock.saved-form"
FORM_MAX_CHARACTERS = 64 * 1024
# Fields of a form that users do not fill in.
HIDDEN_FIELDS = ("expected_version", "when", "event", "all", "count", "of", "do")


def remember_user(request: HttpRequest, answer: HttpResponseBase, username: str) -> None:
    """Store the username in a cookie, at most once a day. The cookie grants no access."""
    if request.get_signed_cookie(COOKIE, default="", max_age=86400) != username:
        answer.set_signed_cookie(
            COOKIE,
            username,
            max_age=COOKIE_SECONDS,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )


def forget_user(answer: HttpResponseBase) -> None:
    """Delete the username cookie when the user signs out."""
    answer.delete_cookie(COOKIE, samesite="Lax")


def last_user(request: HttpRequest) -> str:
    """Return the username of the last user of this browser from the cookie; empty if unknown."""
    return request.get_signed_cookie(COOKIE, default="", max_age=COOKIE_SECONDS) or ""


def page_user(request: HttpRequest) -> str:
    """Return the user for whom the page that sends this request was rendered.

    The page sends it as a header, because another user may have signed in in another tab since.
    """
    return unquote(request.headers.get("X-Drydock-User", "")) or last_user(request)


@dataclass(frozen=True, slots=True)
class SavedForm:
    """Fields of a preserved form and the URL to which it was sent. Forms with passwords are never preserved."""

    to: str
    username: str
    fields: Sequence[tuple[str, str]]

    @property
    def typed(self) -> list[tuple[str, str]]:
        """Return label and text of each field that the user filled in."""
        return [
            (name.replace("-", " ").replace("_", " "), text)
            for name, text in self.fields
            if name not in HIDDEN_FIELDS and text
        ]

    @property
    def sealed(self) -> str:
        """Return the form as signed text for a hidden field; `load_form` reads it."""
        return signing.dumps([self.to, self.username, list(self.fields)], salt=FORM_SALT, compress=True)


def save_form(request: HttpRequest, username: str) -> SavedForm | None:
    """Return the form of a POST request; None if it contains a password or is too large."""
    fields = [(name, text) for name, texts in request.POST.lists() for text in texts if name != "csrfmiddlewaretoken"]
    too_large = sum(len(name) + len(str(text)) for name, text in fields) > FORM_MAX_CHARACTERS
    if too_large or any("password" in name for name, _ in fields):
        return None
    return SavedForm(request.get_full_path(), username, [(name, str(text)) for name, text in fields])


def load_form(text: str) -> SavedForm | None:
    """Return the form from the signed text of `SavedForm.sealed`; None if the signature is wrong or too old."""
    try:
        to, username, fields = signing.loads(text, salt=FORM_SALT, max_age=3600)
    except signing.BadSignature:
        return None
    return SavedForm(to, username, [(name, value) for name, value in fields])
