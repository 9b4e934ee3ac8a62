"""Proofs that somebody is who they say: a code, a passkey, a password; asked at the login and again later on."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import get_adapter
from allauth.mfa.base.internal.flows import post_authentication
from allauth.mfa.webauthn.internal import auth as webauthn
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.operations import clock
from fleet.operations.people import factors, logins
from fleet.wording import people, times


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether it was right; else what is `said`, and in how many seconds to try again. `over`: begin anew."""

    right: bool
    said: str = ""
    retry_after: int = 0
    over: bool = False


RIGHT = Proof(True)
# Of what a browser sends as the answer of a passkey; and what reading it may raise.
LONGEST_ANSWER = 20_000
WRONG = (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Purpose(StrEnum):
    """What a passkey signs a challenge for: a challenge of one purpose counts for no other."""

    SIGN_IN = "sign-in"
    FACTOR = "factor"
    AGAIN = "again"
    ADD = "add"


# In the session: the challenges that wait for their answer, by purpose; each for one person, and for so many seconds.
CHALLENGES = "passkey_challenges"
CHALLENGE_SECONDS = 600.0


def passkey_options(request: HttpRequest, purpose: Purpose, user: User | None = None) -> str:
    """What a browser is asked to sign, as JSON; without a user any passkey of this installation may answer."""
    adds = purpose is Purpose.ADD
    options = webauthn.begin_registration(user, True) if adds else webauthn.begin_authentication(user)
    challenge = {"state": webauthn.get_state(), "user": user and user.pk, "at": clock.now().timestamp()}
    webauthn.clear_state()
    request.session[CHALLENGES] = {**request.session.get(CHALLENGES, {}), purpose.value: challenge}
    return json.dumps(options)


@contextmanager
def _answered(request: HttpRequest, purpose: Purpose, user: User | None) -> Iterator[None]:
    """The challenge of this purpose and person is at hand inside, once: it is used up, whatever the answer is. Raises
    ValueError where there is none, or none any more.
    """
    waiting = dict(request.session.get(CHALLENGES, {}))
    challenge = waiting.pop(purpose.value, None)
    request.session[CHALLENGES] = waiting
    if challenge is None or challenge["user"] != (user and user.pk):
        raise ValueError("no challenge")
    if not 0 <= clock.now().timestamp() - challenge["at"] <= CHALLENGE_SECONDS:
        raise ValueError("challenge expired")
    webauthn.set_state(challenge["state"])
    try:
        yield
    finally:
        webauthn.clear_state()


def own_origin() -> str:
    """The origin of BASE_URL, as browsers write it."""
    parts = urlsplit(settings.BASE_URL)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def _check_origin(client: Any) -> None:
    """Raises ValueError unless a page of exactly this installation asked, and not inside a page of another site."""
    if client.origin != own_origin() or client.cross_origin is not False:
        raise ValueError("origin")


def factor(request: HttpRequest, user: User, *, challenge: str, again: bool = False) -> Proof:
    """A second factor as a form sent it: `code`, or `credential` of a passkey. `again`: in the middle of a session."""
    now = clock.now()
    credential = request.POST.get("credential", "")
    # A passkey is not guessed at, so nobody's tries at it are counted.
    attempt = None if credential else logins.begin_factor(user=user, challenge=challenge, now=now)
    if attempt is not None and attempt.wait is None:
        return Proof(False, people.CHALLENGE_OVER, over=True)
    if attempt is not None and attempt.wait:
        seconds = math.ceil(attempt.wait)
        return Proof(False, people.LOGIN_WAITS.format(wait=times.duration(seconds)), retry_after=seconds)
    if attempt is None:
        found = passkey(request, credential, Purpose.AGAIN if again else Purpose.FACTOR, user)
    else:
        code = request.POST.get("code", "")[:100]
        try:
            found = factors.check_code(actor=_actor(request, user), code=code, now=now)
        except factors.UnreadableFactorError:
            return Proof(False, people.FACTOR_UNREADABLE)
    if found is None:
        return Proof(False, people.PASSKEY_WRONG if credential else people.FACTOR_WRONG)
    if attempt is not None:
        logins.factor_succeeded(attempt)
    # Its person as the request has it, which knows what has been proved so far.
    found.user = user
    post_authentication(request, found, reauthenticated=again)
    return RIGHT


def passkey(request: HttpRequest, text: str, purpose: Purpose, user: User | None = None) -> Any:
    """The passkey that signed what was asked, of this person; None where none did. Without a person it is a sign-in
    that needs no password: the key itself has to have checked who holds it. The answer comes from a browser that may
    be anybody's.
    """
    try:
        with _answered(request, purpose, user):
            told = json.loads(text[:LONGEST_ANSWER])
            parsed = webauthn.parse_authentication_response(told).response
            _check_origin(parsed.client_data)
            if user is None and not parsed.authenticator_data.is_user_verified():
                return None
            return webauthn.complete_authentication(user or webauthn.extract_user_from_response(told), told)
    except WRONG:
        return None


def new_passkey(request: HttpRequest, text: str, user: User) -> Mapping[str, Any] | None:
    """What a new passkey of this person said of itself; None where it answers to no challenge of theirs, or has not
    checked who holds it.
    """
    try:
        with _answered(request, Purpose.ADD, user):
            told: dict[str, Any] = json.loads(text[:LONGEST_ANSWER])
            _check_origin(webauthn.parse_registration_response(told).response.client_data)
            return told if webauthn.complete_registration(told).is_user_verified() else None
    except WRONG:
        return None


def password(request: HttpRequest, user: User, *, field: str = "password") -> Proof:
    """The password of somebody who is logged in, in this field of the form, counted like any other attempt."""
    given = request.POST.get(field, "")
    try:
        found = get_adapter(request).authenticate(request, username=user.get_username(), password=given)
    except ValidationError as error:
        return Proof(False, str(error.message), retry_after=(error.params or {})["retry_after"])
    return RIGHT if found is not None and found.pk == user.pk else Proof(False, people.PASSWORD_WRONG)


def _actor(request: HttpRequest, user: User) -> Actor:
    return actor.person(
        user, "page", request_id=request.META.get(REQUEST_ID, ""), address=str(request.META.get("REMOTE_ADDR", ""))
    )
