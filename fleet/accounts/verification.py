"""Forms that prove a user's identity by a code or a passkey, at sign-in and again within a session."""

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from allauth.account.utils import url_str_to_user_pk
from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import AuthenticateWebAuthnForm, LoginWebAuthnForm
from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from fido2 import webauthn
from fido2.server import Fido2Server
from fido2.webauthn import AttestedCredentialData, AuthenticationResponse, RegistrationResponse

from fleet.accounts import factors, logins
from fleet.accounts import text as account_text
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.texts import parse_json
from fleet.operations import clock
from fleet.wording import times

# Characters of a passkey's answer that are read, and the exceptions that reading it may raise.
LONGEST_ANSWER = 20_000
WRONG = (ValidationError, ValueError, TypeError, KeyError, AttributeError)


class Purpose(StrEnum):
    """Purpose of a passkey challenge. A signed challenge is accepted only for the same purpose."""

    SIGN_IN = "sign-in"
    FACTOR = "factor"
    AGAIN = "again"
    ADD = "add"


# Session key: unanswered challenges by purpose, each for one user, and their lifetime in seconds.
CHALLENGES = "passkey_challenges"
CHALLENGE_SECONDS = 600.0


def own_origin() -> str:
    """Return the origin of BASE_URL as browsers send it, for example `https://drydock.example.com`."""
    parts = urlsplit(settings.BASE_URL)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def _server() -> Fido2Server:
    """Return the WebAuthn server of this installation, which accepts only its own origin."""
    here = webauthn.PublicKeyCredentialRpEntity(**get_adapter().get_public_key_credential_rp_entity())
    return Fido2Server(here, verify_origin=lambda origin: origin == own_origin())


def _passkeys(user_id: int) -> tuple[list[Any], list[AttestedCredentialData]]:
    """Return the passkeys of a user (row id), and the WebAuthn credential of each in the same order."""
    rows = list(Authenticator.objects.select_related("user").filter(user=user_id, type=factors.PASSKEY))
    return rows, [row.wrap().authenticator_data.credential_data for row in rows]


def passkey_options(request: HttpRequest, purpose: Purpose, user: User | None = None) -> str:
    """Start a new passkey challenge and return its WebAuthn options as JSON. With `user` None, any passkey of this
    installation may sign it, but the passkey must verify its user, for example by PIN.
    """
    credentials = _passkeys(user.pk)[1] if user else []
    options: Any
    verify = webauthn.UserVerificationRequirement
    if user and purpose is Purpose.ADD:
        entity = webauthn.PublicKeyCredentialUserEntity(**get_adapter().get_public_key_credential_user_entity(user))
        resident, extensions = webauthn.ResidentKeyRequirement.REQUIRED, {"credProps": True}
        options, state = _server().register_begin(entity, credentials, resident, verify.REQUIRED, extensions=extensions)
    else:
        verification = verify.PREFERRED if user else verify.REQUIRED
        options, state = _server().authenticate_begin(credentials, verification)
    challenge = {"state": state, "user": user and user.pk, "at": clock.now().timestamp()}
    request.session[CHALLENGES] = {**request.session.get(CHALLENGES, {}), purpose.value: challenge}
    return json.dumps(dict(options))


def _used_up(request: HttpRequest, purpose: Purpose, user: User | None) -> Any:
    """Return and delete the state of the challenge for this purpose and user, so that it can be signed only once.
    Raises ValueError if there is none or it has expired.
    """
    waiting = dict(request.session.get(CHALLENGES, {}))
    challenge = waiting.pop(purpose.value, None)
    request.session[CHALLENGES] = waiting
    if challenge is None or challenge["user"] != (user and user.pk):
        raise ValueError("no challenge")
    if not 0 <= clock.now().timestamp() - challenge["at"] <= CHALLENGE_SECONDS:
        raise ValueError("challenge expired")
    return challenge["state"]


def passkey(request: HttpRequest, text: str, purpose: Purpose, user: User | None = None) -> Any:
    """Return the passkey that signed the current challenge, or None if `text` is invalid. `text` is the untrusted JSON
    from the browser. With `user` None this is a sign-in without a password.
    """
    try:
        state = _used_up(request, purpose, user)
        answer = AuthenticationResponse.from_dict(parse_json(text[:LONGEST_ANSWER]))
        _not_framed(answer)
        handle: Any = answer.response.user_handle
        rows, credentials = _passkeys(user.pk if user else url_str_to_user_pk(handle.decode()))
        passkey_row = rows[credentials.index(_server().authenticate_complete(state, credentials, answer))]
    except WRONG:
        return None
    # The user object of the request holds the proofs given so far.
    passkey_row.user = user or passkey_row.user
    return passkey_row


