"""URL patterns of accounts: API calls, pages, and the page on which users prove their identity before a decision."""

from django.urls import path

from fleet.accounts import api, login, single_sign_on, views
from fleet.api.urls import calls_of
from fleet.dashboard.pages import pages_of
from fleet.dashboard.reauthentication import ASK

ASK.page = login.ask

CALLS = calls_of(api)
PAGES = [
    *pages_of(login, single_sign_on, views),
    path("you/again/", login.step_up_page, name="step-up"),
    path("you/password/", views.password, name="you-password"),
    # Views of django-allauth under the names that it expects; none of its other pages is routed.
    path("accounts/login/", login.Login.as_view(), name="account_login"),
    path("accounts/passkey/", login.passkey_login, name="login-passkey"),
    path("accounts/second-factor/", login.SecondFactor.as_view(), name="mfa_authenticate"),
    path("accounts/again/", login.back, name="login-again"),
    path("accounts/sign-on/", single_sign_on.begin, name="sign-on"),
    path("accounts/sign-on/back/", single_sign_on.back, name="sign-on-back"),
    path("accounts/sign-on/end/", single_sign_on.end, name="sign-on-end"),
    path("accounts/logout/", login.Logout.as_view(), name="logout"),
]
