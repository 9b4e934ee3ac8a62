"""Single sign-on: the administrators' pages for mapping and accounts, and sign-in by OpenID Connect."""

import secrets
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode

import requests
import structlog
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, login, logout
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from fleet.accounts import provider, sign_on
from fleet.accounts import queries as known
from fleet.accounts.post_login import record_session, remember_device, trouble
from fleet.accounts.provider import ProviderError, Why
from fleet.accounts.sign_on import ChangeGrantForm, GrantForm
from fleet.accounts.text import all_roles
from fleet.accounts.views import for_admins
from fleet.dashboard.forms import Sent, line, refused_form
from fleet.dashboard.pages import Asked, action_view, as_asked, done, page, read_view
from fleet.domain.reasons import Refused
from fleet.domain.sign_on import LONGEST_SUBJECT, ClaimFault, Grant, identity_of, subject_of
from fleet.operations import clock, step_up
from fleet.wording import say
from fleet.wording.times import page_reader


def notices(request: HttpRequest) -> dict[str, Any]:
    """Return the enabled sign-in methods and sign-in notices for the status bar. A context processor of the
    templates.
    """
    name = settings.OIDC_DISPLAY_NAME if settings.OIDC_ISSUER else ""
    ways = {"sign_on_name": name, "passwords": settings.LOCAL_PASSWORDS}
    if (asked := as_asked(request)) is None:
        return ways
    return ways | {
        "grace_ends_at": sign_on.grace_ends_at(asked.user, now=asked.now),
        # Queried only if an emergency account is configured.
        "emergency": settings.EMERGENCY_ACCOUNT
        and SimpleLazyObject(lambda: known.emergency_account_used(since=asked.now - sign_on.TOLD_FOR)),
    }


class LinkForm(Sent):
    wrong = f"Enter a person's name, and the object id of the account with up to {LONGEST_SUBJECT} characters."
    username = line(150, required=True)
    subject = line(LONGEST_SUBJECT, required=True)


@for_admins
def mapping_answer(request: Asked, /, **context: Any) -> HttpResponse:
    # The line of the submitted form stays open after a rejection or a dry run.
    wanted = str(context.pop("grant_id", "") or context.pop("line", "") or request.GET.get("line", ""))
    lines = known.mapping(size=known.MOST).results
    chosen = next((one for one in lines if str(one.id) == wanted), None)
    if chosen:
        rights = {"group": chosen.group, "scopes": [(one.kind, one.pattern) for one in chosen.scopes]}
        context.setdefault("change_form", ChangeGrantForm(initial=rights, auto_id="line-%s"))
    context.setdefault("form", GrantForm())
    return page(
        request,
        "people/mapping.html",
        lines=lines,
        chosen_line=chosen,
        # Those without a user first.
        accounts=sorted(known.accounts(size=known.MOST).results, key=lambda account: account.person),
        roles=all_roles(),
        issuer=settings.OIDC_ISSUER,
        claim=settings.OIDC_CLAIM,
        back=f"{settings.BASE_URL}{reverse('sign-on-back')}",
        grace=settings.OIDC_GRACE_SECONDS,
        passwords=settings.LOCAL_PASSWORDS,
        emergency_account=settings.EMERGENCY_ACCOUNT,
        **context,
    )


mapping_page = read_view("sign-on/", "mapping")(mapping_answer)


@action_view("sign-on/try/", "mapping-try", mapping_answer)
@for_admins
def try_mapping(request: Asked) -> HttpResponse:
    """Show the rights that each known account has by the current mapping, and those of pasted claims. Changes
    nothing.
    """
    return mapping_answer(request, tried=known.dry_run(pasted=request.POST.get("claims", "")), sent=request.POST)


@for_admins
def _tried(request: Asked, /, instead: Grant, **context: Any) -> HttpResponse:
    """Show a dry run in which `instead` replaces one entry of the mapping."""
    lines = [one for one in sign_on.grants() if one.value != instead.value]
    tried = known.dry_run([*lines, instead])
    return mapping_answer(request, tried=tried, trying=instead.value, **context)


@action_view("sign-on/lines/", "mapping-make", refused_form(mapping_answer, GrantForm))
def make_line(request: Asked) -> HttpResponse:
    form = GrantForm(request.POST)
    if "try" in request.POST:
        return _tried(request, sign_on.tried(form), form=form)
    row = sign_on.create(form, actor=request.actor, now=request.now)
    return done(request, f"“{row.value}” is mapped. It counts from the next request on.", "mapping")


@action_view(
    "sign-on/lines/<int:grant_id>/",
    "mapping-change",
    refused_form(mapping_answer, partial(ChangeGrantForm, auto_id="line-%s"), "change_form"),
)
def change_line(request: Asked, grant_id: int) -> HttpResponse:
    form = ChangeGrantForm(request.POST, auto_id="line-%s")
    if "try" in request.POST:
        return _tried(request, sign_on.tried(form, grant_id=grant_id), grant_id=grant_id, change_form=form)
    row = sign_on.change(form, actor=request.actor, grant_id=grant_id, now=request.now)
    return done(request, f"“{row.value}” is changed. It counts from the next request on.", "mapping")


