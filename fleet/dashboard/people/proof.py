"""Proofs that somebody is who they say: a code, a passkey, a password; asked at the login and again later on."""

import json
import math
from dataclasses import dataclass
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.mfa.base.internal.flows import post_authentication
from allauth.mfa.webauthn.internal import auth as webauthn
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


def passkey_options(user: User | None) -> str:
    """What a browser is asked to sign, as JSON; without a user any passkey of this installation may answer."""
    return json.dumps(webauthn.begin_authentication(user))


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
        found = passkey(credential, user)
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


def passkey(text: str, user: User | None = None) -> Any:
    """The passkey that signed what was asked, of this person or of whomever it names; None where none did. Its answer
    comes from a browser that may be anybody's.
    """
    try:
        told = json.loads(text[:20_000])
        webauthn.parse_authentication_response(told)
        return webauthn.complete_authentication(user or webauthn.extract_user_from_response(told), told)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
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
