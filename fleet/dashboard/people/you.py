"""Oneself: settings, tokens, password."""

from datetime import timedelta
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from allauth.account.adapter import get_adapter
from django import forms
from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from fleet.dashboard.forms import Sent, line
from fleet.dashboard.pages import Asked, Panel, acts, done, loaded, page, reader, shown
from fleet.dashboard.people import proof
from fleet.dashboard.people.arrival import session_key
from fleet.operations.people import calendars, profiles, sessions, tokens
from fleet.projections import people
from fleet.projections.messages.calendar import feeds
from fleet.wording.people import PASSWORD_WRONG

# How many days a token may live, as the form offers it.
DAYS = (1, 7, 30, 90, 365)


class ChoicesForm(Sent):
    wrong = "Choose a time zone."
    time_zone = line(100)
    shortcuts = forms.BooleanField(required=False)
    sound = forms.BooleanField(required=False)
    notifications = forms.BooleanField(required=False)


class TokenForm(Sent):
    wrong = "A token needs a name of up to 200 characters and at least one scope."
    name = line(200, required=True)
    scopes = forms.MultipleChoiceField(choices=[(scope, scope) for scope in tokens.SCOPES])
    days = forms.IntegerField(min_value=1, max_value=366)
    allowed_from = forms.CharField(required=False, max_length=4000)


class CalendarForm(Sent):
    wrong = "A calendar needs a name of up to 200 characters."
    name = line(200, required=True)
    set_pattern = line(200)
    service = line(200)


class PasswordForm(PasswordChangeForm):
    """Django's own, but for who looks at the old password: the door, which counts guesses."""

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
    """Every time zone that there is, by name."""
    return tuple(sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")))


# Of annexes; each loads what it shows for the request.
PANELS: list[Panel] = []


def you_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """One's own page; also the answer to a form on it that was refused, or made a token."""
    context.pop("prefix", None)
    context.pop("channel_id", None)
    context.pop("account_id", None)
    own = people.tokens(username=request.user.get_username())
    return page(
        request,
        "people/you.html",
        me=people.me(user_id=request.user.pk),
        tokens=own,
        expiring=[token for token in own if token.soon_over(request.now)],
        allowed=[scope for scope, right in tokens.SCOPES.items() if request.rights.may(right)],
        accounts=people.outside_accounts(username=request.user.get_username()),
        days=DAYS,
        zones=zones(),
        calendars=feeds(user_id=request.user.pk),
        panels=loaded(PANELS, request),
        **context,
    )


you = shown(you_answer)


@acts(you_answer)
def choose(request: Asked) -> HttpResponse:
    profiles.choose(actor=request.actor, now=request.now, **ChoicesForm(request.POST).values)
    return done(request, "Saved.", "you")


@sensitive_post_parameters()
@acts(you_answer)
def make_token(request: Asked) -> HttpResponse:
    values = TokenForm(request.POST).values
    _, plain = tokens.make_own_token(
        actor=request.actor,
        name=values["name"],
        scopes=values["scopes"],
        expires_in=timedelta(days=values["days"]),
        allowed_from=values["allowed_from"].splitlines(),
        now=request.now,
    )
    return you_answer(request, new_token=plain)


@acts(you_answer)
def end_token(request: Asked, prefix: str) -> HttpResponse:
    token = tokens.end_token(prefix=prefix, actor=request.actor, now=request.now)
    said = f"The token “{token.name}” has ended."
    if token.user_id != request.user.pk:
        return done(request, said, "person", username=token.user.get_username())
    return done(request, said, "you")


@acts(you_answer)
def make_calendar(request: Asked) -> HttpResponse:
    _, plain = calendars.make(actor=request.actor, now=request.now, **CalendarForm(request.POST).values)
    return you_answer(request, new_calendar=f"{settings.BASE_URL}{reverse('calendar', args=[plain])}")


@acts(you_answer)
def end_calendar(request: Asked, prefix: str) -> HttpResponse:
    feed = calendars.end(actor=request.actor, prefix=prefix, now=request.now)
    return done(request, f"The calendar “{feed.name}” has ended.", "you")


@sensitive_post_parameters()
@reader
def password(request: Asked) -> HttpResponse:
    """It wants the old one and looks at the new one."""
    who, sent = request.user, request.method == "POST"
    form = PasswordForm(request)
    if sent and form.is_valid():
        key, password = str(request.session.session_key), form.cleaned_data["new_password1"]
        profiles.set_own_password(actor=request.actor, password=password, now=request.now, session_key=key)
        # This session stays; every other one of theirs ends.
        update_session_auth_hash(request, who)
        sessions.moved(old_key=key, new_key=session_key(request))
        return done(request, "Your password has been changed. Your other sessions have ended.", "you")
    answer = page(request, "people/password.html", form=form)
    return proof.refused(answer, form, status=422) if sent else answer