@action_view("sign-on/lines/<int:grant_id>/delete/", "mapping-delete", mapping_answer)
def delete_line(request: Asked, grant_id: int) -> HttpResponse:
    row = sign_on.delete(actor=request.actor, grant_id=grant_id, now=request.now)
    return done(request, f"The mapping of “{row.value}” is deleted.", "mapping")


@action_view("sign-on/links/", "mapping-link", mapping_answer)
def link_account(request: Asked) -> HttpResponse:
    row = sign_on.link(actor=request.actor, now=request.now, **LinkForm(request.POST).values)
    person = row.user.get_username() if row.user else ""
    return done(request, f"The account is linked to {person}.", "mapping")


@action_view("sign-on/links/<int:sign_on_id>/end/", "mapping-unlink", mapping_answer)
def unlink_account(request: Asked, sign_on_id: int) -> HttpResponse:
    sign_on.unlink(actor=request.actor, sign_on_id=sign_on_id, now=request.now)
    return done(request, "The account is no longer linked. Its sessions are signed out.", "mapping")


# Single sign-on with OpenID Connect: redirect, callback and sign-in. django-allauth keeps the state and does PKCE and
# the code exchange. Drydock verifies the token, and decides the user and their rights.

PROVIDER_ID = "sign-on"
# Maximum age of the authentication when the provider was asked to repeat it.
FRESH_SECONDS = 120.0

log = structlog.get_logger(__name__)


class SignOnBackend(ModelBackend):
    """Authentication backend of sessions that began at the provider. Each request checks with one query that the
    session is still valid.
    """

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:  # type: ignore[override]
        """Reject every password: these sessions begin only in the provider's callback."""

    def get_user(self, user_id: Any) -> User | None:
        user = User.objects.select_related("sign_on").filter(pk=user_id, is_active=True).first()
        return user if user is not None and sign_on.good(user, now=clock.now()) else None


class SignOnAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Adapter of django-allauth for the one configured provider. Accounts of other providers cannot sign in or be
    linked.
    """

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def list_apps(self, request: HttpRequest, provider: Any = None, client_id: Any = None) -> list[SocialApp]:
        """Return the provider from the settings, and never one from the database."""
        if not settings.OIDC_ISSUER:
            return []
        own: dict[str, Any] = {"server_url": settings.OIDC_ISSUER, "scope": settings.OIDC_SCOPES}
        own |= {"oauth_pkce_enabled": True, "fetch_userinfo": False}
        names = {"provider": "openid_connect", "provider_id": PROVIDER_ID, "name": settings.OIDC_DISPLAY_NAME}
        secret = {"client_id": settings.OIDC_CLIENT_ID, "secret": settings.OIDC_CLIENT_SECRET}
        return [SocialApp(**names, **secret, settings=own)]

    def get_provider(self, request: HttpRequest, provider: Any, client_id: Any = None) -> OpenIDConnectProvider:
        return OpenIDConnectProvider(request, app=self.get_app(request, provider=PROVIDER_ID))

    def get_requests_session(self) -> provider.Session:
        return provider.Session()

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Reject allauth's own sign-in flows: only `ProviderAdapter.complete_login` signs in."""
        raise ImmediateHttpResponse(trouble(request, "refused"))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Respond to a callback without a code, or with a code that the provider rejected."""
        log.warning("sign_on.refused", error=str(error), cause=type(exception).__name__)
        away = isinstance(exception, requests.RequestException)
        code = "cancelled" if error == AuthError.CANCELLED else "away" if away else "refused"
        raise ImmediateHttpResponse(trouble(request, code))


class ProviderAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """Redirect to the provider, and handling of the callback. The provider's configuration is cached, and its token is
    verified by `fleet.accounts.provider`.
    """

    state: dict[str, Any]

    @property
    def openid_config(self) -> dict[str, Any]:
        return provider.configuration()

    @property
    def basic_auth(self) -> bool:
        return provider.by_basic(self.openid_config)

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        """Return the callback URL, built from the setting BASE_URL and not from the host of the request."""
        return f"{settings.BASE_URL}{reverse('sign-on-back')}"

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> None:
        """Sign the user in and raise ImmediateHttpResponse with the response, so that the rest of allauth's flow does
        not run.
        """
        answer, data = kwargs["response"], self.state.get("data") or {}
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise ProviderError(Why.WRONG, "no ID token")
        claims = provider.verified(id_token, now=clock.now(), nonce=str(data.get("nonce", "")))
        raise ImmediateHttpResponse(_in(request, claims, str(answer.get("refresh_token") or ""), self.state))


class CallbackView(OAuth2CallbackView):  # type: ignore[misc]
    def _get_state(self, request: HttpRequest, provider: Any) -> Any:
        state, answer = super()._get_state(request, provider)
        self.adapter.state = state or {}
        return state, answer


def _in(request: HttpRequest, claims: dict[str, Any], refresh_token: str, state: dict[str, Any]) -> HttpResponse:
    """Sign in the user for these verified claims, and return the redirect."""
    now, data = clock.now(), state.get("data") or {}
    try:
        identity = identity_of(claims, issuer=settings.OIDC_ISSUER, claim=settings.OIDC_CLAIM)
        if data.get("again") and not _fresh(claims, asked_at=float(data.get("asked_at", 0)), at=now.timestamp()):
            return trouble(request, "not-again")
        person = sign_on.arrive(identity, now=now, refresh_token=refresh_token)
    except (ClaimFault, Refused) as error:
        log.warning("sign_on.refused", reason=str(error))
        if isinstance(error, ClaimFault):
            with suppress(ClaimFault):
                # The token states at least the account.
                account = Q(issuer=settings.OIDC_ISSUER, subject=subject_of(claims, issuer=settings.OIDC_ISSUER))
                sign_on.refuse(account, reason=error.reason, now=now, signs_in=True)
        if not request.session.exists(request.session.session_key or ""):
            # The session belonged to a user whose sessions have just ended.
            logout(request)
        reason = say.say(error.reason, page_reader(now))
        return trouble(request, "not-permitted", said=reason)
    if data.get("again") and data["again"] != person.pk:
        return trouble(request, "somebody-else")
    login(request, person, backend=sign_on.BACKEND)
    record_session(request, person, "sign-on")
    if data.get("again"):
        step_up.note(request.session, at=now)
    answer = redirect(state.get("next") or settings.LOGIN_REDIRECT_URL)
    remember_device(request, answer, person, "sign-on")
    return answer


def _fresh(claims: dict[str, Any], *, asked_at: float, at: float) -> bool:
    """Return whether the provider authenticated the user again: after the redirect at `asked_at` and within the last
    two minutes (seconds since 1970).
    """
    proved_at = claims.get("auth_time")
    if isinstance(proved_at, bool) or not isinstance(proved_at, int | float):
        return False
    return max(asked_at - provider.SKEW_SECONDS, at - FRESH_SECONDS) <= proved_at <= at + provider.SKEW_SECONDS


def _answer(request: HttpRequest, view: Any) -> HttpResponse:
    """Return the response of `view`, within the time limit for one exchange with the provider."""
    if not settings.OIDC_ISSUER:
        raise Http404("Single sign-on is not configured.")
    try:
        with provider.exchange():
            answer: HttpResponse = view()
            return answer
    except ProviderError as error:
        log.warning("sign_on.trouble", why=error.why.value, what=error.what)
        return trouble(request, {Why.AWAY: "away", Why.BUSY: "busy"}.get(error.why, "refused"))
    except (OAuth2Error, requests.RequestException) as error:
        log.warning("sign_on.trouble", why=type(error).__name__)
        return trouble(request, "away")


@never_cache
@require_safe
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. Pages link to this address, because forms may not submit to other sites. The query
    parameter `next` is a local page to return to; with `again`, the provider must authenticate the user again.
    """
    wanted = request.GET.get("next", "")
    inside = url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) and wanted.startswith("/")
    data: dict[str, Any] = {"nonce": secrets.token_urlsafe(24)}
    asked = {"nonce": data["nonce"]}
    if "again" in request.GET and request.user.is_authenticated:
        data |= {"again": request.user.pk, "asked_at": clock.now().timestamp()}
        asked |= {"prompt": "login", "max_age": "0"}

    def there() -> HttpResponse:
        at = SignOnAdapter(request).get_provider(request, PROVIDER_ID)
        at.get_oauth2_adapter = lambda _: ProviderAdapter(request, PROVIDER_ID)
        answer: HttpResponse = at.redirect(
            request, AuthProcess.LOGIN, next_url=wanted if inside else None, data=data, auth_params=asked
        )
        return answer

    return _answer(request, there)


@never_cache
@require_safe
def back(request: HttpRequest) -> HttpResponse:
    """Handle the callback from the provider."""
    return _answer(request, lambda: CallbackView.adapter_view(ProviderAdapter(request, PROVIDER_ID))(request))


@never_cache
@require_safe
def end(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-out page of the provider. Drydock's page after sign-out links to this address."""
    if not settings.OIDC_ISSUER:
        raise Http404("Single sign-on is not configured.")
    there = provider.end_address(f"{settings.BASE_URL}{reverse('account_login')}")
    return redirect(there or settings.LOGIN_URL)


def by_sign_on(request: HttpRequest) -> bool:
    """Return whether the session of this request began at the single sign-on provider."""
    return bool(request.session.get(BACKEND_SESSION_KEY) == sign_on.BACKEND)


def step_up_address(request: HttpRequest, there: str) -> str:
    """Return the URL at which the provider authenticates the user again and then returns to the page `there`. Empty for
    other sign-in methods.
    """
    return f"{reverse('sign-on')}?{urlencode({'again': '1', 'next': there})}" if by_sign_on(request) else ""
