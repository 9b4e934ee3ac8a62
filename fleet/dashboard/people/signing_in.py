"""How somebody comes in: their second factors, added and removed by themselves alone."""

import base64
from typing import Any

from allauth.mfa.adapter import get_adapter
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.debug import sensitive_post_parameters

from fleet.dashboard.again import asked_again
from fleet.dashboard.pages import Asked, acts, done, page, shown
from fleet.dashboard.people import proof
from fleet.domain.reasons import Reason, Refused
from fleet.operations.people import factors
from fleet.projections.people.factors import factors_of

# In the session: the secret of an app that is not added yet.
SECRET = "app_secret"  # noqa: S105


def signing_in_answer(request: Asked, /, **context: Any) -> HttpResponse:
    context.pop("factor_id", None)
    return page(request, "people/signing_in.html", factors=factors_of(user_id=request.user.pk), **context)


signing_in = shown(signing_in_answer)


@asked_again
def app_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """The secret of a new app, as a picture and as text; it counts once its first code was right."""
    if request.method == "GET":
        request.session[SECRET] = factors.new_secret()
    secret = request.session.get(SECRET, "")
    adapter = get_adapter()
    svg = adapter.build_totp_svg(adapter.build_totp_url(request.user, secret))
    picture = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return page(request, "people/app.html", secret=secret, picture=picture, **context)


app_page = shown(app_answer)


@sensitive_post_parameters()
@acts(app_answer)
@asked_again
def add_app(request: Asked) -> HttpResponseBase:
    secret, code = request.session.get(SECRET, ""), request.POST.get("code", "")[:100]
    codes = factors.add_app(actor=request.actor, secret=secret, code=code, now=request.now)
    del request.session[SECRET]
    return _added(request, "Your app is asked for its code from now on.", codes)


@asked_again
def passkey_answer(request: Asked, /, **context: Any) -> HttpResponse:
    options = proof.passkey_options(request, proof.Purpose.ADD, request.user)
    return page(request, "people/passkey.html", options=options, **context)


passkey_page = shown(passkey_answer)


@acts(passkey_answer)
@asked_again
def add_passkey(request: Asked) -> HttpResponseBase:
    told = proof.new_passkey(request, request.POST.get("credential", ""), request.user)
    if told is None:
        raise Refused("validation", Reason("factor-passkey-wrong"))
    codes = factors.add_passkey(
        actor=request.actor, name=request.POST.get("name", ""), credential=told, now=request.now
    )
    return _added(request, "You can log in by this passkey from now on.", codes)


@acts(signing_in_answer)
@asked_again
def remove_factor(request: Asked, factor_id: int) -> HttpResponseBase:
    factors.remove(actor=request.actor, factor_id=factor_id, now=request.now)
    return done(request, "It is no second factor of yours any more.", "you-signing-in")


@acts(signing_in_answer)
@asked_again
def new_codes(request: Asked) -> HttpResponseBase:
    return signing_in_answer(request, new_codes=factors.new_codes(actor=request.actor, now=request.now))


def _added(request: Asked, said: str, codes: list[str]) -> HttpResponse:
    if codes:
        return signing_in_answer(request, new_codes=codes, said=said)
    return done(request, said, "you-signing-in")
