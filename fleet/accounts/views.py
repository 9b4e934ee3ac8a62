"""Pages for accounts: the user's own account page, and administrators' pages for users, external accounts and
sessions.
"""

from functools import cache, partial
from typing import Any
from zoneinfo import available_timezones

from allauth.account.adapter import get_adapter
from django import forms
from django.conf import settings
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from fleet.accounts import calendars, external_accounts, factors, privacy, sessions, tokens, verification
from fleet.accounts import queries as account_queries
from fleet.accounts import services as account_services
from fleet.accounts.calendars import CalendarForm, feeds
from fleet.accounts.post_login import session_key
from fleet.accounts.queries import SessionRow, TokenRow, session_rows
from fleet.accounts.services import ChangePersonForm, NewServiceForm, PersonForm, ServiceForm
from fleet.accounts.text import OUTSIDE, PASSWORD_WRONG, all_roles
from fleet.accounts.tokens import TokenForm
from fleet.dashboard import pages
from fleet.dashboard.forms import refused_form
from fleet.dashboard.pages import Asked, action_view, done, page, read_view
from fleet.domain.people import TOKEN_SCOPES
from fleet.domain.reasons import Refused
from fleet.operations import profile
from fleet.projections.pages import MAX_PAGE_SIZE


class PasswordForm(PasswordChangeForm):
    """Form with which users change their password. The sign-in adapter checks the old password and counts failures."""

    def __init__(self, request: Asked) -> None:
        super().__init__(request.user, request.POST or None)
        self.request = request

    def clean_old_password(self) -> str:
        old = str(self.cleaned_data["old_password"])
        if not get_adapter(self.request).reauthenticate(self.request.user, old):
            raise forms.ValidationError(PASSWORD_WRONG)
        return old