def new_passkey(request: HttpRequest, text: str, user: User) -> Mapping[str, Any] | None:
    """Return the registration data of a new passkey, or None if `text` (JSON from the browser) does not fit the
    challenge of this user or the passkey did not verify its user.
    """
    try:
        state = _used_up(request, Purpose.ADD, user)
        credential: dict[str, Any] = parse_json(text[:LONGEST_ANSWER])
        answer = RegistrationResponse.from_dict(credential)
        _not_framed(answer)
        _server().register_complete(state, answer)
    except WRONG:
        return None
    return credential


def _not_framed(answer: AuthenticationResponse | RegistrationResponse) -> None:
    """Raise ValueError if the browser made the signature on a page that is embedded in another site."""
    if answer.response.client_data.cross_origin is not False:
        raise ValueError("cross origin")


def actor_of(request: HttpRequest, user: User) -> Actor:
    """Return the user who signs in with this request as an actor."""
    request_id, address = request.META.get(REQUEST_ID, ""), str(request.META.get("REMOTE_ADDR", ""))
    return actor.person(user, "page", request_id=request_id, address=address)


class CodeForm(AuthenticateForm):  # type: ignore[misc]
    """Form for a code from an authenticator app, or a recovery code. Attempts are limited per user and per session."""

    def clean_code(self) -> str:
        request, now, code = context.request, clock.now(), str(self.cleaned_data["code"])
        challenge = f"{self.user.pk} {request.session.session_key}"
        attempt = logins.begin_factor(user=self.user, challenge=challenge, now=now)
        if attempt.wait is None:
            raise ValidationError(account_text.CHALLENGE_OVER, code="over")
        if attempt.wait:
            raise waits(attempt.wait)
        try:
            factor = factors.check_code(actor=actor_of(request, self.user), code=code[:100], now=now)
        except factors.UnreadableFactorError:
            raise ValidationError(account_text.FACTOR_UNREADABLE) from None
        if factor is None:
            raise ValidationError(account_text.FACTOR_WRONG)
        logins.factor_succeeded(attempt)
        factor.user, self.authenticator = self.user, factor
        return code


class PasskeyForm(AuthenticateWebAuthnForm):  # type: ignore[misc]
    """Form for a passkey as second factor. Attempts are not limited, because a passkey cannot be guessed."""

    purpose = Purpose.FACTOR
    credential = forms.CharField(
        max_length=LONGEST_ANSWER, error_messages=dict.fromkeys(("required", "max_length"), account_text.PASSKEY_WRONG)
    )

    def clean_credential(self) -> Any:
        factor = passkey(context.request, self.cleaned_data["credential"], self.purpose, self.user)
        if factor is None:
            raise ValidationError(account_text.PASSKEY_WRONG)
        return factor


class SignInForm(PasskeyForm, LoginWebAuthnForm):  # type: ignore[misc]
    """Form for sign-in with a passkey instead of name and password."""

    purpose = Purpose.SIGN_IN


class AgainForm(PasskeyForm):
    """Form for a passkey with which a signed-in user proves their identity again."""

    purpose, reauthenticated = Purpose.AGAIN, True


def waits(seconds: float) -> ValidationError:
    """Return the form error that asks the user to wait this many seconds before the next attempt."""
    whole = math.ceil(seconds)
    text = account_text.LOGIN_WAITS.format(wait=times.duration(whole))
    return ValidationError(text, code="throttled", params={"retry_after": whole})


def refused(answer: HttpResponse, form: Any, *, status: int = 401) -> HttpResponse:
    """Set the status of the response to a wrong proof of identity: `status`, or 429 with `Retry-After` if the user must
    wait. Return the response.
    """
    answer.status_code = status
    for error in (one for errors in form.errors.as_data().values() for one in errors):
        if error.code == "throttled":
            answer.status_code = 429
            answer.headers["Retry-After"] = str(error.params["retry_after"])
    return answer
