"""Oneself: settings, tokens, password. For admins: everybody. Each parses, calls one operation, answers."""

from datetime import timedelta
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from fleet.dashboard.forms import ChoicesForm, PersonForm, TokenForm
from fleet.dashboard.pages import missing, page, person, reader
from fleet.operations import membership, people, profiles
from fleet.operations.errors import Refused
from fleet.operations.rights import GROUPS, can_administer
from fleet.projections import audit, timeline
from fleet.projections import people as shown
from fleet.projections.paging import BadCursorError

STATUS = {"unknown-person": 404, "not-permitted": 403, "validation": 422}
# How long a token may live, as the form offers it.
DAYS = {"1": "a day", "7": "a week", "30": "30 days", "90": "90 days", "365": "a year"}
ADMINS_ONLY = "People are managed with the right of an admin, which you have not got."


@cache
def zones() -> tuple[str, ...]:
    """Every time zone that there is, by name."""
    return tuple(sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")))


@require_safe
@reader
def you(request: HttpRequest) -> HttpResponse:
    return you_answer(request)


def you_answer(request: HttpRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    """One's own page; also the answer to a form on it that was refused, or made a token."""
    who = person(request)
    allowed = [scope for scope, (may, _) in people.NEEDED.items() if may(who)]
    return page(
        request,
        "you.html",
        {},
        now=timezone.now(),
        status=status,
        me=shown.me(user_id=who.pk),
        tokens=shown.tokens(username=who.get_username()),
        allowed=allowed,
        days=DAYS,
        zones=zones(),
        **context,
    )


@require_POST
@reader
def choose(request: HttpRequest) -> HttpResponse:
    form = ChoicesForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "Choose a time zone.")
        profiles.choose(
            by=person(request),
            via="page",
            now=timezone.now(),
            time_zone=form.cleaned_data["time_zone"],
            shortcuts=form.cleaned_data["shortcuts"],
        )
    except Refused as refusal:
        return you_answer(request, status=STATUS.get(refusal.code, 409), refusal=refusal.sentence)
    messages.success(request, "Kept.")
    return redirect("you")


@sensitive_post_parameters()
@require_POST
@reader
def make_token(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "A token needs a name of up to 200 characters and at least one scope.")
        _, plain = people.make_own_token(
            by=person(request),
            via="page",
            name=form.cleaned_data["name"],
            scopes=form.cleaned_data["scopes"],
            expires_in=timedelta(days=form.cleaned_data["days"]),
            now=timezone.now(),
        )
    except Refused as refusal:
        return you_answer(request, status=STATUS.get(refusal.code, 409), refusal=refusal.sentence, sent=request.POST)
    return you_answer(request, new_token=plain)


@require_POST
@reader
def end_token(request: HttpRequest, prefix: str) -> HttpResponse:
    try:
        token = people.end_token(prefix=prefix, by=person(request), via="page", now=timezone.now())
    except Refused as refusal:
        return you_answer(request, status=STATUS.get(refusal.code, 409), refusal=refusal.sentence)
    messages.success(request, f"The token “{token.name}” has ended.")
    if token.user_id != person(request).pk:
        return redirect("person", username=token.user.get_username())
    return redirect("you")


@sensitive_post_parameters()
@reader
def password(request: HttpRequest) -> HttpResponse:
    """Django's own form: it wants the old one and looks at the new one."""
    who = person(request)
    form = PasswordChangeForm(who, request.POST or None)
    if request.method == "POST" and form.is_valid():
        profiles.set_own_password(by=who, password=form.cleaned_data["new_password1"], via="page", now=timezone.now())
        # This session stays; every other one of theirs ends.
        update_session_auth_hash(request, who)
        messages.success(request, "Your password is another one now. Other sessions of yours have ended.")
        return redirect("you")
    return page(
        request, "password.html", {}, now=timezone.now(), status=422 if request.method == "POST" else 200, form=form
    )


@require_safe
@reader
def people_page(request: HttpRequest) -> HttpResponse:
    return people_answer(request)


def people_answer(request: HttpRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    if not can_administer(request.user):
        return render(request, "403.html", {"reason": ADMINS_ONLY}, status=403)
    try:
        found = shown.listing(cursor=request.GET.get("cursor"), q=request.GET.get("q", "").replace("\x00", ""))
    except BadCursorError:
        return redirect("people")
    links = {"older": f"?cursor={found.next}"} if found.next else {}
    return page(
        request,
        "people.html",
        {},
        now=timezone.now(),
        status=status,
        people=found,
        links=links,
        groups=GROUPS,
        **context,
    )


@require_safe
@reader
def person_page(request: HttpRequest, username: str) -> HttpResponse:
    return person_answer(request, username)


def person_answer(request: HttpRequest, username: str, *, status: int = 200, **context: Any) -> HttpResponse:
    if not can_administer(request.user):
        return render(request, "403.html", {"reason": ADMINS_ONLY}, status=403)
    found = shown.detail(username=username)
    if found is None:
        return missing(request, "There is no person of this name.")
    did = audit.listing(entries=audit.AuditFilter({"person": username}).qs, size=10)
    rows: tuple[timeline.TimelineRow, ...] = audit.about(username=username)
    return page(
        request,
        "person.html",
        {},
        now=timezone.now(),
        status=status,
        found=found,
        scopes="\n".join(f"{scope.kind}: {scope.pattern}" for scope in found.scopes),
        tokens=shown.tokens(username=username),
        groups=GROUPS,
        did=did.results,
        about=rows,
        **context,
    )


@sensitive_post_parameters()
@require_POST
@reader
def make_person(request: HttpRequest) -> HttpResponse:
    form = PersonForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", form.sentence)
        made, plain = membership.make_person(
            username=form.cleaned_data["username"],
            group=form.cleaned_data["group"],
            scopes=form.cleaned_data["scopes"],
            by=person(request),
            via="page",
            now=timezone.now(),
        )
    except Refused as refusal:
        return people_answer(request, status=STATUS.get(refusal.code, 409), refusal=refusal.sentence, sent=request.POST)
    return person_answer(request, made.get_username(), new_password=plain)


@require_POST
@reader
def change_person(request: HttpRequest, username: str) -> HttpResponse:
    form = PersonForm({**request.POST.dict(), "username": username})
    try:
        if not form.is_valid():
            raise Refused("validation", form.sentence)
        membership.change_person(
            username=username,
            group=form.cleaned_data["group"],
            scopes=form.cleaned_data["scopes"],
            active=form.cleaned_data["active"],
            by=person(request),
            via="page",
            now=timezone.now(),
        )
    except Refused as refusal:
        return person_answer(request, username, status=STATUS.get(refusal.code, 409), refusal=refusal.sentence)
    messages.success(request, "Kept. It holds from the next request on.")
    return redirect("person", username=username)


@sensitive_post_parameters()
@require_POST
@reader
def reset_password(request: HttpRequest, username: str) -> HttpResponse:
    try:
        plain = membership.reset_password(username=username, by=person(request), via="page", now=timezone.now())
    except Refused as refusal:
        return person_answer(request, username, status=STATUS.get(refusal.code, 409), refusal=refusal.sentence)
    return person_answer(request, username, new_password=plain)