@cache
def zones() -> tuple[str, ...]:
    """Return the names of all time zones."""
    return tuple(sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")))


def tokens_of(username: str) -> tuple[TokenRow, ...]:
    return account_queries.tokens(username=username, size=MAX_PAGE_SIZE).results


def _done_for(person: User, request: Asked, message: str, own: str) -> HttpResponse:
    """Redirect to the user's own page `own`, or to the page of `person` if that is another user."""
    if person == request.user:
        return done(request, message, own)
    return done(request, message, "person", username=person.get_username())


# Registered by annexes; each loads its content for the request.
PANELS: list[pages.Panel] = []


def you_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the account page of the signed-in user. `context` adds for example a rejected form or a new token."""
    own = tokens_of(request.user.get_username())
    form = context.setdefault("token_form", TokenForm())
    form.fields["scopes"].choices = [(one, one) for one, right in TOKEN_SCOPES.items() if request.rights.may(right)]
    context.setdefault("calendar_form", CalendarForm(auto_id="calendar-%s"))
    return page(
        request,
        "people/you.html",
        me=account_queries.me(user_id=request.user.pk),
        tokens=own,
        expiring=[token for token in own if token.soon_over(request.now)],
        accounts=account_queries.outside_accounts(username=request.user.get_username()),
        zones=zones(),
        calendars=feeds(user_id=request.user.pk),
        panels=pages.loaded(PANELS, request),
        **context,
    )


you = read_view("you/", "you")(you_answer)


@action_view("you/settings/", "you-settings", you_answer)
def choose(request: Asked) -> HttpResponse:
    profile.choose(profile.ChoicesForm(request.POST), actor=request.actor, now=request.now)
    return done(request, "Saved.", "you")


@action_view("you/alerts/", "you-alerts", you_answer)
def choose_alerts(request: Asked) -> HttpResponse:
    """Switch sound and desktop notifications on or off, from the queue."""
    is_on = request.POST.get("alerts") == "on"
    sent = profile.ChoicesSerializer(data={"sound": is_on, "notifications": is_on})
    profile.choose(sent, actor=request.actor, now=request.now)
    return redirect("queue")


@sensitive_post_parameters()
@action_view("you/tokens/", "token-make", refused_form(you_answer, TokenForm, "token_form"))
def make_token(request: Asked) -> HttpResponse:
    _, plain = tokens.create_token(TokenForm(request.POST), actor=request.actor, now=request.now)
    return you_answer(request, new_token=plain)


@action_view("tokens/<str:prefix>/end/", "token-end", you_answer)
def end_token(request: Asked, prefix: str) -> HttpResponse:
    token = tokens.end_token(prefix=prefix, actor=request.actor, now=request.now)
    return _done_for(token.user, request, f"The token “{token.name}” was revoked.", "you")


@action_view(
    "you/calendars/",
    "calendar-make",
    refused_form(you_answer, partial(CalendarForm, auto_id="calendar-%s"), "calendar_form"),
)
def make_calendar(request: Asked) -> HttpResponse:
    _, plain = calendars.make(CalendarForm(request.POST), actor=request.actor, now=request.now)
    return you_answer(request, new_calendar=f"{settings.BASE_URL}{reverse('calendar', args=[plain])}")


@action_view("you/calendars/<str:prefix>/end/", "calendar-end", you_answer)
def end_calendar(request: Asked, prefix: str) -> HttpResponse:
    feed = calendars.end(actor=request.actor, prefix=prefix, now=request.now)
    return done(request, f"The calendar “{feed.name}” was deleted.", "you")


@sensitive_post_parameters()
@pages.require_reader
def password(request: Asked) -> HttpResponse:
    """Change the password of the signed-in user, after checking the old password and validating the new one."""
    who, sent = request.user, request.method == "POST"
    form = PasswordForm(request)
    if sent and form.is_valid():
        key, password = str(request.session.session_key), form.cleaned_data["new_password1"]
        account_services.set_own_password(actor=request.actor, password=password, now=request.now, session_key=key)
        # This session stays open; all others of the user end.
        update_session_auth_hash(request, who)
        sessions.moved(old_key=key, new_key=session_key(request))
        return done(request, "Your password has been changed. Your other sessions have ended.", "you")
    answer = page(request, "people/password.html", form=form)
    return verification.refused(answer, form, status=422) if sent else answer


# All users, for administrators: access, rights and actions.

# Limit of sessions shown for a user.
MOST_SESSIONS = 100
UNKNOWN_USER = "No user has this name."


for_admins = pages.for_admins("Managing users requires the role admin.")


@for_admins
def people_answer(request: Asked, /, **context: Any) -> HttpResponse:
    wanted = request.GET.get("q", "").replace("\x00", "")
    context.setdefault("person_form", PersonForm())
    context.setdefault("service_form", NewServiceForm(auto_id="service-%s"))
    return pages.listed(
        request,
        "people/list.html",
        "people/person_rows.html",
        partial(account_queries.listing, q=wanted),
        roles=all_roles(),
        **context,
    )


people_page = read_view("people/", "people")(people_answer)


# Registered by annexes, for the end of a user's page; each loads its content for the user.
MEMBER_PANELS: list[pages.Panel] = []


@for_admins
def person_answer(request: Asked, /, username: str, **context: Any) -> HttpResponse:
    found = pages.known(account_queries.detail(username=username), UNKNOWN_USER)
    rights = {"group": found.group, "scopes": [(one.kind, one.pattern) for one in found.scopes]}
    context.setdefault("rights_form", ChangePersonForm(initial={**rights, "is_active": found.active}))
    context.setdefault("service_form", ServiceForm(initial={"owner": found.owner, "purpose": found.purpose}))
    context.setdefault("token_form", TokenForm(auto_id="token-%s"))
    return page(
        request,
        "people/person.html",
        found=found,
        tokens=tokens_of(username),
        sessions=_sessions_of(request, username),
        roles=all_roles(),
        panels=pages.loaded(MEMBER_PANELS, found),
        **context,
    )


person_page = read_view("people/<str:username>/", "person")(person_answer)


@sensitive_post_parameters()
@action_view("people/new/", "person-make", refused_form(people_answer, PersonForm, "person_form"))
def make_person(request: Asked) -> HttpResponse:
    made, plain = account_services.make_person(PersonForm(request.POST), actor=request.actor, now=request.now)
    return person_answer(request, made.get_username(), new_password=plain)


@action_view(
    "people/<str:username>/change/", "person-change", refused_form(person_answer, ChangePersonForm, "rights_form")
)
def change_person(request: Asked, username: str) -> HttpResponse:
    form = ChangePersonForm(request.POST)
    account_services.change_person(form, username=username, actor=request.actor, now=request.now)
    return done(request, "Saved. It counts from the next request on.", "person", username=username)


@sensitive_post_parameters()
@action_view("people/<str:username>/password/", "person-password", person_answer)
def reset_password(request: Asked, username: str) -> HttpResponse:
    plain = account_services.reset_password(username=username, actor=request.actor, now=request.now)
    return person_answer(request, username, new_password=plain)


@for_admins
def forget_answer(request: Asked, /, username: str, **context: Any) -> HttpResponse:
    pages.known(account_queries.detail(username=username), UNKNOWN_USER)
    try:
        context["plan"] = privacy.preview(username=username, actor=request.actor)
    except Refused as error:
        context = {**pages.refused(error), **context}
    return page(request, "people/forget.html", username=username, **context)


forget_page = read_view("people/<str:username>/forget/", "person-forget")(forget_answer)


@action_view("people/<str:username>/forget/now/", "person-forget-now", forget_answer)
def forget_person(request: Asked, username: str) -> HttpResponse:
    confirmed = request.POST.get("confirmed", "")
    erasure = privacy.forget(username=username, confirmed=confirmed, actor=request.actor, now=request.now)
    return done(request, f"The user was erased. The pseudonym is {erasure.former}.", "people")


@action_view("people/<str:username>/factors/", "person-factors", person_answer)
def reset_factors(request: Asked, username: str) -> HttpResponse:
    gone = factors.remove_all(username=username, actor=request.actor, now=request.now)
    message = "Second factors removed. The user signs in with the password only."
    message = message if gone else "There is no second factor."
    return done(request, message, "person", username=username)


@action_view(
    "people/service/",
    "person-service-make",
    refused_form(people_answer, partial(NewServiceForm, auto_id="service-%s"), "service_form"),
)
def make_service(request: Asked) -> HttpResponse:
    row = account_services.make_service(NewServiceForm(request.POST), actor=request.actor, now=request.now)
    message = "The service account was created. Create a token for it."
    return done(request, message, "person", username=row.user.get_username())


@action_view(
    "people/<str:username>/service/", "person-service", refused_form(person_answer, ServiceForm, "service_form")
)
def change_service(request: Asked, username: str) -> HttpResponse:
    account_services.change_service(ServiceForm(request.POST), username=username, actor=request.actor, now=request.now)
    return done(request, "Saved.", "person", username=username)


@sensitive_post_parameters()
@action_view("people/<str:username>/tokens/", "person-token", refused_form(person_answer, TokenForm, "token_form"))
def make_service_token(request: Asked, username: str) -> HttpResponse:
    form = TokenForm(request.POST)
    _, plain = tokens.create_token(form, actor=request.actor, now=request.now, username=username)
    return person_answer(request, username, new_token=plain)


# The user's own accounts in Slack and PagerDuty: link and unlink.


def invitation_answer(request: Asked, /, invitation: str, **context: Any) -> HttpResponse:
    """Return the page on which the user confirms that an external account is theirs. Opening the page changes
    nothing.
    """
    try:
        kind, team, account, name = external_accounts.invited(invitation)
        shown = {"kind": OUTSIDE.get(kind, kind), "team": team, "account": account, "name": name}
    except Refused as error:
        shown = pages.refused(error)
    return page(request, "people/account.html", **{"invitation": invitation, **shown, **context})


account = read_view("you/accounts/<str:invitation>/", "you-account")(invitation_answer)


@action_view("you/accounts/<str:invitation>/link/", "you-account-link", invitation_answer)
def link_account(request: Asked, invitation: str) -> HttpResponse:
    row = external_accounts.link_own(actor=request.actor, token=invitation, now=request.now)
    return done(request, f"The {OUTSIDE[row.kind]} account {row.account} is linked: its claims count as yours.", "you")


@action_view("you/accounts/<int:account_id>/unlink/", "you-account-unlink", you_answer)
def unlink_account(request: Asked, account_id: int) -> HttpResponse:
    external_accounts.unlink(actor=request.actor, account_id=account_id, now=request.now)
    return done(request, "The account was unlinked.", "you")


# The user's own sessions, and for administrators those of any user.


def _sessions_of(request: Asked, username: str) -> tuple[SessionRow, ...]:
    key = str(request.session.session_key)
    return session_rows(username=username, session_key=key, now=request.now, size=MOST_SESSIONS).results


def sessions_answer(request: Asked, /, **context: Any) -> HttpResponse:
    own = _sessions_of(request, request.user.get_username())
    return page(request, "people/sessions.html", sessions=own, **context)


sessions_page = read_view("you/sessions/", "you-sessions")(sessions_answer)


@action_view("sessions/<int:session_id>/end/", "session-end", sessions_answer)
def end_session(request: Asked, session_id: int) -> HttpResponseBase:
    own = _sessions_of(request, request.user.get_username())
    is_current = any(row.is_current and row.id == session_id for row in own)
    row = sessions.end(actor=request.actor, session_id=session_id, now=request.now)
    if is_current:
        logout(request)
        return redirect("account_login")
    return _done_for(row.user, request, "The session has ended.", "you-sessions")


@action_view("you/sessions/end/", "sessions-end-others", sessions_answer)
def end_others(request: Asked) -> HttpResponse:
    key = str(request.session.session_key)
    count = sessions.end_all(actor=request.actor, but=key, now=request.now)
    return done(request, _ended(count), "you-sessions")


@action_view("people/<str:username>/sessions/end/", "person-sessions-end", person_answer)
def end_all(request: Asked, username: str) -> HttpResponse:
    count = sessions.end_all(actor=request.actor, username=username, now=request.now)
    return done(request, _ended(count), "person", username=username)


def _ended(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'} ended." if count else "There was no session to end."
