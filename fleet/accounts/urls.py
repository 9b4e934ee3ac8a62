"""URL patterns of accounts: API calls, pages, and the page on which users prove their identity before a decision."""

from django.urls import path

from fleet.accounts import api, login, single_sign_on, views
from fleet.api.routes import calls_of
from fleet.dashboard.reauthentication import ASK

ASK.page = login.ask

CALLS = calls_of(api)
PAGES = [
    path("you/", views.you, name="you"),
    path("you/settings/", views.choose, name="you-settings"),
    path("you/alerts/", views.choose_alerts, name="you-alerts"),
    path("you/signing-in/", login.signing_in, name="account-security"),
    path("you/signing-in/app/", login.app_page, name="factor-app"),
    path("you/signing-in/app/add/", login.add_app, name="factor-app-add"),
    path("you/signing-in/passkey/", login.passkey_page, name="factor-passkey"),
    path("you/signing-in/passkey/add/", login.add_passkey, name="factor-passkey-add"),
    path("you/signing-in/codes/", login.new_codes, name="factor-codes"),
    path("you/signing-in/<int:factor_id>/remove/", login.remove_factor, name="factor-remove"),
    path("you/sessions/", views.sessions_page, name="you-sessions"),
    path("you/sessions/end/", views.end_others, name="sessions-end-others"),
    path("you/again/", login.step_up_page, name="step-up"),
    path("you/password/", views.password, name="you-password"),
    path("you/accounts/<str:invitation>/", views.account, name="you-account"),
    path("you/accounts/<str:invitation>/link/", views.link_account, name="you-account-link"),
    path("you/accounts/<int:account_id>/unlink/", views.unlink_account, name="you-account-unlink"),
    path("you/tokens/", views.make_token, name="token-make"),
    path("you/calendars/", views.make_calendar, name="calendar-make"),
    path("you/calendars/<str:prefix>/end/", views.end_calendar, name="calendar-end"),
    path("sessions/<int:session_id>/end/", views.end_session, name="session-end"),
    path("tokens/<str:prefix>/end/", views.end_token, name="token-end"),
    path("people/", views.people_page, name="people"),
    path("people/new/", views.make_person, name="person-make"),
    path("people/service/", views.make_service, name="person-service-make"),
    path("people/<str:username>/service/", views.change_service, name="person-service"),
    path("people/<str:username>/tokens/", views.make_service_token, name="person-token"),
    path("people/<str:username>/", views.person_page, name="person"),
    path("people/<str:username>/change/", views.change_person, name="person-change"),
    path("people/<str:username>/factors/", views.reset_factors, name="person-factors"),
    path("people/<str:username>/password/", views.reset_password, name="person-password"),
    path("people/<str:username>/sessions/end/", views.end_all, name="person-sessions-end"),
    path("people/<str:username>/forget/", views.forget_page, name="person-forget"),
    path("people/<str:username>/forget/now/", views.forget_person, name="person-forget-now"),
    # Views of django-allauth under the names that it expects; none of its other pages is routed.
    path("accounts/login/", login.Login.as_view(), name="account_login"),
    path("accounts/passkey/", login.passkey_login, name="login-passkey"),
    path("accounts/second-factor/", login.SecondFactor.as_view(), name="mfa_authenticate"),
    path("accounts/again/", login.back, name="login-again"),
    path("accounts/sign-on/", single_sign_on.begin, name="sign-on"),
    path("accounts/sign-on/back/", single_sign_on.back, name="sign-on-back"),
    path("accounts/sign-on/end/", single_sign_on.end, name="sign-on-end"),
    path("sign-on/", single_sign_on.mapping_page, name="mapping"),
    path("sign-on/try/", single_sign_on.try_mapping, name="mapping-try"),
    path("sign-on/lines/", single_sign_on.make_line, name="mapping-make"),
    path("sign-on/lines/<int:grant_id>/", single_sign_on.change_line, name="mapping-change"),
    path("sign-on/lines/<int:grant_id>/delete/", single_sign_on.delete_line, name="mapping-delete"),
    path("sign-on/links/", single_sign_on.link_account, name="mapping-link"),
    path("sign-on/links/<int:sign_on_id>/end/", single_sign_on.unlink_account, name="mapping-unlink"),
    path("accounts/logout/", login.Logout.as_view(), name="logout"),
]
