"""Proofs of identity as forms of django-allauth: a code or a passkey, at sign-in and when a user confirms their
identity.
"""

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
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    RegistrationResponse,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from fleet.accounts import factors, logins
from fleet.accounts import text as account_text
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID
from fleet.operations import clock
from fleet.wording import times

# Characters of a passkey's answer that are read, and the exceptions that reading it may raise.
LONGEST_ANSWER = 20_000
WRONG = (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Purpose(StrEnum):
    """Purpose of a passkey challenge: an answer is valid for the same purpose only."""

    SIGN_IN = "sign-in"
    FACTOR = "factor"
    AGAIN = "again"
    ADD = "add"


# Session key: unanswered challenges by purpose, each for one user, and their lifetime in seconds.
CHALLENGES = "passkey_challenges"
CHALLENGE_SECONDS = 600.0


def own_origin() -> str:
    """Return the origin of BASE_URL in the form that browsers send."""
    parts = urlsplit(settings.BASE_URL)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def _server() -> Fido2Server:
    """Return the WebAuthn server, which accepts only the origin of this installation."""
    here = PublicKeyCredentialRpEntity(**get_adapter().get_public_key_credential_rp_entity())
    return Fido2Server(here, verify_origin=lambda origin: origin == own_origin())


def _passkeys(user_id: int) -> tuple[list[Any], list[AttestedCredentialData]]:
    """Return the passkeys of a user and their credentials."""
    rows = list(Authenticator.objects.select_related("user").filter(user=user_id, type=factors.PASSKEY))
    return rows, [row.wrap().authenticator_data.credential_data for row in rows]


def passkey_options(request: HttpRequest, purpose: Purpose, user: User | None = None) -> str:
    """Return the options of a new challenge, as JSON. Without a user, any passkey of this installation may answer, and
    must verify its holder.
    """
    credentials = _passkeys(user.pk)[1] if user else []
    options: Any
    if user and purpose is Purpose.ADD:
        options, state = _server().register_begin(
            PublicKeyCredentialUserEntity(**get_adapter().get_public_key_credential_user_entity(user)),
            credentials,
            ResidentKeyRequirement.REQUIRED,
            UserVerificationRequirement.REQUIRED,
            extensions={"credProps": True},
        )
    else:
        verification = UserVerificationRequirement.PREFERRED if user else UserVerificationRequirement.REQUIRED
        options, state = _server().authenticate_begin(credentials, verification)
    challenge = {"state": state, "user": user and user.pk, "at": clock.now().timestamp()}
    request.session[CHALLENGES] = {**request.session.get(CHALLENGES, {}), purpose.value: challenge}
    return json.dumps(dict(options))


def _used_up(request: HttpRequest, purpose: Purpose, user: User | None) -> Any:
    """Remove the challenge of this purpose and user, and return its state: each is valid for one answer. Raises
    ValueError if there is none or it has expired.
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
    """Return the passkey that signed the challenge; None if the answer is invalid. Without a user, this is a sign-in
    without a password. The answer is untrusted.
    """
    try:
        state = _used_up(request, purpose, user)
        answer = AuthenticationResponse.from_dict(json.loads(text[:LONGEST_ANSWER]))
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
    """Return the registration data of a new passkey; None if it answers no challenge of this user or did not verify
    its holder.
    """
    try:
        state = _used_up(request, Purpose.ADD, user)
        credential: dict[str, Any] = json.loads(text[:LONGEST_ANSWER])
        answer = RegistrationResponse.from_dict(credential)
        _not_framed(answer)
        _server().register_complete(state, answer)
    except WRONG:
        return None
    return credential


def _not_framed(answer: AuthenticationResponse | RegistrationResponse) -> None:
    """Raise ValueError if the answer comes from a page embedded in another site."""
    if answer.response.client_data.cross_origin is not False:
        raise ValueError("cross origin")


class CodeForm(AuthenticateForm):  # type: ignore[misc]
    """Form for a code of an app or a recovery code. Attempts are counted per user and per session."""

    def clean_code(self) -> str:
        request, now, code = context.request, clock.now(), str(self.cleaned_data["code"])
        attempt = logins.begin_factor(
            user=self.user, challenge=f"{self.user.pk} {request.session.session_key}", now=now
        )
        if attempt.wait is None:
            raise ValidationError(account_text.CHALLENGE_OVER, code="over")
        if attempt.wait:
            raise waits(attempt.wait)
        request_id, address = request.META.get(REQUEST_ID, ""), str(request.META.get("REMOTE_ADDR", ""))
        who = actor.person(self.user, "page", request_id=request_id, address=address)
        try:
            factor = factors.check_code(actor=who, code=code[:100], now=now)
        except factors.UnreadableFactorError:
            raise ValidationError(account_text.FACTOR_UNREADABLE) from None
        if factor is None:
            raise ValidationError(account_text.FACTOR_WRONG)
        logins.factor_succeeded(attempt)
        factor.user, self.authenticator = self.user, factor
        return code


class PasskeyForm(AuthenticateWebAuthnForm):  # type: ignore[misc]
    """Form for a passkey as the second factor. Passkeys cannot be guessed, so attempts are not counted."""

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
    """Form for a passkey in place of name and password."""

    purpose = Purpose.SIGN_IN


class AgainForm(PasskeyForm):
    """Form for a passkey that proves the identity again within a session."""

    purpose, reauthenticated = Purpose.AGAIN, True


def waits(seconds: float) -> ValidationError:
    """Return the error for an attempt that must wait this many seconds."""
    whole = math.ceil(seconds)
    text = account_text.LOGIN_WAITS.format(wait=times.duration(whole))
    return ValidationError(text, code="throttled", params={"retry_after": whole})


def refused(answer: HttpResponse, form: Any, *, status: int = 401) -> HttpResponse:
    """Return the answer to a wrong proof: with `status`, or with 429 and `Retry-After` if the user must wait."""
    answer.status_code = status
    for error in (one for errors in form.errors.as_data().values() for one in errors):
        if error.code == "throttled":
            answer.status_code = 429
            answer.headers["Retry-After"] = str(error.params["retry_after"])
    return answer
